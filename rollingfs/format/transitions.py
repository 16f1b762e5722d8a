"""How a header changes: one pure function ``Header -> Header`` for each operation.

A transition checks what the operation insists on, against the very header that will be replaced, and so runs
again on every attempt. It neither counts the version nor writes the commit line: `stamp` does, for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from rollingfs.errors import (
    AttributeMismatchError,
    BadOffsetError,
    FencedError,
    RollingError,
    SegmentNotSealedError,
    SegmentSealedError,
)
from rollingfs.format import tokens
from rollingfs.format.drops import Pages, drop_all, drops_of, merge_drops
from rollingfs.format.header import (
    ATTRS_BYTES_MAX,
    ATTRS_MAX,
    COMMITS_MAX,
    MARKS_BYTES_MAX,
    MARKS_MAX,
    PLAIN_INCARNATION,
    Adopted,
    Commit,
    Entry,
    Header,
    Mark,
    Merge,
    Page,
    Phase,
)
from rollingfs.policy import RollingPolicy


@dataclass(frozen=True, slots=True)
class Guard:
    """What an operation insists on; checked again in every attempt."""

    segment: str | None = None
    """The incarnation a handle is bound to, perhaps that of a plain file; None for a verb by path."""
    epoch: int | None = None
    """The epoch of an exclusive handle."""
    expected_offset: int | None = None
    expected_attrs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain file that is meant, or the segment that was adopted from it."""
        return self.segment is not None and self.segment.startswith(PLAIN_INCARNATION)


class MergeFoundError(RollingError):
    """Internal: the segment is the source of a concat under way; resolve its mark, then try again."""

    def __init__(self, name: str, header: Header) -> None:
        super().__init__(f"{name} is the source of a concat or rename under way")
        self.header = header


class MarksFullError(RollingError):
    """Internal: merge marks must be settled before this transition."""


class Verdict(Enum):
    """What the header now says of an attempt to replace its predecessor."""

    MINE = "it took place"
    SAME = "it has not taken place, but still may"
    NOT_MINE = "it did not take place and never will"
    UNKNOWN = "nothing can be said"


def judge(base: Header | None, same: bool, current: Header | None, writer: str, number: int) -> Verdict:
    """Whether operation `number` of `writer`, conditioned on `base`, took place.

    Parameters
    ----------
    base
        The header that the attempt would have replaced; None if there was none.
    same
        Whether the file still is what the attempt was conditioned on.
    current
        The header that is there now; None if there is none (or an empty file).
    """
    if same:
        return Verdict.SAME
    if current is None:
        return Verdict.UNKNOWN
    base_version = base.version if base else 0
    mine = current.commit_of(writer)
    if mine is not None and mine.number == number:
        return Verdict.MINE
    if (mine is not None and mine.number > number) or current.evicted > base_version or current.version <= base_version:
        return Verdict.UNKNOWN
    return Verdict.NOT_MINE


STAMP_BYTES_MAX = 256
"""By how much `stamp` can lengthen a header's text: a commit line, an `evicted` and a `turn` line, a digit of each."""


def is_crowded(base: Header | None) -> bool:
    """Whether so many write just now that their commit lines may soon push out one that follows on `base`."""
    if base is None:
        return False
    return sum(line.version > base.version - COMMITS_MAX for line in base.commits) > COMMITS_MAX // 2


def stamp(header: Header, base: Header | None, writer: str, number: int, now_ms: int) -> Header:
    """Make a commit of a transition's result: next version, the writer's line, the time."""
    version = base.version + 1 if base else 1
    commits = [line for line in (base.commits if base else ()) if line.writer != writer]
    evicted = base.evicted if base else 0
    if len(commits) >= COMMITS_MAX:
        commits.sort(key=lambda line: line.version)
        evicted = max([evicted, *(line.version for line in commits[: -COMMITS_MAX + 1])])
        commits = commits[-COMMITS_MAX + 1 :]
    commits.append(Commit(writer, number, version))
    return replace(header, version=version, commits=tuple(commits), evicted=evicted, modified_ms=now_ms)


# -- checks --------------------------------------------------------------------------------------------------


MISSING = "No such segment or file"
GONE = "The segment that this handle was opened on is gone; another has its name"


def missing(name: str) -> FileNotFoundError:
    """The error for a segment that is not there."""
    return FileNotFoundError(2, MISSING, name)


def live(header: Header | None, name: str, segment: str | None = None) -> Header:
    """The header, if the segment exists; with `segment`, if it is that incarnation.

    Raises
    ------
    FileNotFoundError
        There is none, or a tombstone, or another incarnation.
    """
    if header is None or header.deleted:
        raise missing(name)
    if segment is not None and header.segment != segment:
        raise FileNotFoundError(2, "The segment is gone; another has its name", name)
    return header


