"""A model of appends by tips: writers that append again and again in place, and never look unless a rule sends them.

The lines are judged by the code's own `Tip`. A file is an inode under the header's name. Others seal it, roll it, make
it anew at the same number of an inode, give it a second name, die in the middle of a record, lose an answer, and put
records of another incarnation behind it, as a tool does that restores a copy in place. A record may follow on another
file than its writer knows, which it reads whole under the lock.

Rules of the protocol: P6.2, P6.6, P6.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from rollingfs.format.records import Record, Tip
from tests.models.explore import explore

WRITERS = ("a", "b")
APPENDS_MAX = 2
RECORDS_MAX = 3
FAULTS_MAX = 2
"""Faults of one course, of different kinds."""
RULES = ("same_inode", "same_mark", "own_incarnation", "spares_torn", "one_name", "own_is_doubt", "room")
INSTEAD = ("is_open", "is_same_segment", "is_not_mine", "has_room")
"""Of another file. Each rule is left out by a mutant."""


class File(NamedTuple):
    inode: int = 0
    segment: str = "0" * 36
    base: int = 1
    """The version of its text; the tail has as many bytes."""
    folded: tuple[tuple[str, int], ...] = ()
    """The commits that its text has: writers and numbers."""
    records: tuple[tuple[str, str, int, int], ...] = ()
    """The incarnation, the writer, the number and the version of each record, of one byte."""
    is_sealed: bool = False
    is_torn: bool = False
    """Whether the rest of a record is at its end."""
    is_linked: bool = False
    """Whether a backup shares the inode."""

    @property
    def whole(self) -> tuple[tuple[str, str, int, int], ...]:
        """The records that a reader finds."""
        count = next((at for at, one in enumerate(self.records) if one[0] != self.segment), len(self.records))
        return self.records[:count]

    @property
    def version(self) -> int:
        return self.base + len(self.whole)

    @property
    def names(self) -> tuple[tuple[str, int], ...]:
        """The commits that a reader finds."""
        return (*self.folded, *((writer, number) for _, writer, number, _ in self.whole))

    @property
    def room(self) -> int:
        is_whole = not self.is_torn and self.whole == self.records
        return RECORDS_MAX - len(self.records) if is_whole else 0

    def mark(self, count: int) -> object:
        return self.records[count - 1] if 0 < count <= len(self.records) else (self.segment, self.base)


class Writer(NamedTuple):
    left: int = APPENDS_MAX
    number: int = 1
    file: int = 0
    segment: str = ""
    count: int = 0
    """Records of the file before its tip."""
    mark: object = None
    tip: Tip | None = None
    in_doubt: bool = False
    """Whether its last answer was lost."""


class World(NamedTuple):
    file: File = File()
    writers: tuple[Writer, ...] = (Writer(), Writer())
    faults: frozenset[str] = frozenset()
    """What others have done."""
    fault: str = ""

    def with_writer(self, nth: int, **changes: object) -> World:
        now = self.writers[nth]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(writers=tuple(now if at == nth else one for at, one in enumerate(self.writers)))


def looked(world: World, nth: int) -> World:
    """A look: judges the append in doubt, and takes a new tip."""
    file, me = world.file, world.writers[nth]
    if me.in_doubt and (WRITERS[nth], me.number) in file.names:
        world = acknowledged(world, nth)
    count, room = len(file.whole), RECORDS_MAX - len(file.records) - file.is_torn
    tip = None if file.is_sealed or room <= 0 else Tip(file.version, file.version, room, 99, 0)
    known = {"file": file.inode, "segment": file.segment, "count": count, "mark": file.mark(count), "tip": tip}
    return world.with_writer(nth, in_doubt=False, **known)


def acknowledged(world: World, nth: int) -> World:
    me = world.writers[nth]
    return world.with_writer(nth, left=me.left - 1, number=me.number + 1)


def append(world: World, nth: int, rules: frozenset[str]) -> Iterator[World]:
    """All under the lock: what is behind the tip decides whether the record follows; else a look does."""
    me, file, name = world.writers[nth], world.file, WRITERS[nth]
    if me.tip is None:
        again = looked(world, nth)
        if again != world:
            yield again
        return
    is_there = me.count <= len(file.records) and me.mark == file.mark(me.count)
    if (file.inode != me.file and "same_inode" in rules) or (not is_there and "same_mark" in rules):
        tip = Tip(file.version, file.version, file.room, 99, 0)
        yield from follow(world, nth, tip, rules) if is_free(file, me, name, rules) else [looked(world, nth)]
        return
    others = file.records[me.count :]
    as_file = [  # as if the checksums of all lines were right
        Record(version, writer, number, 0, b"x").encode(file.segment if "own_incarnation" not in rules else segment)
        for segment, writer, number, version in others
    ]
    writer = name if "own_is_doubt" in rules else "nobody"
    tip = me.tip
    if as_file:
        found = tip.behind(b"".join(as_file), file.segment, writer)
        if found is None:
            yield looked(world, nth)
            return
        tip = found
    yield from follow(world, nth, tip, rules)


def is_free(file: File, me: Writer, name: str, rules: frozenset[str]) -> bool:
    """Whether a record may follow on a file that its writer did not know, without a look."""
    return not (
        ("is_open" in rules and file.is_sealed)
        or ("is_same_segment" in rules and file.segment != me.segment)
        or ("is_not_mine" in rules and (name, me.number) in file.names)
        or ("has_room" in rules and file.room <= 0)
    )


def follow(world: World, nth: int, tip: Tip, rules: frozenset[str]) -> Iterator[World]:
    """A record at the end, unless what is there forbids it."""
    me, file, name = world.writers[nth], world.file, WRITERS[nth]
    if "room" not in rules or "has_room" not in rules:
        tip = replace(tip, room=9)
    follows = tip.record(name, me.number, 0, b"x")
    if follows is None or (file.is_torn and "spares_torn" in rules) or (file.is_linked and "one_name" in rules):
        yield looked(renewed(world, file, is_sealed=file.is_sealed), nth)
        return
    record, tip = follows
    made = file._replace(records=(*file.records, (file.segment, name, me.number, record.version)))
    after = world._replace(file=made, fault=problem_of(file, record, me))
    known = {"tip": tip, "count": len(made.records), "mark": made.mark(len(made.records))}
    known |= {"file": file.inode, "segment": file.segment}
    yield acknowledged(after.with_writer(nth, **known), nth)
    if (
        "lost" not in world.faults and len(world.faults) < FAULTS_MAX
    ):  # the client sends the same append again, behind whatever is there
        yield after._replace(faults=world.faults | {"lost"}).with_writer(nth, in_doubt=True)
    if "dead" not in world.faults and len(world.faults) < FAULTS_MAX:
        torn = world._replace(file=file._replace(is_torn=True), faults=world.faults | {"dead"})
        yield torn.with_writer(nth, left=0)


def problem_of(file: File, record: Record, me: Writer) -> str:
    """What is wrong with a record that comes at the end of a file."""
    if me.in_doubt and file.segment != me.segment:
        return "a segment takes an append that another may have"
    if file.is_sealed:
        return "a sealed segment takes bytes"
    if file.is_torn or len(file.whole) < len(file.records):
        return "acknowledged, and no reader finds it"
    if file.is_linked:
        return "the backup has changed"
    if record.version != file.version + 1:
        return f"version {record.version} follows on {file.version}"
    return "more records than a file takes" if len(file.records) >= RECORDS_MAX else ""


def renewed(world: World, file: File, **changes: object) -> World:
    """Another file in its place, with all whole records folded in."""
    new = File(file.inode + 1, file.segment, file.version, file.names, is_sealed=file.is_sealed)
    return world._replace(file=new._replace(**changes))  # type: ignore[arg-type]


def steps(world: World, rules: frozenset[str]) -> Iterator[World]:
    for nth, writer in enumerate(world.writers):
        if writer.left:
            yield from append(world, nth, rules)
    file = world.file
    for fault in {"seal", "roll", "remake", "link", "foreign"} - world.faults if len(world.faults) < FAULTS_MAX else ():
        after = world._replace(faults=world.faults | {fault})
        if fault == "seal":
            yield renewed(after, file, is_sealed=True)
        elif fault == "roll":
            yield renewed(after, file)
        elif fault == "remake":  # the disk gives the number of the inode again
            yield after._replace(file=File(file.inode, "1" * 36, 1))
        elif fault == "link":
            yield after._replace(file=file._replace(is_linked=True))
        elif not file.is_sealed and not file.is_torn:
            other = ("2" * 36, "c", 1, file.version + 1)
            yield after._replace(file=file._replace(records=(*file.records, other)))


def problem(world: World) -> str:
    names = world.file.names
    if len(set(names)) < len(names):
        return f"twice: {names}"
    return world.fault


def walk(rules: frozenset[str]) -> tuple[int, str]:
    """The number of states, and the first problem in one of them; empty if there is none."""
    known, _, why = explore(World(), lambda world: steps(world, rules), problem)
    return len(known), why
