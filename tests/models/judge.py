"""Explicit-state model of the commit loop: an append whose answer is lost takes place once, or its outcome is unknown.

Writers look, replace on the header that they saw, and judge each header that they load after an attempt, by the code's
own rule and with the code's own commit lines. A replacement may be answered, may land without an answer, or may land
later. Another client makes the segment anew, or deletes it, or a program removes its header. A crash is a writer that
makes no further step: what must hold is checked in every state.

Rules of the protocol: P5.1 to P5.17.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rollingfs.format import commit_lines
from rollingfs.format.header import Commit
from rollingfs.segment.commit.attempt import Verdict, judge
from tests.models.explore import explore as visit

ATTEMPTS_MAX = 2
"""Bases on which a writer tries one append."""


@dataclass(frozen=True)
class Head:
    """A header: what the judge reads, and whether it is a tombstone."""

    segment: str
    version: int
    commits: tuple[Commit, ...] = ()
    evicted: int = 0
    deleted: bool = False

    def commit_of(self, writer: str) -> Commit | None:
        return next((line for line in self.commits if line.writer == writer), None)

    def after(self, writer: str, number: int, **changes: object) -> Head:
        """The next version, with the writer's line."""
        own = Commit(writer, number, self.version + 1)
        lines, evicted = commit_lines.following(self.commits, self.evicted, own)
        return replace(self, version=own.version, commits=lines, evicted=evicted, **changes)  # type: ignore[arg-type]


class Writer(NamedTuple):
    """One writer of appends."""

    left: int
    """Appends that it has still to make."""
    number: int = 1
    seen: Head | None = None
    sent: Head | None = None
    """The base of the newest attempt, if that may have taken place, or may still do so."""
    attempts: int = 0
    is_old: bool = False
    """Whether the append began more than D ago."""


class Landing(NamedTuple):
    """A replacement that may arrive later."""

    base: Head
    made: Head
    append: tuple[str, int]


class World(NamedTuple):
    """A state."""

    head: Head | None
    writers: tuple[tuple[str, Writer], ...]
    others: tuple[str, ...] = ()
    """What another client, or a program, does with the segment, in this order."""
    faults: int = 1
    late: frozenset[Landing] = frozenset()
    committed: frozenset[tuple[str, int]] = frozenset()
    failed: frozenset[tuple[str, int]] = frozenset()
    wrong: str = ""


def steps(world: World, rules: frozenset[str]) -> Iterator[World]:
    """Every world that one step makes."""
    for name, writer in world.writers:
        if writer.left:
            yield from _writes(world, name, writer, rules)
    for landing in world.late:
        rest = world._replace(late=world.late - {landing})
        yield _landed(rest, landing.made, landing.append) if world.head == landing.base else rest
    if world.others:
        yield from _changed(world._replace(others=world.others[1:]), world.others[0], rules)


def _with(world: World, name: str, writer: Writer) -> World:
    writers = tuple((one, writer if one == name else other) for one, other in world.writers)
    return world._replace(writers=writers)


def _done(world: World, name: str, writer: Writer, told: str) -> World:
    """The append ends, and its caller is told so."""
    append = (name, writer.number)
    wrong = world.wrong
    if told == "ok" and append not in world.committed:
        wrong = f"{append} is acknowledged and was never committed"
    if told == "failed" and append in world.committed:
        wrong = f"{append} is reported failed and is committed"
    failed = world.failed | {append} if told == "failed" else world.failed
    after = Writer(writer.left - 1, writer.number + 1, writer.seen if told == "ok" else None)
    return _with(world, name, after)._replace(failed=failed, wrong=wrong)


def _landed(world: World, made: Head, append: tuple[str, int]) -> World:
    wrong = world.wrong
    if append in world.committed:
        wrong = f"{append} is committed twice"
    if append in world.failed:
        wrong = f"{append} is committed after it was reported failed"
    return world._replace(head=made, committed=world.committed | {append}, wrong=wrong)