def check(header: Header | None, guard: Guard, name: str, *, length: int | None = None) -> Header:
    """The header, if an operation that changes the segment may go on.

    `length` stands for the header's, where others of the same commit come before.

    Raises
    ------
    FileNotFoundError
        No segment, or not the incarnation that the handle is bound to.
    FencedError
        Another owner holds it, or the handle's epoch has passed.
    AttributeMismatchError
        An expected attribute differs.
    BadOffsetError
        The length is not the expected offset.
    """
    found = check_incarnation(live(header, name), guard.segment, name)
    if found.phase is Phase.MERGING:
        raise MergeFoundError(name, found)
    _check_epoch(found, guard, name)
    for key, expected in guard.expected_attrs.items():
        if found.attrs.get(key) != expected:
            raise AttributeMismatchError(
                f"{name}: attribute {key!r} is {found.attrs.get(key)!r}, expected {expected!r}; nothing was written"
            )
    length = found.length if length is None else length
    if guard.expected_offset is not None and guard.expected_offset != length:
        raise BadOffsetError(
            f"{name}: expected offset {guard.expected_offset}, but its length is {length}; nothing was written"
        )
    return found


def check_incarnation(header: Header, segment: str | None, name: str) -> Header:
    """The header, if it is of this incarnation, perhaps that of the plain file it was adopted from.

    Raises
    ------
    FileNotFoundError
        It is of another.
    """
    if segment is not None and segment not in header.incarnations:
        raise FileNotFoundError(2, f"{GONE}; nothing was written", name)
    return header


def _check_epoch(header: Header, guard: Guard, name: str) -> None:
    if guard.epoch is not None and (header.owner is None or guard.epoch != header.epoch):
        raise FencedError(
            f"{name}: this handle's epoch {guard.epoch} has passed; it is now {header.epoch}; nothing was written"
        )
    if guard.epoch is None and header.owner is not None:
        raise FencedError(
            f"{name} is held exclusively by {header.owner!r} (epoch {header.epoch}); nothing was written; acquire() it "
            "to take over"
        )


def check_open(header: Header, name: str) -> None:
    """Refuse a sealed segment.

    Raises
    ------
    SegmentSealedError
        It is sealed.
    """
    if header.phase is Phase.SEALED:
        raise SegmentSealedError(
            f"{name} is sealed at length {header.length}; it takes no more bytes, so nothing was written"
        )


def check_attrs(attrs: Mapping[str, str | None], name: str = "the segment") -> None:
    """Refuse attributes of the segment `name` beyond the limits of the format; those to be removed (None) count not.

    Raises
    ------
    ValueError
        Too many, too long, or not text.
    """
    for key, value in attrs.items():
        if not key:
            raise ValueError(f"{name}: attribute {key!r}={value!r}: a key must not be empty; nothing was written")
    sizes = [len(key.encode()) + len(value.encode()) for key, value in attrs.items() if value is not None]
    if len(sizes) > ATTRS_MAX or sum(sizes) > ATTRS_BYTES_MAX:
        raise ValueError(
            f"{name}: {len(sizes)} attributes of {sum(sizes)} bytes; a segment holds at most {ATTRS_MAX} of "
            f"{ATTRS_BYTES_MAX} bytes; nothing was written. Remove one with attrs={{key: None}}"
        )


# -- one segment ---------------------------------------------------------------------------------------------


def create(
    base: Header | None, segment: str, policy: RollingPolicy, now_ms: int, adopted: Adopted | None = None
) -> Header:
    """A new incarnation: empty, open, over nothing, a tombstone, or a segment whose content becomes `Drop`.

    Raises
    ------
    MarksFullError
        The base has merge marks, which must be settled first.
    """
    fresh = Header(segment, 1, policy=policy, adopted=adopted, created_ms=now_ms)
    if base is None:
        return fresh
    if base.must_settle:
        raise MarksFullError("a concat or rename that it takes part in is not finished")
    adopted = adopted or base.adopted
    drops = drop_all(base, now_ms)
    return replace(fresh, version=base.version, epoch=base.epoch + 1, adopted=adopted, drops=drops)


def extend(header: Header, entries: Sequence[Entry], tail: bytes, now_ms: int) -> Header:
    """Put entries and a new inline tail behind the entries that are there; the old tail is part of them."""
    grown = tail[: len(header.tail)] == header.tail and not entries and header.tail
    at_ms = header.tail_at_ms if grown else now_ms
    return replace(header, entries=header.entries + tuple(entries), tail=tail, tail_at_ms=at_ms if tail else 0)


def with_attrs(header: Header, attrs: Mapping[str, str | None], name: str = "the segment") -> Header:
    """Set attributes, and remove those whose value is None; the others stay, in their order."""
    if not any(value is not None or key in header.attrs for key, value in attrs.items()):
        return header
    merged = {key: value for key, value in {**header.attrs, **attrs}.items() if value is not None}
    check_attrs(merged, name)
    return replace(header, attrs=merged)


def seal(header: Header) -> Header:
    """No more bytes from now on."""
    return replace(header, phase=Phase.SEALED)


def acquire(header: Header, owner: str) -> Header:
    """A new epoch, held by `owner`; whoever held the segment is fenced."""
    return replace(header, epoch=header.epoch + 1, owner=owner)


