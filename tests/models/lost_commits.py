"""Explicit-state model of commits on a store that lets two replaces win: no commit is lost in silence.

Writers look, replace on the header that they saw, and judge each header that they read by the rule of the code. The
store compares a token and acts later, for as many requests as `World.lies` allows. A hand may put an older header back,
another owner may begin a new incarnation, and old commit lines are evicted.

Rules of the protocol: P14.14 to P14.18.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from rollingfs.format.header import Commit
from rollingfs.format.lost import Acknowledged, Trace, trace
from tests.models.explore import explore as visit

LINES_MAX = 2
WRITERS = ("a", "b", "c")


@dataclass(frozen=True)
class Head:
    """A header: what the rule reads, and the commits that are in it."""

    segment: str
    version: int = 1
    commits: tuple[Commit, ...] = ()
    evicted: int = 0
    history: tuple[tuple[str, int], ...] = ()

    def commit_of(self, writer: str) -> Commit | None:
        return next((line for line in self.commits if line.writer == writer), None)

    def after(self, writer: str, number: int) -> "Head":
        version = self.version + 1
        stay = [line for line in self.commits if line.writer != writer]
        gone, stay = stay[: max(len(stay) + 1 - LINES_MAX, 0)], stay[max(len(stay) + 1 - LINES_MAX, 0) :]
        evicted = max([self.evicted, *(line.version for line in gone)])
        lines = (*stay, Commit(writer, number, version))
        return replace(self, version=version, commits=lines, evicted=evicted, history=(*self.history, (writer, number)))


@dataclass(frozen=True)
class Writer:
    """What one writer knows; `passed` is a request whose token the store has compared, to carry it out later."""

    left: int
    number: int = 0
    seen: Head | None = None
    own: Acknowledged | None = None
    having: Head | None = None
    """The newest header that had its last commit."""
    passed: Head | None = None
    told: tuple[int, ...] = ()
    warned: tuple[int, ...] = ()


@dataclass(frozen=True)
class World:
    head: Head
    writers: tuple[tuple[str, Writer], ...]
    lies: int = 0
    restores: int = 0
    overwrites: int = 0
    saved: Head | None = None
    has_lied: bool = False
    has_restored: bool = False
    silent: str = ""


def steps(world: World, rules: frozenset[str]) -> Iterator[World]:
    """Every world that one step makes."""
    for name, writer in world.writers:
        put = partial(_with, world, name)
        yield _looked(world, name, writer, rules)
        if writer.passed is not None:
            made = writer.passed.after(name, writer.number + 1)
            lied = world.has_lied or world.head != writer.passed
            yield replace(_committed(world, name, writer, writer.passed, made), has_lied=lied)
        elif writer.seen is not None and writer.left and writer.seen == world.head:
            yield _committed(world, name, writer, writer.seen, writer.seen.after(name, writer.number + 1))
            if world.lies:
                yield replace(put(replace(writer, passed=writer.seen)), lies=world.lies - 1)
    if world.restores and world.saved is None:
        yield replace(world, saved=world.head)
    if world.restores and world.saved is not None and world.saved != world.head:
        yield replace(world, head=world.saved, restores=world.restores - 1, has_restored=True)
    if world.overwrites:
        new = Head(world.head.segment + "'")  # deleted, collected and made anew
        yield replace(world, head=new, overwrites=world.overwrites - 1)


def _with(world: World, name: str, writer: Writer) -> World:
    return replace(world, writers=tuple((one, writer if one == name else other) for one, other in world.writers))


def _committed(world: World, name: str, writer: Writer, base: Head, made: Head) -> World:
    own = Acknowledged(made.segment, name, writer.number + 1, made.version, base.commit_of(name), 0, 0)
    after = replace(writer, left=writer.left - 1, number=own.number, seen=made, own=own, having=made, passed=None)
    return replace(_with(world, name, after), head=made)


def _looked(world: World, name: str, writer: Writer, rules: frozenset[str]) -> World:
    head, own = world.head, writer.own
    after = replace(writer, seen=head)
    silent = world.silent
    if own is not None and writer.having is not None:
        found = _trace(own, writer.having, head, rules)
        if found is Trace.KEPT:
            is_there = (name, own.number) in head.history or head.segment != own.segment
            silent = silent or ("" if is_there else f"{name} is not told that {own.number} is lost")
            after = replace(after, having=head) if head.segment == own.segment else replace(after, own=None)
        else:
            told = "told" if found is Trace.LOST else "warned"
            after = replace(after, own=None, having=None, **{told: (*getattr(after, told), own.number)})
            if found is Trace.LOST and not world.has_lied and not world.has_restored:
                silent = silent or f"{name} is told that {own.number} is lost on a right store"
    return replace(_with(world, name, after), silent=silent)


def _trace(own: Acknowledged, seen: Head, found: Head, rules: frozenset[str]) -> Trace:
    line = found.commit_of(own.writer)
    if "incarnation" not in rules and found.segment != own.segment:
        found = replace(found, segment=own.segment)
    if "evicted" not in rules and line is None and found.evicted >= own.version:
        found = replace(found, evicted=0)
    if "number" not in rules and line is not None:
        return Trace.KEPT
    return trace(own, seen, found)  # type: ignore[arg-type]


def explore(rules: frozenset[str], **world: int) -> tuple[int, str, World | None]:
    """Visit every world: how many there are, and why the first bad one is bad."""
    writers = tuple((name, Writer(2 if name == "a" else 1)) for name in WRITERS)
    first = World(Head("s"), writers, **world)
    known, bad, why = visit(first, lambda one: steps(one, rules), lambda one: one.silent)
    return len(known), why, bad
