"""The scenarios of the model of asks: worlds in which all must hold, and worlds that a rule left out must break."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.models.asks import Broken, Rules, World
from tests.models.asks_steps import steps
from tests.models.asks_world import APPENDS, Bounds, Model, Op, check


def app(ids: str) -> Op:
    return Op("append", tuple(ids))


def bound(ids: str) -> Op:
    return Op("bound append", tuple(ids))


def guarded(ids: str) -> Op:
    return Op("guarded append", tuple(ids))


def owner(ids: str) -> Op:
    return Op("owner's append", tuple(ids))


def recovery(of: str, ids: str) -> Op:
    return Op("recovery", tuple(ids), instead=of)


CREATE, DELETE, OVERWRITE, OVERWRITE_WITH_A_LINE = map(Op, ("create", "delete", "overwrite", "overwrite with a line"))
SEAL, ACQUIRE, RELEASE, MARK, UNMARK, BURY = map(Op, ("seal", "acquire", "release", "mark", "unmark", "bury"))
REMOVE_TOMBSTONE, REMOVE_AT_ONCE, MOVE_HERE = map(Op, ("remove tombstone", "remove at once", "move here"))


@dataclass(frozen=True)
class Scenario:
    """A world to explore."""

    name: str
    scripts: Sequence[Sequence[Op]]
    without: Mapping[str, Any] = field(default_factory=dict)
    """The rules that are left out."""
    bounds: Bounds = field(default_factory=Bounds)

    def __str__(self) -> str:
        return self.name


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
    model = Model(scenario.scripts, Rules(**scenario.without), scenario.bounds)
    first = model.begin()
    came: dict[World, tuple[World, str] | None] = {first: None}
    waiting, carried, stuck = deque([first]), 0, 0
    while waiting and len(came) <= scenario.bounds.states_max:
        world = waiting.popleft()
        last, nexts = "", []
        try:
            for index in range(len(scenario.scripts)):
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
            for client, script in zip(world.clients, scenario.scripts, strict=True)
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
    Scenario("a seal", [[app("a")], [app("b")], [SEAL]], bounds=SURE),
    Scenario("recovery of a dead asker", [[app("a")], [app("b")], [recovery("a", "r")]], bounds=SURE),
    Scenario("removed at once, made again", [[app("a")], [app("b")], [REMOVE_AT_ONCE, CREATE]], bounds=SURE_AND_ONCE),
    Scenario("removed at once, another moved here", [[app("a")], [app("b")], [REMOVE_AT_ONCE, MOVE_HERE]], bounds=SURE),
)
"""Worlds of a thousand states."""
SMALL = (
    Scenario("a seal, one fault", [[app("a")], [app("b")], [SEAL]]),
    Scenario("delete, create", [[app("a")], [app("b")], [DELETE, CREATE]]),
    Scenario("delete, create, bound handles", [[bound("a")], [bound("b")], [DELETE, CREATE]]),
    Scenario("overwrite", [[app("a")], [bound("b")], [OVERWRITE]]),
    Scenario("overwrite that writes an asks line all the same", [[app("a")], [bound("b")], [OVERWRITE_WITH_A_LINE]]),
    Scenario("an overwrite, then an append", [[app("a")], [app("b")], [OVERWRITE, app("d")]], bounds=SURE_AND_ONCE),
    Scenario(
        "removed at once after an append of the asker",
        [[app("a"), app("b")], [app("c")], [REMOVE_AT_ONCE, MOVE_HERE]],
        bounds=SURE_AND_ONCE,
    ),
    Scenario("a merge, undone", [[app("a")], [app("b")], [MARK, UNMARK]]),
    Scenario("recovery of a dead asker, one fault", [[app("a")], [app("b")], [recovery("a", "r")]]),
    Scenario("a group of two", [[app("ab")], [app("c")], [app("d")]], bounds=SURE_AND_ONCE),
    Scenario("a guarded append between", [[app("a")], [app("b")], [guarded("c")]], bounds=Bounds(faults=0, asks_max=2)),
    Scenario("an owner, released", [[app("a")], [app("b")], [ACQUIRE, owner("c"), RELEASE]], bounds=SURE),
    Scenario("a merge, buried, made again", [[app("a")], [app("b")], [MARK, BURY, CREATE]], bounds=SURE),
    Scenario(
        "delete, tombstone removed, create, append",
        [[app("a")], [app("b")], [DELETE, REMOVE_TOMBSTONE, CREATE, app("c")]],
        bounds=SURE_AND_ONCE,
    ),
)
"""Worlds of up to 30,000 states."""
LARGE = (
    Scenario("two writers, two appends each", [[app("a"), app("b")], [app("c"), app("d")]]),
    Scenario("two faults, asks twice", [[app("a"), app("b")], [app("c")]], bounds=Bounds(faults=2, asks_max=2)),
    Scenario("three writers", [[app("a")], [app("b")], [app("c")]]),
    Scenario("three writers, lines for two", [[app("a")], [app("b")], [app("c")]], bounds=TIGHT),
    Scenario(
        "two appends, lines for two, a third writer",
        [[app("a"), app("b")], [app("c")], [app("d")]],
        bounds=Bounds(lines_max=2, carried_max=1, attempts_max=1, states_max=6_000_000),
    ),
    Scenario("lines for two, evicted", [[app("a")], [app("b")], [guarded("c"), guarded("d")]], bounds=TIGHT),
    Scenario("two overwrites", [[app("a")], [app("b")], [OVERWRITE, OVERWRITE]]),
    Scenario(
        "removed at once, made again, then appends",
        [[app("a")], [app("b"), app("c")], [REMOVE_AT_ONCE, CREATE, app("d")]],
        bounds=SURE_AND_ONCE,
    ),
    Scenario("a group of two, one fault", [[app("ab")], [app("c")], [app("d")]], bounds=ONCE),
    Scenario("a guarded append, one fault", [[app("a")], [app("b")], [guarded("c")]], bounds=Bounds(asks_max=2)),
    Scenario("an owner, released, one fault", [[app("a")], [app("b")], [ACQUIRE, owner("c"), RELEASE]]),
    Scenario("a merge, buried, made again, one fault", [[app("a")], [app("b")], [MARK, BURY, CREATE]]),
    Scenario(
        "delete, tombstone removed, create, append, one fault",
        [[app("a")], [app("b")], [DELETE, REMOVE_TOMBSTONE, CREATE, app("c")]],
        bounds=ONCE,
    ),
    Scenario(
        "a window of two versions",
        [[app("a")], [app("b"), app("c")], [app("d")]],
        without={"window": 2},
        bounds=Bounds(attempts_max=1, states_max=6_000_000),
    ),
)
"""Worlds of up to some million states, for a quiet hour: ``python -m tests.models.asks_scenarios``.

