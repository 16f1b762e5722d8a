"""A model of deleting and moving a whole segment on a disk, walked through all courses beside writers and creators.

A header lies at one of two places. The lock of a place is a file, which a party makes if it is missing, and which goes
with the header. A party that has compared a header under the lock acts on that very header, or on nothing: a commit
replaces it, a delete removes it, a move puts it where nothing is. A writer may have uploaded a chunk without the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from tests.models.explore import explore

HERE, THERE = 0, 1
Verb = Literal["write", "upload", "remove", "move", "create"]
TRIES_MAX = 2


@dataclass(frozen=True)
class Party:
    verb: Verb
    place: int
    state: Literal[
        "begin", "looked", "opened", "locked", "same", "missed", "compared", "alone", "free", "done", "clearing", "over"
    ] = "begin"
    token: int = 0
    """Of the header that it has seen, and compares."""
    lock: int = 0
    """The lock file that it has open."""
    tries: int = 0
    did: bool = False


@dataclass(frozen=True)
class World:
    parties: tuple[Party, ...]
    headers: tuple[int, int] = (1, 0)
    """Their tokens; 0 for none."""
    locks: tuple[int, int] = (1, 0)
    """The lock files; 0 for none."""
    held: frozenset[int] = frozenset()
    """Lock files, perhaps without a name by now, that are locked."""
    chunk: Literal["none", "there", "lost"] = "none"
    """What an upload left in the folder of the first place."""
    last: int = 1
    """The newest token, and the newest lock file."""
    fault: str = ""


@dataclass(frozen=True)
class Rule:
    """What makes the step safe; each field is one part of it."""

    looks_at_lock_again: bool = True
    """A party that got a lock looks whether the file still has the lock's name."""
    compares_under_lock: bool = True
    removes_lock_last: bool = True
    """The header goes first, then its lock."""
    spares_target: bool = True
    """The rename fails over a header that appeared."""
    spares_files: bool = True
    """The folder goes only if nothing is in it."""


def put(values: tuple[int, int], place: int, value: int) -> tuple[int, int]:
    return (value, values[1]) if place == HERE else (values[0], value)


def with_party(world: World, index: int, **changes: object) -> World:
    parties = list(world.parties)
    parties[index] = replace(parties[index], **changes)  # type: ignore[arg-type]
    return replace(world, parties=tuple(parties))


def steps(world: World, rule: Rule) -> Iterator[World]:
    for index, party in enumerate(world.parties):
        yield from step(world, index, party, rule)


def step(world: World, index: int, party: Party, rule: Rule) -> Iterator[World]:
    header, lock = world.headers[party.place], world.locks[party.place]
    if party.state == "begin":
        yield from begin(world, index, party, header)
    elif party.state == "looked" and not header:  # no lock and no folder are made for a header that is gone
        yield again(world, index, party)
    elif party.state == "looked":
        new = world.last + 1
        made = world if lock else replace(world, last=new, locks=put(world.locks, party.place, new))
        yield with_party(made, index, state="opened", lock=made.locks[party.place])
    elif party.state == "opened" and party.lock not in world.held:
        locked = replace(world, held=world.held | {party.lock})
        yield with_party(locked, index, state="locked" if rule.looks_at_lock_again else "same")
    elif party.state == "locked":
        if lock == party.lock:
            yield with_party(world, index, state="same")
        else:
            yield with_party(released(world, party), index, state="looked", lock=0)
    elif party.state == "same" and not header:  # the lock is the party's own
        yield with_party(world, index, state="missed")
    elif party.state == "missed":
        yield again(released(without_lock(world, party, rule), party), index, party)
    elif party.state == "same":
        if header == party.token or not rule.compares_under_lock:
            yield with_party(world, index, state="compared")
        else:
            yield again(released(world, party), index, party)
    elif party.state == "compared":
        yield from act(world, index, party, rule)
    elif party.state in ("alone", "free"):
        yield from take(world, index, party, rule)
    elif party.state == "done" and party.verb in ("remove", "move") and not header:
        yield with_party(world, index, state="clearing")
    elif party.state in ("done", "clearing"):
        rest = without_lock(world, party, rule) if party.state == "clearing" else world
        yield with_party(released(rest, party), index, state="over", did=True)


