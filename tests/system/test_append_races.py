"""Processes append to one segment, are killed and stopped at any moment, beside truncates, seals, owners and guards.

Every acknowledged append is there once, whole, in an order that agrees with real time; no failed one is there; what was
acknowledged is live or truncated. With commits that are shared and not, mixed.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.examples import MANY, nightly, slowly
from tests.support.races import Arena, Member, Race
from tests.support.servers import new_bucket

TURNS, ASKS = Member(), Member(shares=True)
WAY = (ASKS, TURNS, ASKS)
"""How processes commit; those of a race are of these kinds in turn."""
WAYS = {"mixed": WAY, "turns": (TURNS,)}

pytestmark = pytest.mark.timeout(900)  # a machine that does much else


def cast(way: tuple[Member, ...], count: int, **changes: Any) -> list[Member]:
    """So many processes of the kinds of a way, in turn."""
    return [replace(way[index % len(way)], **changes) for index in range(count)]


def others(way: tuple[Member, ...], *roles: str) -> list[Member]:
    return [replace(way[index % len(way)], role=role, pause_s=0.05) for index, role in enumerate(roles)]


def turmoil(race: Race, way: tuple[Member, ...], count: int, events: int) -> None:
    """Kill or stop one process after the other, until each event has been survived; then seal."""
    race.join(*cast(way, count), *others(way, "truncate", "guarded", "look"))
    race.all_go_on(race.living)
    for nth in range(events):
        victim = race.chance.choice(race.living)
        race.nap()
        if nth % 2:
            race.kill(victim)
            race.all_go_on(race.of("append"))
            race.join(race.members[victim])
        else:
            race.stop(victim)
            if race.arena.protocol == "file":
                race.nap()
            else:
                race.all_go_on(name for name in race.of("append") if name != victim)
            race.wake(victim)
            race.all_go_on([victim])
    race.all_go_on(race.living)
    seal_and_check(race, way)


def seal_and_check(race: Race, way: tuple[Member, ...]) -> None:
    """Seal while all append: they end by it."""
    race.ended(race.join(*others(way[:1], "seal")))
    race.ended(race.of("append", "guarded"))
    race.finish()
    calls = race.check()
    assert any(call.told == "failed" for call in calls if call.kind == "append"), "the seal refused nobody"


@pytest.fixture
def disk(tmp_path: Path) -> Arena:
    return Arena("file", {}, str(tmp_path / "data" / "segment"))


def _s3(options: dict[str, Any]) -> Arena:
    return Arena("s3", options, f"{new_bucket(options)}/{uuid.uuid4().hex}")


def _azure(options: dict[str, Any]) -> Arena:
    from tests.support.clouds import new_container

    return Arena("az", options, f"{new_container(options)}/segment")


def _google(options: dict[str, Any]) -> Arena:
    from tests.support.clouds import new_google_bucket

    return Arena("gs", options, f"{new_google_bucket(options)}/segment")


STORES: dict[str, Callable[[dict[str, Any]], Arena]] = {
    "seaweed": _s3,
    "minio": _s3,
    "azurite": _azure,
    "fake_google": _google,
}
"""The fixture of a store's options, and what makes a segment there. A further store is a line."""
MARKS = {"minio": [pytest.mark.s3], "azurite": [pytest.mark.clouds], "fake_google": [pytest.mark.clouds], "seaweed": []}


@pytest.fixture(params=[pytest.param(name, marks=MARKS[name]) for name in STORES])
def store(request: pytest.FixtureRequest) -> Arena:
    """A segment on each of the stores."""
    return STORES[request.param](request.getfixturevalue(request.param))


def test_killed_processes_harm_nobody_and_what_they_left_can_be_collected(disk: Arena, tmp_path: Path) -> None:
    with Race(disk, tmp_path) as race:
        *victims, _ = race.join(*cast(WAY, 4))
        race.all_go_on(race.living)
        for victim in victims:
            race.nap()
            race.kill(victim)
            race.all_go_on(race.living)
        race.finish()
        calls = race.check()
    by_ack = sorted((call.ended, call.began) for call in calls if call.told == "ok")
    assert any(after < ended for (ended, _), (_, after) in itertools.pairwise(by_ack)), "no two ever overlapped"
    fs = disk.open()
    content = fs.cat_file(disk.path)
    fs.collect(disk.path, grace=0)
    assert fs.cat_file(disk.path) == content


@pytest.mark.parametrize("count", [*slowly(2, 16), *nightly(8)])
def test_a_race_on_disk(disk: Arena, tmp_path: Path, count: int) -> None:
    """Some ask for commits that are shared, which a disk ignores."""
    with Race(disk, tmp_path, seed=count) as race:
        turmoil(race, WAY, count, events=4)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["mixed", *nightly("turns")])
def test_a_race_on_a_store(store: Arena, tmp_path: Path, way: str) -> None:
    with Race(store, tmp_path) as race:
        turmoil(race, WAYS[way], 5, events=4 if MANY else 2)


@pytest.mark.slow
def test_owners_come_and_go_and_those_whom_they_fence_are_told_so(seaweed: dict[str, Any], tmp_path: Path) -> None:
    with Race(_s3(seaweed), tmp_path) as race:
        race.join(*cast(WAY, 4), *others(WAY, "hold", "look"))
        race.all_go_on(race.living, 2)
        for _ in range(3 if MANY else 1):
            [owner] = race.of("hold")
            race.nap()
            race.kill(owner)  # the segment may stay held: the next owner takes it over
            race.join(race.members[owner])
            race.all_go_on(race.living)
        race.finish()
        calls = race.check()
    assert any(call.told == "failed" for call in calls if call.kind == "append"), "the owners fenced nobody"