def _writes(world: World, name: str, writer: Writer, rules: frozenset[str]) -> Iterator[World]:
    append = (name, writer.number)
    if writer.sent is not None:
        yield _looked(world, name, writer, rules)
        yield _done(world, name, writer, "unknown")  # its time is over
    elif writer.seen is None:
        if world.head is None or world.head.deleted:
            yield _done(world, name, writer, "failed")
        else:
            yield _with(world, name, writer._replace(seen=world.head))
    else:
        yield _done(world, name, writer, "failed")  # its time is over, and no attempt is out
    base = writer.sent or writer.seen
    if base is None or (writer.sent is None and writer.attempts >= ATTEMPTS_MAX):
        return
    sent = writer._replace(sent=base, attempts=writer.attempts + (writer.sent is None))
    if world.head != base:
        yield _with(world, name, sent)  # a conflict, which proves nothing
        return
    made = base.after(*append)
    after = _landed(world, made, append)
    yield _done(after, name, writer._replace(seen=made), "ok")
    if world.faults:
        yield _with(after, name, sent)._replace(faults=world.faults - 1)
        late = world.late | {Landing(base, made, append)}
        yield _with(world, name, sent)._replace(faults=world.faults - 1, late=late)


def _looked(world: World, name: str, writer: Writer, rules: frozenset[str]) -> World:
    """The world after a look at the header, and the verdict on the attempt."""
    head, sent = world.head, writer.sent
    assert sent is not None
    verdict = _judged(sent, head, name, writer.number, rules)
    if "age" in rules and writer.is_old:
        verdict = Verdict.UNKNOWN
    if verdict is Verdict.MINE:
        return _done(world, name, writer._replace(seen=head), "ok")
    if verdict is Verdict.UNKNOWN:
        return _done(world, name, writer, "unknown")
    if verdict is Verdict.SAME:
        return world
    assert head is not None
    if head.deleted:
        return _done(world, name, writer, "failed")
    return _with(world, name, writer._replace(seen=head, sent=None))


def _judged(sent: Head, head: Head | None, name: str, number: int, rules: frozenset[str]) -> Verdict:
    base, now = sent, head
    if now is not None and "evicted" not in rules:
        now = replace(now, evicted=0)
    if now is not None and "version" not in rules:
        base = replace(base, version=0)
    return judge(base, head == sent, now, name, number)  # type: ignore[arg-type]


def _changed(world: World, what: str, rules: frozenset[str]) -> Iterator[World]:
    """What another client makes of the segment; a program may remove the header itself."""
    head = world.head
    if what == "remove":
        yield world._replace(head=None)
    elif what == "create" and head is None:
        yield world._replace(head=Head("new", 1, (Commit("o", 9, 1),)))
    elif what == "collect" and head is not None and head.deleted:
        # G after the delete: no request is on its way any more, and operations of then are older than D
        writers = tuple((name, one._replace(is_old=True) if one.sent else one) for name, one in world.writers)
        yield world._replace(head=None, late=frozenset(), writers=writers)
    elif head is not None and what in ("overwrite", "delete"):
        made = head.after("o", 1 + len(world.others), deleted=what == "delete", segment=f"{head.segment}'")
        if "lines survive" not in rules:
            made = replace(made, commits=made.commits[-1:])
        yield world._replace(head=made)
    elif head is not None and what == "append" and not head.deleted:
        yield world._replace(head=head.after("o", 1 + len(world.others)))


def explore(rules: frozenset[str], appends: tuple[int, ...], *others: str, faults: int) -> tuple[int, str]:
    """Visit every world: their number, and what is wrong in the first bad one."""
    writers = tuple((name, Writer(left)) for name, left in zip("abc", appends, strict=False))
    first = World(Head("s", 3), writers, others, faults)
    known, _, why = visit(first, lambda one: steps(one, rules), lambda one: one.wrong)
    return len(known), why
