"""The scenarios of the model of asks: worlds in which all must hold, and worlds that a rule left out must break."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.models.asks import Broken, Rules, World
from tests.models.asks_steps import steps
from tests.models.asks_world import APPENDS, Bounds, Model, Op, check

USUAL = Bounds()


@dataclass(frozen=True)
class Scenario:
    """A world to explore."""

    text: str
    """What each client does: ``append a, append b | seal``; ``recovery r of a`` appends r unless a is there."""
    without: Mapping[str, Any]
    """The rules that are left out."""
    bounds: Bounds

    @property
    def scripts(self) -> Sequence[Sequence[Op]]:
        return [[op_of(text) for text in client.split(", ")] for client in self.text.split(" | ")]

    def __str__(self) -> str:
        without = "".join(f", {name}={value}" for name, value in self.without.items())
        return f"{self.text}{without}, {self.bounds.faults} faults"


def world(text: str, bounds: Bounds = USUAL, **without: Any) -> Scenario:
    """A scenario; the rules that are left out stand at the end."""
    return Scenario(text, without, bounds)


def op_of(text: str) -> Op:
    """The operation of a text: its kind, and the pieces of data of an append."""
    text, _, instead = text.partition(" of ")
    kind = next((kind for kind in APPENDS if text.startswith(f"{kind} ")), text)
    return Op(kind, tuple(text[len(kind) :].strip()), instead)


@dataclass(frozen=True)
class Found:
    """What an exploration has found."""

    states: int
    carried: int
    """Steps that carried an ask."""
    stuck: int
    """States in which nobody can do anything, although an append is not done."""
    broken: str = ""
    """What does not hold; empty if all holds."""
    course: tuple[str, ...] = ()
    """The steps that led there."""


def explore(scenario: Scenario) -> Found:
    """Visit all states, breadth first, until something is broken."""
    scripts = scenario.scripts
    model = Model(scripts, Rules(**scenario.without), scenario.bounds)
    first = model.begin()
    came: dict[World, tuple[World, str] | None] = {first: None}
    waiting, carried, stuck = deque([first]), 0, 0
    while waiting and len(came) <= scenario.bounds.states_max:
        world = waiting.popleft()
        last, nexts = "", []
        try:
            for index in range(len(scripts)):
                for last, after in steps(model, world, index):
                    check(after)
                    carried += "with" in last and "commits" in last
                    nexts.append((last, after))
            for last, after in model.landed(world):
                check(after)
                nexts.append((last, after))
        except Broken as broken:
            return Found(len(came), carried, stuck, str(broken), (*_course(came, world), f"after: {last}"))
        stuck += not nexts and any(
            client.nth < len(script) and script[client.nth].kind in APPENDS[:3]
            for client, script in zip(world.clients, scripts, strict=True)
        )
        for label, after in nexts:
            if after not in came:
                came[after] = world, label
                waiting.append(after)
    return Found(len(came), carried, stuck)


def _course(came: Mapping[World, tuple[World, str] | None], world: World) -> list[str]:
    course = []
    while (step := came[world]) is not None:
        world, label = step
        course.append(label)
    return course[::-1]


TIGHT = Bounds(lines_max=2, carried_max=1)
ONCE = Bounds(attempts_max=1)
SURE = Bounds(faults=0)
SURE_AND_ONCE = Bounds(faults=0, attempts_max=1)
SURE_AND_TIGHT = Bounds(faults=0, lines_max=2, carried_max=1)

QUICK = (
    world("append a | append b | seal", SURE),
    world("append a | append b | recovery r of a", SURE),
    world("append a | append b | remove at once, create", SURE_AND_ONCE),
    world("append a | append b | remove at once, move here", SURE),
)
"""Worlds of a thousand states."""
SMALL = (
    world("append a | append b | seal"),
    world("append a | append b | delete, create"),
    world("bound append a | bound append b | delete, create"),
    world("append a | bound append b | overwrite"),
    world("append a | bound append b | overwrite with a line"),
    world("append a | append b | overwrite, append d", SURE_AND_ONCE),
    world("append a, append b | append c | remove at once, move here", SURE_AND_ONCE),
    world("append a | append b | mark, unmark"),
    world("append a | append b | recovery r of a"),
    world("append ab | append c | append d", SURE_AND_ONCE),
    world("append a | append b | guarded append c", Bounds(faults=0, asks_max=2)),
    world("append a | append b | acquire, owner's append c, release", SURE),
    world("append a | append b | mark, bury, create", SURE),
    world("append a | append b | delete, remove tombstone, create, append c", SURE_AND_ONCE),
)
"""Worlds of up to 30,000 states."""
LARGE = (
    world("append a, append b | append c, append d"),
    world("append a, append b | append c", Bounds(faults=2, asks_max=2)),
    world("append a | append b | append c"),
    world("append a | append b | append c", TIGHT),
    world(
        "append a, append b | append c | append d",
        Bounds(lines_max=2, attempts_max=1, carried_max=1, states_max=6_000_000),
    ),
    world("append a | append b | guarded append c, guarded append d", TIGHT),
    world("append a | append b | overwrite, overwrite"),
    world("append a | append b, append c | remove at once, create, append d", SURE_AND_ONCE),
    world("append ab | append c | append d", ONCE),
    world("append a | append b | guarded append c", Bounds(asks_max=2)),
    world("append a | append b | acquire, owner's append c, release"),
    world("append a | append b | mark, bury, create"),
    world("append a | append b | delete, remove tombstone, create, append c", ONCE),
    world("append a | append b, append c | append d", Bounds(attempts_max=1, states_max=6_000_000), window=2),
)
"""Worlds of up to some million states, for a quiet hour: ``python -m tests.models.asks_scenarios``.

