"""A model of a header and its lock on a disk that two mounts show, each of which remembers what a name was.

A mount answers by what it remembers, even of a file that another mount has replaced or removed, or denies such a name;
or it asks the server. Only the rules of the protocol make it ask. Links, renames and removals are the server's own, and
locks belong to files, not to names.

Rules of the protocol: P6.18, P6.22, P6.35.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.models.explore import explore

NOTHING = 0
CASTS = (
    (("a", "commit", 0), ("b", "commit", 1), ("", "delete", 1), ("", "repair", 0)),
    (("a", "commit", 1), ("", "delete", 1), ("", "delete", 0), ("", "create", 0)),
)
"""What each party appends, if anything, what it does, and on which mount. Who deletes creates again afterwards."""
TRIES_MAX = 2


@dataclass(frozen=True)
class Rules:
    """What makes the commits of two machines safe; each field is one rule, which a mutant leaves out."""

    commit_asks_header: bool = True
    """A commit asks the server for the header's name, once it has the lock."""
    commit_asks_lock: bool = True
    """Before the rename it asks for the lock's name: another may have deleted the segment and its lock."""
    delete_asks_header: bool = True
    delete_asks_lock: bool = True
    repair_asks_header: bool = True
    """Who puts a new file in the place of one whose flush failed asks whether that file still has the name."""
    creates_by_link: bool = True
    """A new header is linked to its name, which the server refuses where there is one."""


class Party(NamedTuple):
    state: str = "idle"
    base: int = NOTHING
    lock: int = NOTHING
    tries: int = 0


class World(NamedTuple):
    files: tuple[frozenset[str], ...] = (frozenset(), frozenset())
    """The appends that each header file has; the first stands for no file."""
    header: int = 1
    lock: int = 1
    locks: int = 1
    """How many files the lock's name has led to."""
    held: frozenset[int] = frozenset()
    """Files of locks that somebody holds."""
    headers_known: tuple[int, int] = (1, 1)
    locks_known: tuple[int, int] = (1, 1)
    """What each mount remembers."""
    parties: tuple[Party, ...] = (Party(),) * 4
    acknowledged: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    """Appends that the deleter saw in the header that it deleted."""

    def party(self, index: int, **changes: object) -> World:
        parties = list(self.parties)
        parties[index] = parties[index]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(parties=tuple(parties))

    def knows(self, mount: int, *, header: int | None = None, lock: int | None = None) -> World:
        headers, locks = list(self.headers_known), list(self.locks_known)
        headers[mount] = headers[mount] if header is None else header
        locks[mount] = locks[mount] if lock is None else lock
        return self._replace(headers_known=tuple(headers), locks_known=tuple(locks))

    def let_go(self, index: int, state: str) -> World:
        party = self.parties[index]
        return self._replace(held=self.held - {party.lock}).party(index, state=state, lock=NOTHING)

    def put(self, mount: int, content: frozenset[str]) -> World:
        """Give the header's name to a new file."""
        world = self._replace(files=(*self.files, content), header=len(self.files))
        return world.knows(mount, header=world.header)


def looks(world: World, mount: int, *, asks: bool) -> Iterator[tuple[int, World]]:
    """What a mount may answer to a look at the header's name."""
    yield world.header, world.knows(mount, header=world.header)
    known = world.headers_known[mount]
    if not asks and known != world.header:
        yield known, world
        yield NOTHING, world


def locked(world: World, index: int, mount: int) -> Iterator[World]:
    """Open the lock's file, which a missing name makes, and take the lock."""
    for lock in {world.lock, world.locks_known[mount]} - {NOTHING}:
        if lock not in world.held:
            there = world if lock != world.lock else world.knows(mount, lock=lock)
            yield there._replace(held=world.held | {lock}).party(index, state="locked", lock=lock)
    if not world.lock:
        new = world._replace(lock=world.locks + 1, locks=world.locks + 1, held=world.held | {world.locks + 1})
        yield new.knows(mount, lock=new.lock).party(index, state="locked", lock=new.lock)


def steps(world: World, rules: Rules, cast: tuple[tuple[str, str, int], ...]) -> Iterator[World]:
    asks_header = {
        "commit": rules.commit_asks_header,
        "delete": rules.delete_asks_header,
        "repair": rules.repair_asks_header,
    }
    for index, (name, kind, mount) in enumerate(cast):
        party = world.parties[index]
        asks_lock = rules.delete_asks_lock if kind == "delete" else rules.commit_asks_lock
        again = "idle" if party.tries < TRIES_MAX else "done"
        if party.state == "idle":
            for found, after in looks(world, mount, asks=False):
                if kind == "create":
                    yield after.party(index, state="done" if found else "creating")
                elif found:
                    yield after.party(index, state="based", base=found, tries=party.tries + 1)
        elif party.state == "based":
            yield from locked(world, index, mount)
        elif party.state == "locked":
            for found, after in looks(world, mount, asks=asks_header[kind]):
                yield after.party(index, state="compared") if found == party.base else after.let_go(index, again)
        elif party.state == "compared":
            for lock in {world.lock} if asks_lock else {world.lock, world.locks_known[mount]}:
                after = world.knows(mount, lock=lock)
                yield after.party(index, state="sure") if lock == party.lock else after.let_go(index, again)
        elif party.state == "sure" and kind == "delete":
            gone = world._replace(header=NOTHING, deleted=world.deleted | world.files[party.base])
            yield gone.knows(mount, header=NOTHING).party(index, state="removing")
        elif party.state == "sure":
            own = frozenset({name} - {""})
            after = world.put(mount, world.files[party.base] | own)
            yield after._replace(acknowledged=world.acknowledged | own).let_go(index, "done")
        elif party.state == "removing":
            yield world._replace(lock=NOTHING).knows(mount, lock=NOTHING).let_go(index, "creating")
        elif party.state == "creating" and not (world.header and rules.creates_by_link):
            yield world.put(mount, frozenset()).party(index, state="done")


def problem(world: World) -> str:
    there = world.files[world.header]
    return "" if world.acknowledged <= there | world.deleted else f"lost: {world.acknowledged - there - world.deleted}"


def walk(rules: Rules) -> tuple[int, str]:
    """The number of states, and what is wrong with the first bad one."""
    count = 0
    for cast in CASTS:
        states, _, why = explore(World(), lambda world, cast=cast: steps(world, rules, cast), problem)  # type: ignore[misc]
        count += len(states)
        if why:
            break
    return count, why
