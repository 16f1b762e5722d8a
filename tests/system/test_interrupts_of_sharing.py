"""Ctrl-C at any line of an append whose bytes others may carry: the reported outcome is true, and stays true."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rollingfs import AppendInterrupted
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from tests.commit.test_sharing_share import PATH, World
from tests.support.schedules import COMMIT, at_line, interrupt

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

ROOM = tuple(f"rollingfs/commit/sharing/{name}.py" for name in ("share", "others", "files"))
CORE = (*COMMIT, *ROOM, "rollingfs/format/asks.py")
LINES_MAX = 5000


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()  # coroutines that were never awaited, while their warning is ignored


def aside(world: World, under_way: list[bool]) -> None:
    """Ctrl-C hits no line of what another client does meanwhile."""
    plan = world.asking.plan

    def planned(*args: Any, before: Callable[[], object], **options: Any) -> object:
        def act() -> None:
            was = under_way[:]
            under_way.clear()
            try:
                before()
            finally:
                under_way.extend(was)

        return plan(*args, before=act, **options)

    world.asking.plan = planned  # type: ignore[method-assign, assignment]


def carried(world: World) -> None:
    world.while_it_waits(world.carry)


def carried_late(world: World) -> None:
    world.while_it_waits(lambda: None)
    world.while_it_waits(world.carry)


def in_vain(world: World) -> None:
    world.is_quiet = True


def lost_race(world: World) -> None:
    world.compete()
    world.is_quiet = True
    world.asking.plan("replace", "$header", before=world.carry)


def voided(world: World) -> None:
    world.while_it_waits(lambda: drive(world.other.segments.append(PATH, b"other")))
    world.while_it_waits(world.carry)


def sealed(world: World) -> None:
    world.while_it_waits(lambda: drive(world.other.segments.seal(PATH)))


def run_interrupted(world: World, course: Callable[[World], None], nth: int, *files: str) -> tuple[object, list[str]]:
    """What Ctrl-C at the nth line of an append of ``mine`` made of it, and the line."""
    under_way = [True]
    aside(world, under_way)
    course(world)
    with at_line(nth, interrupt, *files, when=lambda: under_way) as met:
        try:
            Bridge(world.asking).run(world.asker.segments.append(PATH, b"mine"), commits=PATH)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - it is the outcome
            return error, met
        finally:
            under_way.clear()
    return "committed", met


def check_outcome(world: World, outcome: object, met: list[str]) -> None:
    """Check what was told, after other commits that could carry the bytes."""
    world.asking.plans.clear()
    if not world.header.sealed:
        world.carry(b"later")
        world.carry(b"later")
        world.compete()
        world.is_quiet = True
        offset = world.ask(b"next")
        assert world.content[offset:][:4] == b"next", met
    told = outcome.outcome if isinstance(outcome, AppendInterrupted) else outcome
    if isinstance(told, Exception):
        told = "not committed"
    counts = {"committed": [1], "not committed": [0]}
    assert world.content.count(b"mine") in counts.get(str(told), [0, 1]), (met, outcome)


def check_every_line(monkeypatch: pytest.MonkeyPatch, course: Callable[[World], None], *files: str) -> int:
    """Check Ctrl-C at each line; returns their number."""
    for nth in range(1, LINES_MAX):
        with monkeypatch.context() as patch:
            world = World(patch)
            outcome, met = run_interrupted(world, course, nth, *files)
            check_outcome(world, outcome, met)
        if not met:
            return nth
    raise AssertionError("the append has too many lines")


def test_wherever_ctrl_c_hits_the_carrier_of_an_append_its_outcome_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_every_line(monkeypatch, carried, "rollingfs/commit/sharing/share.py") > 20


@pytest.mark.slow
@pytest.mark.parametrize("course", [carried, carried_late, in_vain, lost_race, voided, sealed])
def test_wherever_ctrl_c_hits_an_append_that_others_may_carry_its_outcome_is_true(
    monkeypatch: pytest.MonkeyPatch, course: Callable[[World], None]
) -> None:
    assert check_every_line(monkeypatch, course, *CORE) > 100
