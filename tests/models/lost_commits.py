"""Explicit-state model of commits on a store that lets two replaces win: no commit is lost in silence.

Writers look, replace on the header that they saw, and judge each header that they read by the rule of the code. The
store compares a token and acts later, for as many requests as `World.lies` allows. A writer may append or overwrite. A
hand may put an older header back, others may delete, collect and make anew, and old commit lines are evicted.

Rules of the protocol: P14.14 to P14.18.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from rollingfs.format.commit_lines import Acknowledged, Trace, trace
from rollingfs.format.header import AGE_S_MAX, Commit
from tests.models.explore import explore as visit

LINES_MAX = 2
WRITERS = ("a", "b", "c")


class Head(NamedTuple):
    """A header: what the rule reads, and the commits that are in it."""

    segment: str
    version: int = 1
    commits: tuple[Commit, ...] = ()
    evicted: int = 0
    history: tuple[tuple[str, int], ...] = ()
    life: int = 0
    """How often it was made anew."""

    def commit_of(self, writer: str) -> Commit | None:
        return next((line for line in self.commits if line.writer == writer), None)

    def after(self, writer: str, number: int, *, renews: bool) -> "Head":
        version = self.version + 1
        stay = [line for line in self.commits if line.writer != writer]
        gone, stay = stay[: max(len(stay) + 1 - LINES_MAX, 0)], stay[max(len(stay) + 1 - LINES_MAX, 0) :]
        evicted = max([self.evicted, *(line.version for line in gone)])
        lines = (*stay, Commit(writer, number, version))
        segment = f"{writer}{number}" if renews else self.segment
        history = (*self.history, (writer, number))
        return self._replace(segment=segment, version=version, commits=lines, evicted=evicted, history=history)


class Writer(NamedTuple):
    """What one writer knows; `passed` is a request whose token the store has compared, to carry it out later."""

    left: int
    number: int = 0
    seen: Head | None = None
    own: Acknowledged | None = None
    having: Head | None = None
    """The newest header that had its last commit."""
    passed: tuple[Head, Head] | None = None
    """The header that the store has compared the token with, and the new header."""
    told: tuple[int, ...] = ()
    warned: tuple[int, ...] = ()


class World(NamedTuple):
    head: Head
    writers: tuple[tuple[str, Writer], ...]
    now_s: float = 0.0
    """Time passes while a deletion waits to be collected."""
    lies: int = 0
    restores: int = 0
    made_anew: int = 0
    renews: int = 0
    """Overwrites to come."""
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
            lied = world.has_lied or world.head != writer.passed[0]
            yield _committed(world, name, writer, *writer.passed)._replace(has_lied=lied)
        elif writer.seen is not None and writer.left and writer.seen == world.head:
            for renews in range(min(world.renews, 1) + 1):
                made, left = writer.seen.after(name, writer.number + 1, renews=bool(renews)), world.renews - renews
                yield _committed(world, name, writer, writer.seen, made)._replace(renews=left)
                if world.lies:
                    yield put(writer._replace(passed=(writer.seen, made)))._replace(lies=world.lies - 1, renews=left)
    if world.restores and world.saved is None:
        yield world._replace(saved=world.head)
    if world.restores and world.saved is not None and world.saved != world.head:
        yield world._replace(head=world.saved, restores=world.restores - 1, has_restored=True)
    if world.made_anew:
        new = Head(world.head.segment + "'", life=world.head.life + 1)
        yield world._replace(head=new, made_anew=world.made_anew - 1, now_s=world.now_s + AGE_S_MAX + 1)


def _with(world: World, name: str, writer: Writer) -> World:
    return world._replace(writers=tuple((one, writer if one == name else other) for one, other in world.writers))


def _committed(world: World, name: str, writer: Writer, base: Head, made: Head) -> World:
    before, number = base.commit_of(name), writer.number + 1
    own = Acknowledged(made.segment, base.segment, name, number, made.version, before, 0, 0, world.now_s)
    after = writer._replace(left=writer.left - 1, number=own.number, seen=made, own=own, having=made, passed=None)
    return _with(world, name, after)._replace(head=made)


def _looked(world: World, name: str, writer: Writer, rules: frozenset[str]) -> World:
    head, own = world.head, writer.own
    after = writer._replace(seen=head)
    silent = world.silent
    if own is not None and writer.having is not None:
        found = _trace(own, writer.having, head, world.now_s, rules)
        if found is Trace.KEPT:
            is_anew = head.life != writer.having.life
            is_there = (name, own.number) in head.history or is_anew
            silent = silent or ("" if is_there else f"{name} is not told that {own.number} is lost")
            after = after._replace(own=None) if is_anew else after._replace(having=head)
        else:
            told = "told" if found is Trace.LOST else "warned"
            after = after._replace(own=None, having=None, **{told: (*getattr(after, told), own.number)})
            if not world.has_lied and not world.has_restored:
                silent = silent or f"{name} is {told} that {own.number} is lost on a right store"
    return _with(world, name, after)._replace(silent=silent)


def _trace(own: Acknowledged, seen: Head, found: Head, now_s: float, rules: frozenset[str]) -> Trace:
    now_s = now_s if "age" in rules else own.at_s + AGE_S_MAX + 1
    line = found.commit_of(own.writer)
    if "anew" not in rules and found.segment != own.segment:
        found = found._replace(segment=own.segment)
    if "overwrite" not in rules and found.segment != own.segment:
        return Trace.KEPT
    if "evicted" not in rules and line is None and found.evicted >= own.version:
        found = found._replace(evicted=0)
    if "number" not in rules and line is not None:
        return Trace.KEPT
    return trace(own, seen, found, now_s)  # type: ignore[arg-type]


def explore(rules: frozenset[str], **world: int) -> tuple[int, str, World | None]:
    """Visit every world: how many there are, and why the first bad one is bad."""
    writers = tuple((name, Writer(2 if name == "a" else 1)) for name in WRITERS)
    first = World(Head("s"), writers, **world)
    known, bad, why = visit(first, lambda one: steps(one, rules), lambda one: one.silent)
    return len(known), why, bad