States, and seconds of one busy processor (November 2026): two overwrites 58,185, 8 s; guarded appends and lines for two
251,594, 39 s; removed at once, made again, then appends 364,700, 54 s; three writers, lines for two 185,705, 29 s.
"""
BREAKS = (
    world("append a | append b, append c", SURE, line_forbids=False),
    world(
        "bound append a | append b | delete, remove tombstone, create, append c",
        SURE,
        incarnation_forbids=False,
        window=99,
    ),
    world(
        "bound append a | append b | overwrite", SURE, incarnation_forbids=False, others_void=False, floor_forbids=False
    ),
    world(
        "append a | append b | acquire, owner's append c",
        SURE,
        guarded_carries_none=False,
        state_forbids=False,
        floor_forbids=False,
    ),
    world("append a | append b | recovery r of a", SURE, others_void=False),
    world("append a | append b | recovery r of a", SURE, floor_forbids=False),
    world("append a | recovery r of a", SURE, guarded_carries_none=False),
    world("append a | append b, append c", SURE, carried_get_lines=False),
    world("append a | append b", SURE, judges_first=False),
    world("append a | append b | append c", SURE, one_number=False),
    world("append a | append b", SURE, one_content=False),
    world("append a | append b", gives_up="deletes"),
    world("append a | append b", SURE, gives_up="timeout"),
    world("append a | append b, append c", SURE, withdraws_by_higher_number=False),
    world("append a | append b | acquire, release", SURE, error_needs_void_ask=False, others_void=False),
    world("append a | append b | guarded append c", gives_up="attempt"),
    world("append a | append b", own_data_first=False),
)
"""Each breaks within 2,000 states, without the rule that it names."""
BREAKS_LATE = (
    world("append a | append b, append d | append c", SURE_AND_TIGHT, evictions_count=False),
    world("append a | append b | overwrite", lines_survive=False),
    world("append a | append b, append c | remove at once, move here", SURE_AND_ONCE, judges_incarnation="no line"),
    world("append a | append b | remove at once, move here", SURE, judges_incarnation="any line"),
    world("append a | append b, append c | append d", SURE_AND_TIGHT, eviction_forbids=False),
    world("append a | append b, append c | append d", SURE_AND_TIGHT, judges_eviction=False),
    world("append a, append b | append c, append d", SURE_AND_ONCE, highest_only=False),
    world("append a | append b, append c | append d", TIGHT, base_is_judged=False),
    world("append a | delete, remove tombstone, create, append c, append d", judges_age=False),
)
"""These break only after thousands of states."""

if __name__ == "__main__":
    for scenario in (*QUICK, *SMALL, *LARGE, *BREAKS, *BREAKS_LATE):
        print(scenario, explore(scenario), flush=True)