def begin(world: World, index: int, party: Party, header: int) -> Iterator[World]:
    if party.tries == TRIES_MAX:
        return
    if party.verb == "create":
        if not header:
            made = replace(world, last=world.last + 1, headers=put(world.headers, party.place, world.last + 1))
            yield with_party(made, index, state="over", did=True)
    elif party.verb == "upload" and world.chunk == "none":
        yield replace(world, chunk="there")
    elif header:
        yield with_party(world, index, state="looked", token=header)


def again(world: World, index: int, party: Party) -> World:
    return with_party(world, index, state="begin", lock=0, token=0, tries=party.tries + 1)


def released(world: World, party: Party) -> World:
    return replace(world, held=world.held - {party.lock})


def without_lock(world: World, party: Party, rule: Rule) -> World:
    """Unlink the lock, whose name may lead to another file by now, and the folder."""
    chunk = "lost" if world.chunk == "there" and party.place == HERE and not rule.spares_files else world.chunk
    return replace(world, locks=put(world.locks, party.place, 0), chunk=chunk)


def act(world: World, index: int, party: Party, rule: Rule) -> Iterator[World]:
    """The step after the comparison: a commit, or a look whether the segment has files."""
    header = world.headers[party.place]
    if party.verb in ("write", "upload"):
        fault = "" if header == party.token else "a commit replaced what it had not compared"
        if party.verb == "upload" and world.chunk != "there":
            fault = "a commit names a file that is gone"
        committed = replace(world, last=world.last + 1, headers=put(world.headers, party.place, world.last + 1))
        yield with_party(replace(committed, fault=world.fault or fault), index, state="done")
    elif party.place == HERE and world.chunk == "there":
        yield with_party(released(world, party), index, state="over")  # it takes the way with a tombstone, or marks
    elif rule.removes_lock_last:
        yield with_party(world, index, state="alone")
    else:
        yield with_party(without_lock(world, party, rule), index, state="alone")


def take(world: World, index: int, party: Party, rule: Rule) -> Iterator[World]:
    """Remove the header, or move it to where a look has found nothing."""
    header = world.headers[party.place]
    if party.verb == "move" and party.state == "alone":
        if world.headers[THERE]:
            yield with_party(released(world, party), index, state="over")
        else:
            yield with_party(world, index, state="free")
        return
    fault = "" if header == party.token else "a header went that was not compared"
    gone = replace(world, headers=put(world.headers, party.place, 0))
    if party.verb == "move":
        if world.headers[THERE] and rule.spares_target:
            yield with_party(released(world, party), index, state="over")
            return
        fault = fault or ("a move replaced a header" if world.headers[THERE] else "")
        gone = replace(gone, headers=put(gone.headers, THERE, header))  # with its token
    yield with_party(replace(gone, fault=world.fault or fault), index, state="done")


def walk(rule: Rule, *parties: Party) -> tuple[str, set[tuple[bool, ...]]]:
    """The first fault in any course, and which parties did what they wanted, in all courses."""
    first = World(parties)
    known, _, fault = explore(first, lambda world: steps(world, rule), lambda world: world.fault)
    return fault, {tuple(party.did for party in world.parties) for world in known}


WRITERS = Party("write", HERE), Party("write", HERE)
REMOVAL = Party("remove", HERE), Party("create", HERE), *WRITERS
MOVE = Party("move", HERE), Party("create", THERE), Party("write", HERE), Party("write", THERE)
UPLOAD = Party("remove", HERE), Party("create", HERE), Party("upload", HERE)
CROSSING = Party("move", HERE), Party("remove", HERE), Party("create", HERE), Party("write", HERE)
COURSES = [REMOVAL, MOVE, UPLOAD, CROSSING]


@pytest.mark.parametrize("parties", COURSES, ids=["removal", "move", "upload", "crossing"])
def test_every_party_acts_on_the_header_that_it_compared(parties: tuple[Party, ...]) -> None:
    fault, outcomes = walk(Rule(), *parties)
    assert fault == ""
    for index in range(len(parties)):
        assert {did[index] for did in outcomes} == {False, True}, "each can succeed, and need not"


@pytest.mark.parametrize(
    ("mutant", "fault"),
    [
        (Rule(looks_at_lock_again=False), "not compared"),
        (Rule(compares_under_lock=False), "not compared"),
        (Rule(removes_lock_last=False), "not compared"),
        (Rule(spares_target=False), "a move replaced a header"),
        (Rule(spares_files=False), "names a file that is gone"),
    ],
    ids=str,
)
def test_each_part_of_the_step_is_needed(mutant: Rule, fault: str) -> None:
    assert any(fault in walk(mutant, *parties)[0] for parties in COURSES)