def release(header: Header) -> Header:
    """Nobody holds the segment any more; the epoch stays."""
    return replace(header, owner=None)


def tombstone(header: Header, *, merged: str | None = None) -> Header:
    """The segment is gone, what is left says so.

    Raises
    ------
    MarksFullError
        It has merge marks, which must be settled first.
    """
    if header.must_settle:
        raise MarksFullError("a concat or rename that it takes part in is not finished")
    return Header(
        header.segment,
        header.version,
        phase=Phase.DELETED,
        merged=merged,
        epoch=header.epoch,
        policy=header.policy,
        adopted=header.adopted,
        created_ms=header.created_ms,
        unknown=header.unknown,
    )


def bury(header: Header, txn: str) -> Header:
    """The tombstone of a source whose content another segment has taken; its own drops are still to be deleted."""
    return replace(tombstone(header, merged=txn), drops=header.drops)


def pages_to_truncate(header: Header, offset: int) -> list[Page]:
    """The pages that `truncate` must see: those with chunks that this segment may not delete itself."""
    return [
        entry
        for entry in header.entries
        if isinstance(entry, Page) and entry.start < offset and (entry.foreign or "/" in entry.file)
    ]


def truncate(header: Header, offset: int, now_ms: int, pages: Pages, name: str) -> Header:
    """Drop the head: the bytes before `offset`.

    Raises
    ------
    BadOffsetError
        The offset is negative or beyond the end.
    """
    if not 0 <= offset <= header.length:
        raise BadOffsetError(
            f"{name}: cannot truncate at {offset}; it holds bytes {header.start} to {header.length}, as before"
        )
    if offset <= header.start:
        return header
    kept = tuple(entry for entry in header.entries if entry.end > offset)
    tail = header.tail if kept else header.tail[offset - header.tail_start :]
    tail_at_ms = header.tail_at_ms if tail else 0
    drops = merge_drops(
        header.drops,
        [drop for entry in header.entries for drop in drops_of(entry, header.start, offset, now_ms, pages)],
    )
    return replace(header, start=offset, entries=kept, tail=tail, tail_at_ms=tail_at_ms, drops=drops)


# -- two segments --------------------------------------------------------------------------------------------


def mark_merging(header: Header, merge: Merge) -> Header:
    """Freeze a source: its map, start and drops stay as they are until the mark is resolved."""
    return replace(header, phase=Phase.MERGING, merge=merge)


def unmark(header: Header) -> Header:
    """Give a source back its prior state, after its transaction was aborted in the target."""
    assert header.merge is not None
    return replace(header, phase=header.merge.prior, merge=None)


def check_source(header: Header | None, name: str, *, sealed: bool, segment: str | None = None) -> Header:
    """The header, if it may be merged into another; with `segment`, if it is of this incarnation.

    Raises
    ------
    SegmentNotSealedError
        It is open, and `sealed` asks for a sealed one.
    """
    found = check(header, Guard(segment), name)
    if sealed and found.phase is not Phase.SEALED:
        raise not_sealed(name)
    return found


def not_sealed(name: str) -> SegmentNotSealedError:
    """The error for a source that still takes bytes."""
    return SegmentNotSealedError(
        f"{name} is not sealed; seal() it before concat, so that no append is lost; nothing was joined"
    )


def check_marks(header: Header, more: Sequence[Mark]) -> None:
    """Refuse marks for which a header has no room beside those that it has.

    Raises
    ------
    MarksFullError
        They must be settled first.
    """
    old = (*header.merges, *header.aborts)
    count = len(old) + len(more)
    if old and (count > MARKS_MAX or sum(map(_mark_bytes, [*old, *more])) > MARKS_BYTES_MAX):
        raise MarksFullError("too many concats and renames that it takes part in are not finished")


def _mark_bytes(mark: Mark) -> int:
    return len(f"Aborted {mark.txn} {tokens.quote(mark.source)}\n".encode())


def with_merged(header: Header, marks: Sequence[Mark]) -> Header:
    """In a target: these transactions took place."""
    return replace(header, merges=header.merges + tuple(marks))


def with_aborted(header: Header, mark: Mark) -> Header:
    """In a target: this transaction will never take place.

    Raises
    ------
    MarksFullError
        There is no room for it: the marks that are there must be settled first.
    """
    check_marks(header, [mark])
    return replace(header, aborts=(*header.aborts, mark))


def has_merged(header: Header, txn: str) -> bool:
    return any(mark.txn == txn for mark in header.merges)


def has_aborted(header: Header, txn: str) -> bool:
    return any(mark.txn == txn for mark in header.aborts)


def settle(header: Header, marks: Iterable[Mark]) -> Header:
    """Forget marks whose sources are seen not to be merging in their transactions any more."""
    gone = set(marks)
    return replace(
        header,
        merges=tuple(mark for mark in header.merges if mark not in gone),
        aborts=tuple(mark for mark in header.aborts if mark not in gone),
    )
