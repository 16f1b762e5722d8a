"""The scenarios of the model of asks: worlds in which all must hold, and worlds that a rule left out must break."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.models.asks import Broken, Rules, World
from tests.models.asks_steps import steps
from tests.models.asks_world import APPENDS, Bounds, Model, Op, check


@dataclass(frozen=True)
class Scenario:
    """A world to explore."""

    name: str
    text: str
    """What each client does: ``append a, append b | seal``; ``recovery r of a`` appends r unless a is there."""
    without: Mapping[str, Any] = field(default_factory=dict)
    """The rules that are left out."""
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def scripts(self) -> Sequence[Sequence[Op]]:
        return [[op_of(text) for text in client.split(", ")] for client in self.text.split(" | ")]

    def __str__(self) -> str:
        return self.name


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
    Scenario("a seal", "append a | append b | seal", bounds=SURE),
    Scenario("recovery of a dead asker", "append a | append b | recovery r of a", bounds=SURE),
    Scenario("removed at once, made again", "append a | append b | remove at once, create", bounds=SURE_AND_ONCE),
    Scenario("removed at once, another moved here", "append a | append b | remove at once, move here", bounds=SURE),
)
"""Worlds of a thousand states."""
SMALL = (
    Scenario("a seal, one fault", "append a | append b | seal"),
    Scenario("delete, create", "append a | append b | delete, create"),
    Scenario("delete, create, bound handles", "bound append a | bound append b | delete, create"),
    Scenario("overwrite", "append a | bound append b | overwrite"),
    Scenario("overwrite that writes an asks line all the same", "append a | bound append b | overwrite with a line"),
    Scenario("an overwrite, then an append", "append a | append b | overwrite, append d", bounds=SURE_AND_ONCE),
    Scenario(
        "removed at once after an append of the asker",
        "append a, append b | append c | remove at once, move here",
        bounds=SURE_AND_ONCE,
    ),
    Scenario("a merge, undone", "append a | append b | mark, unmark"),
    Scenario("recovery of a dead asker, one fault", "append a | append b | recovery r of a"),
    Scenario("a group of two", "append ab | append c | append d", bounds=SURE_AND_ONCE),
    Scenario("a guarded append between", "append a | append b | guarded append c", bounds=Bounds(faults=0, asks_max=2)),
    Scenario("an owner, released", "append a | append b | acquire, owner's append c, release", bounds=SURE),
    Scenario("a merge, buried, made again", "append a | append b | mark, bury, create", bounds=SURE),
    Scenario(
        "delete, tombstone removed, create, append",
        "append a | append b | delete, remove tombstone, create, append c",
        bounds=SURE_AND_ONCE,
    ),
)
"""Worlds of up to 30,000 states."""
LARGE = (
    Scenario("two writers, two appends each", "append a, append b | append c, append d"),
    Scenario("two faults, asks twice", "append a, append b | append c", bounds=Bounds(faults=2, asks_max=2)),
    Scenario("three writers", "append a | append b | append c"),
    Scenario("three writers, lines for two", "append a | append b | append c", bounds=TIGHT),
    Scenario(
        "two appends, lines for two, a third writer",
        "append a, append b | append c | append d",
        bounds=Bounds(lines_max=2, carried_max=1, attempts_max=1, states_max=6_000_000),
    ),
    Scenario("lines for two, evicted", "append a | append b | guarded append c, guarded append d", bounds=TIGHT),
    Scenario("two overwrites", "append a | append b | overwrite, overwrite"),
    Scenario(
        "removed at once, made again, then appends",
        "append a | append b, append c | remove at once, create, append d",
        bounds=SURE_AND_ONCE,
    ),
    Scenario("a group of two, one fault", "append ab | append c | append d", bounds=ONCE),
    Scenario("a guarded append, one fault", "append a | append b | guarded append c", bounds=Bounds(asks_max=2)),
    Scenario("an owner, released, one fault", "append a | append b | acquire, owner's append c, release"),
    Scenario("a merge, buried, made again, one fault", "append a | append b | mark, bury, create"),
    Scenario(
        "delete, tombstone removed, create, append, one fault",
        "append a | append b | delete, remove tombstone, create, append c",
        bounds=ONCE,
    ),
    Scenario(
        "a window of two versions",
        "append a | append b, append c | append d",
        without={"window": 2},
        bounds=Bounds(attempts_max=1, states_max=6_000_000),
    ),
)
"""Worlds of up to some million states, for a quiet hour: ``python -m tests.models.asks_scenarios``.