States, and seconds of one busy processor (November 2026): two overwrites 58,185, 8 s; lines for two, evicted 251,594,
39 s; removed at once, made again, then appends 364,700, 54 s; three writers, lines for two 185,705, 29 s.
"""
BREAKS = (
    Scenario("a line forbids", [[app("a")], [app("b"), app("c")]], {"line_forbids": False}, SURE),
    Scenario(
        "another incarnation forbids",
        [[bound("a")], [app("b")], [DELETE, REMOVE_TOMBSTONE, CREATE, app("c")]],
        {"incarnation_forbids": False, "window": 99},
        SURE,
    ),
    Scenario(
        "another incarnation forbids, also where nothing is void",
        [[bound("a")], [app("b")], [OVERWRITE]],
        {"incarnation_forbids": False, "others_void": False, "floor_forbids": False},
        SURE,
    ),
    Scenario(
        "an owner's append carries no asks",
        [[app("a")], [app("b")], [ACQUIRE, owner("c")]],
        {"guarded_carries_none": False, "state_forbids": False, "floor_forbids": False},
        SURE,
    ),
    Scenario("a recovery voids asks", [[app("a")], [app("b")], [recovery("a", "r")]], {"others_void": False}, SURE),
    Scenario("the floor forbids", [[app("a")], [app("b")], [recovery("a", "r")]], {"floor_forbids": False}, SURE),
    Scenario(
        "a guarded append carries no asks", [[app("a")], [recovery("a", "r")]], {"guarded_carries_none": False}, SURE
    ),
    Scenario("a carried ask gets a line", [[app("a")], [app("b"), app("c")]], {"carried_get_lines": False}, SURE),
    Scenario("no attempt on a header not judged", [[app("a")], [app("b")]], {"judges_first": False}, SURE),
    Scenario("the same number", [[app("a")], [app("b")], [app("c")]], {"one_number": False}, SURE),
    Scenario("the same data", [[app("a")], [app("b")]], {"one_content": False}, SURE),
    Scenario("deleting an ask withdraws nothing", [[app("a")], [app("b")]], {"gives_up": "deletes"}),
    Scenario("waiting withdraws nothing", [[app("a")], [app("b")]], {"gives_up": "timeout"}, SURE),
    Scenario(
        "a withdrawal has a higher number",
        [[app("a")], [app("b"), app("c")]],
        {"withdraws_by_higher_number": False},
        SURE,
    ),
    Scenario(
        "an error needs a void ask",
        [[app("a")], [app("b")], [ACQUIRE, RELEASE]],
        {"error_needs_void_ask": False, "others_void": False},
        SURE,
    ),
    Scenario("an error needs a dead attempt", [[app("a")], [app("b")], [guarded("c")]], {"gives_up": "attempt"}),
    Scenario("a repeat has the same bytes", [[app("a")], [app("b")]], {"own_data_first": False}),
)
"""Each leaves out the rule that its name says, and breaks within 2,000 states."""
BREAKS_LATE = (
    Scenario(
        "a line that goes counts",
        [[app("a")], [app("b"), app("d")], [app("c")]],
        {"evictions_count": False},
        SURE_AND_TIGHT,
    ),
    Scenario(
        "lines survive a new incarnation",
        [[app("a")], [app("b")], [OVERWRITE]],
        {"lines_survive": False},
    ),
    Scenario(
        "the asker judges incarnations",
        [[app("a")], [app("b"), app("c")], [REMOVE_AT_ONCE, MOVE_HERE]],
        {"judges_incarnation": "no line"},
        SURE_AND_ONCE,
    ),
    Scenario(
        "of another incarnation only the line of before proves anything",
        [[app("a")], [app("b")], [REMOVE_AT_ONCE, MOVE_HERE]],
        {"judges_incarnation": "any line"},
        SURE,
    ),
    Scenario(
        "an eviction forbids",
        [[app("a")], [app("b"), app("c")], [app("d")]],
        {"eviction_forbids": False},
        SURE_AND_TIGHT,
    ),
    Scenario(
        "the asker judges evictions",
        [[app("a")], [app("b"), app("c")], [app("d")]],
        {"judges_eviction": False},
        SURE_AND_TIGHT,
    ),
    Scenario(
        "one ask of each writer, the highest",
        [[app("a"), app("b")], [app("c"), app("d")]],
        {"highest_only": False},
        SURE_AND_ONCE,
    ),
    Scenario(
        "the base of an ask was judged",
        [[app("a")], [app("b"), app("c")], [app("d")]],
        {"base_is_judged": False},
        TIGHT,
    ),
    Scenario(
        "an operation older than D ends unknown",
        [[app("a")], [DELETE, REMOVE_TOMBSTONE, CREATE, app("c"), app("d")]],
        {"judges_age": False},
    ),
)
"""These break only after thousands of states."""

if __name__ == "__main__":
    for scenario in (*QUICK, *SMALL, *LARGE, *BREAKS, *BREAKS_LATE):
        print(scenario, explore(scenario), flush=True)
