"""A model of appends in place: all courses of writers that extend a header, one that replaces it, a reader, and faults.

A file is an inode: the records that its cache shows, the rest of a torn one, and which records would survive a loss of
power. A name leads to an inode, in memory and on the disk. Power may be lost in every state. A file then keeps what was
flushed, and any subset of what was neither flushed nor lost by a failed flush; reading stops where one is missing.

Rules of the protocol: P6.1 to P6.14.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.models.explore import explore

WRITERS, REPLACER, READER = ("a", "b"), "c", "r"
TRIES_MAX = 2
OPEN = ("locked", "written", "flushing")
"""States in which a writer has the file open."""


@dataclass(frozen=True)
class Rules:
    """What makes appends in place safe; each field is one rule, which a mutant leaves out."""

    flushes: bool = True
    """A record is acknowledged after the flush of the file."""
    flushes_name: bool = True
    """Who extends a file whose name it does not know to be durable flushes the folder, too."""
    compares_under_lock: bool = True
    """The token is compared under the lock."""
    flushes_new_file: bool = True
    """The new file is flushed before it gets the name."""
    spares_torn: bool = True
    """No record comes behind the rest of a torn one."""
    cuts_back: bool = True
    """Who is refused by the disk cuts off what it has written before it says that nothing was written."""
    token_of_records: bool = True
    """A token names the last whole record; without the rule, inode and size."""
    repairs: bool = True
    """Who is told of a failed flush puts a new file in place."""
    repairs_name: bool = True
    """It flushes the folder, also where another was faster with a new file."""
    marks: bool = True
    """It marks the file first, so that nobody extends that, or believes its flush, if the disk refuses the new file."""
    holds_file: bool = True
    """The file is open from before the write until after the flush."""
    adapts_same_file: bool = True
    """A record follows unseen on records of the file that its writer has looked at, and on nothing else."""
    numbers_anew: bool = True
    """It gets the version behind the last of them."""
    judges_durable: bool = True
    """A look that says that the append took place is flushed before it counts."""


class File(NamedTuple):
    records: tuple[str, ...] = ()
    torn: str = ""
    """Whose record was begun behind them."""
    durable: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    """Records that the cache shows, that count as written, and that never reach the disk."""
    is_marked: bool = False
    """Whether a flush of it has failed, and the disk has refused a new file."""


class Party(NamedTuple):
    state: str = "idle"
    file: int = 0
    token: object = None
    value: tuple[str, ...] = ()
    tries: int = 0
    is_told: bool = False
    """Whether the next flush of its open file fails, because that of another has failed."""


class World(NamedTuple):
    files: tuple[File, ...] = (File(("0",), "", frozenset("0")),)
    names: tuple[int, ...] = (0,)
    """The files that may have the name after a loss of power; the last one has it now."""
    lock: str = ""
    parties: tuple[tuple[str, Party], ...] = tuple((name, Party()) for name in (*WRITERS, REPLACER, READER))
    known: frozenset[tuple[str, int]] = frozenset({("a", 0), ("b", 0)})
    """Which process knows of which file that its name is durable."""
    acknowledged: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()
    """Of whom it was said that nothing was written."""
    excused: frozenset[str] = frozenset()
    """Who wrote between a failed flush and the mark, if no new file came: the window that the protocol names."""
    has_failed: bool = False
    fault: str = ""

    @property
    def now(self) -> int:
        return self.names[-1]

    def party(self, name: str) -> Party:
        return dict(self.parties)[name]

    def with_party(self, name: str, **changes: object) -> World:
        now = self.party(name)._replace(**changes)  # type: ignore[arg-type]
        return self._replace(parties=tuple((one, now if one == name else party) for one, party in self.parties))

    def with_file(self, index: int, **changes: object) -> World:
        files = list(self.files)
        files[index] = files[index]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(files=tuple(files))


def token(world: World, rules: Rules) -> object:
    file = world.files[world.now]
    if rules.token_of_records:
        return world.now, file.records
    return world.now, len(file.records) + bool(file.torn)


def after_power_loss(world: World) -> Iterator[tuple[str, ...]]:
    """All that may be read after power is lost in this state."""
    for named in world.names:
        file = world.files[named]
        free = [one for one in file.records if one not in file.durable and one not in file.lost]
        for count in range(len(free) + 1):
            for kept in itertools.combinations(free, count):
                yield tuple(itertools.takewhile({*file.durable, *kept}.__contains__, file.records))


def problem(world: World) -> str:
    """What is wrong in a state; empty if nothing is."""
    shown = world.files[world.now].records
    if world.fault:
        return world.fault
    if len(set(shown)) < len(shown):
        return f"twice: {shown}"
    if world.refused & set(shown):
        return f"written, though it was said that nothing was: {shown}"
    if set(world.acknowledged) - set(shown):
        return f"acknowledged {world.acknowledged}, and there is {shown}"
    if any(party.state == "repair" or party.is_told for _, party in world.parties):
        return ""  # the window that the protocol names
    for found in after_power_loss(world):
        if set(world.acknowledged) - world.excused - set(found):
            return f"acknowledged {world.acknowledged}, and after a loss of power there is {found}"
    return ""


def steps(world: World, rules: Rules, *, fails: bool) -> Iterator[World]:
    for name in (*WRITERS, REPLACER):
        yield from write(world, name, rules)
    yield from failing(world) if fails else reading(world, rules)


def look(world: World, name: str, rules: Rules, state: str) -> World:
    value = world.files[world.now].records
    return world.with_party(name, state=state, file=world.now, token=token(world, rules), value=value)


def failing(world: World) -> Iterator[World]:
    """The system cannot write a file back: each process is told that has it open, and nobody who opens it later.

    (Linux tells the next one that opens the file if none of them lives to flush it: as if that one had been there.)
    """
    file = world.files[world.now]
    gone = frozenset(file.records) - file.durable
    has_open = [name for name in WRITERS if world.party(name).state in OPEN and world.party(name).file == world.now]
    if world.has_failed or not gone or not has_open:
        return
    after = world.with_file(world.now, lost=gone)._replace(has_failed=True)
    for name in has_open:
        after = after.with_party(name, is_told=True)
    yield after


def write(world: World, name: str, rules: Rules) -> Iterator[World]:
    me = world.party(name)
    free = world._replace(lock="")
    if me.state == "idle":
        yield look(world, name, rules, "looked")
    elif me.state == "looked" and not world.lock:
        yield world._replace(lock=name).with_party(name, state="locked")
    elif me.state == "locked":
        file = world.files[world.now]
        is_other = token(world, rules) != me.token
        may_follow = name != REPLACER and follows(world, me, rules)
        if rules.compares_under_lock and is_other and not may_follow:
            again = me.tries + 1
            yield free.with_party(name, state="idle" if again < TRIES_MAX else "over", tries=again)
        elif name == REPLACER:
            yield from renewed(world, name, (*me.value, name), "naming", rules)
        elif is_other and REPLACER in set(file.records) - set(me.value):
            yield world._replace(fault=f"{name} follows on a change that it has not seen")
        elif is_other and rules.compares_under_lock and not rules.numbers_anew:
            yield world._replace(fault=f"two records make one version: that of {name}, and another")
        elif file.is_marked or (file.torn and rules.spares_torn):
            yield from renewed(world, name, (*file.records, name), "naming", rules)
        else:
            here = world.now if rules.compares_under_lock else me.file
            old = world.files[here]
            readable = (*old.records, name) if not old.torn else old.records
            yield world.with_file(here, records=readable).with_party(name, state="written", file=here)
            if not old.torn:
                yield world.with_file(here, torn=name).with_party(name, state="torn", file=here)
    elif me.state == "torn":
        yield free.with_party(name, state="dead")
        cut = free.with_file(me.file, torn="") if rules.cuts_back else free
        yield cut._replace(refused=cut.refused | {name}).with_party(name, state="over")
        if not rules.cuts_back:  # all its bytes were written, but for the answer
            file = world.files[me.file]
            late = free.with_file(me.file, torn="", records=(*file.records, name))
            yield late._replace(refused=late.refused | {name}).with_party(name, state="over")
    elif me.state == "written":
        yield free.with_party(name, state="flushing")
        if not me.is_told:
            yield free.with_party(name, state="dead")
    elif me.state == "flushing":
        yield from flushing(world, name, rules)
        if not me.is_told:
            yield world.with_party(name, state="dead")
            yield world.with_party(name, state="judging")
    elif me.state == "naming":
        yield named(world, name, me.file).with_party(name, state="over")
        yield world.with_party(name, state="dead")
    elif me.state == "judging":
        if name in world.files[world.now].records and world.files[world.now].is_marked:
            yield from renewed(world, name, world.files[world.now].records, "naming", rules)
        elif name in world.files[world.now].records:
            yield from flushing(world.with_party(name, file=world.now), name, rules, judges=True)
        else:
            yield world.with_party(name, state="over")
    elif me.state == "repair" and not world.lock:
        if world.now == me.file:
            made = next(renewed(world._replace(lock=name), name, world.files[me.file].records, "over", rules))
            yield made._replace(names=made.names[-1:])
            file = world.files[me.file]  # the disk refuses it
            refused = world.with_file(me.file, is_marked=rules.marks).with_party(name, state="over")
            behind = itertools.dropwhile(lambda one: one not in file.lost, file.records)
            yield refused._replace(excused=frozenset(behind))
        else:  # another has put a new file in place, and may have died before it flushed the folder
            names = world.names[-1:] if rules.repairs_name else world.names
            yield world._replace(names=names).with_party(name, state="over")


def follows(world: World, me: Party, rules: Rules) -> bool:
    """Whether a record may follow, although others have come since the look."""
    file = world.files[world.now]
    is_same = me.file == world.now or not rules.adapts_same_file
    return is_same and not file.torn and file.records[: len(me.value)] == me.value


def flushing(world: World, name: str, rules: Rules, *, judges: bool = False) -> Iterator[World]:
    me = world.party(name)
    file = world.files[me.file]
    if not (rules.judges_durable if judges else rules.flushes):
        yield named(world, name, me.file, flushes=False).with_party(name, state="over")
        return
    if me.is_told and rules.holds_file:
        yield world.with_party(name, state="repair" if rules.repairs else "dead", is_told=False)
        return
    world = world.with_party(name, is_told=False)  # by a file that was opened later, nobody is told
    flushed = world.with_file(me.file, durable=file.durable | (frozenset(file.records) - file.lost))
    if judges or (rules.flushes_name and (name, me.file) not in world.known):
        yield flushed.with_party(name, state="naming")
    else:
        yield named(flushed, name, me.file, flushes=False).with_party(name, state="over")


def named(world: World, name: str, file: int, *, flushes: bool = True) -> World:
    """Acknowledge; with a flush of the folder before."""
    names = world.names[-1:] if flushes else world.names
    return world._replace(names=names, known=world.known | {(name, file)}, acknowledged=(*world.acknowledged, name))


def renewed(world: World, name: str, records: tuple[str, ...], state: str, rules: Rules) -> Iterator[World]:
    """A new file with all records gets the name, and the lock is given back."""
    new = File(records, "", frozenset(records) if rules.flushes_new_file else frozenset())
    index = len(world.files)
    made = world._replace(files=(*world.files, new), names=(*world.names, index), lock="")
    yield made.with_party(name, state=state, file=index)


def reading(world: World, rules: Rules) -> Iterator[World]:
    me = world.party(READER)
    if me.state == "idle":
        yield look(world, READER, rules, "looked")
    elif me.state == "looked" and token(world, rules) == me.token and me.value != world.files[world.now].records:
        yield world._replace(fault=f"a reader believes {me.value}, and there is {world.files[world.now].records}")


def walk(rules: Rules, *, fails: bool = False) -> tuple[int, str]:
    """The number of states, and the first problem in one of them; empty if there is none."""
    known, _, why = explore(World(), lambda world: steps(world, rules, fails=fails), problem)
    return len(known), why