States, and seconds of one busy processor (November 2026): two overwrites 58,185, 8 s; lines for two, evicted 251,594,
39 s; removed at once, made again, then appends 364,700, 54 s; three writers, lines for two 185,705, 29 s.
"""
BREAKS = (
    Scenario("a line forbids", "append a | append b, append c", {"line_forbids": False}, SURE),
    Scenario(
        "another incarnation forbids",
        "bound append a | append b | delete, remove tombstone, create, append c",
        {"incarnation_forbids": False, "window": 99},
        SURE,
    ),
    Scenario(
        "another incarnation forbids, also where nothing is void",
        "bound append a | append b | overwrite",
        {"incarnation_forbids": False, "others_void": False, "floor_forbids": False},
        SURE,
    ),
    Scenario(
        "an owner's append carries no asks",
        "append a | append b | acquire, owner's append c",
        {"guarded_carries_none": False, "state_forbids": False, "floor_forbids": False},
        SURE,
    ),
    Scenario("a recovery voids asks", "append a | append b | recovery r of a", {"others_void": False}, SURE),
    Scenario("the floor forbids", "append a | append b | recovery r of a", {"floor_forbids": False}, SURE),
    Scenario("a guarded append carries no asks", "append a | recovery r of a", {"guarded_carries_none": False}, SURE),
    Scenario("a carried ask gets a line", "append a | append b, append c", {"carried_get_lines": False}, SURE),
    Scenario("no attempt on a header not judged", "append a | append b", {"judges_first": False}, SURE),
    Scenario("the same number", "append a | append b | append c", {"one_number": False}, SURE),
    Scenario("the same data", "append a | append b", {"one_content": False}, SURE),
    Scenario("deleting an ask withdraws nothing", "append a | append b", {"gives_up": "deletes"}),
    Scenario("waiting withdraws nothing", "append a | append b", {"gives_up": "timeout"}, SURE),
    Scenario(
        "a withdrawal has a higher number", "append a | append b, append c", {"withdraws_by_higher_number": False}, SURE
    ),
    Scenario(
        "an error needs a void ask",
        "append a | append b | acquire, release",
        {"error_needs_void_ask": False, "others_void": False},
        SURE,
    ),
    Scenario("an error needs a dead attempt", "append a | append b | guarded append c", {"gives_up": "attempt"}),
    Scenario("a repeat has the same bytes", "append a | append b", {"own_data_first": False}),
)
"""Each leaves out the rule that its name says, and breaks within 2,000 states."""
BREAKS_LATE = (
    Scenario(
        "a line that goes counts",
        "append a | append b, append d | append c",
        {"evictions_count": False},
        SURE_AND_TIGHT,
    ),
    Scenario("lines survive a new incarnation", "append a | append b | overwrite", {"lines_survive": False}),
    Scenario(
        "the asker judges incarnations",
        "append a | append b, append c | remove at once, move here",
        {"judges_incarnation": "no line"},
        SURE_AND_ONCE,
    ),
    Scenario(
        "of another incarnation only the line of before proves anything",
        "append a | append b | remove at once, move here",
        {"judges_incarnation": "any line"},
        SURE,
    ),
    Scenario(
        "an eviction forbids", "append a | append b, append c | append d", {"eviction_forbids": False}, SURE_AND_TIGHT
    ),
    Scenario(
        "the asker judges evictions",
        "append a | append b, append c | append d",
        {"judges_eviction": False},
        SURE_AND_TIGHT,
    ),
    Scenario(
        "one ask of each writer, the highest",
        "append a, append b | append c, append d",
        {"highest_only": False},
        SURE_AND_ONCE,
    ),
    Scenario(
        "the base of an ask was judged", "append a | append b, append c | append d", {"base_is_judged": False}, TIGHT
    ),
    Scenario(
        "an operation older than D ends unknown",
        "append a | delete, remove tombstone, create, append c, append d",
        {"judges_age": False},
    ),
)
"""These break only after thousands of states."""

if __name__ == "__main__":
    for scenario in (*QUICK, *SMALL, *LARGE, *BREAKS, *BREAKS_LATE):
        print(scenario, explore(scenario), flush=True)
