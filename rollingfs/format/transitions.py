"""Changes of a header: a pure function ``Header -> Header`` for each operation on a segment.

A transition checks the conditions of its operation against the very header that will be replaced. So it runs again on
every attempt. It neither counts the version nor writes the commit line: `stamp` does, for all transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from rollingfs.errors import (
    AttributeMismatchError,
    BadOffsetError,
    FencedError,
    NoSegmentError,
    RollingError,
    SegmentSealedError,
)
from rollingfs.format import commit_lines
from rollingfs.format.drops import Pages, drop_all, drops_of, merge_drops
from rollingfs.format.header import (
    ATTRS_BYTES_MAX,
    ATTRS_MAX,
    PLAIN_INCARNATION,
    Adopted,
    Chunk,
    Commit,
    Entry,
    Header,
    Phase,
    changed,
)
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.values import value_class


@value_class
class Guard:
    """The conditions of an operation; every attempt checks them again."""

    segment: str | None = None
    """The incarnation that a handle is bound to, perhaps of a plain file; None for a verb by path."""
    epoch: int | None = None
    """The epoch of an exclusive handle."""
    expected_offset: int | None = None
    expected_attrs: Mapping[str, str | None] = field(default_factory=dict)
    expected_start: int | None = None
    """Begin of the retained bytes; with the length, it identifies the very bytes that were seen."""

    @property
    def is_plain(self) -> bool:
        """Return whether a plain file is meant, or the segment that was adopted from it."""
        return self.segment is not None and self.segment.startswith(PLAIN_INCARNATION)


NO_GUARD = Guard()
"""No condition."""


class MergeFoundError(RollingError):
    """Internal: the segment is the source of a concat under way; resolve its mark, then try again."""

    def __init__(self, name: str, header: Header) -> None:
        super().__init__(f"{name} is the source of a concat or rename under way")
        self.header = header


class MarksFullError(RollingError):
    """Internal: merge marks must be settled before this transition."""


# -- what every commit adds ----------------------------------------------------------------------------------


Attrs = Mapping[str, str | None] | Callable[[Mapping[str, str], int], Mapping[str, str | None]]
"""Attributes to set, with None to remove; or a function of the header's attributes and an append's offset."""
STAMP_BYTES_MAX = 256
"""By how much `stamp` can lengthen a header's text: a commit line, an `evicted` and a `turn` line, a digit of each."""


def stamp(header: Header, base: Header | None, writer: str, number: int, now_ms: int) -> Header:
    """Make a commit of a transition's result: next version, the writer's line, the time, which never goes back."""
    version = base.version + 1 if base else 1
    before, gone = (base.commits, base.evicted) if base is not None else ((), 0)
    commits, evicted = commit_lines.following(before, gone, Commit(writer, number, version))
    return changed(
        header,
        version=version,
        commits=commits,
        evicted=evicted,
        modified_ms=max(now_ms, header.modified_ms, base.modified_ms if base else 0),
    )


# -- checks --------------------------------------------------------------------------------------------------


MISSING = "No such segment or file"
GONE = "The segment that this handle was opened on is gone; another has its name"


def missing(name: str) -> FileNotFoundError:
    """Return the error for a segment that is not there."""
    return NoSegmentError(2, MISSING, name)


def exists(name: str) -> FileExistsError:
    """Return the error for a segment or a plain file in the way."""
    return FileExistsError(17, "A segment or a file is there already; nothing was written, choose another name", name)


def live(header: Header | None, name: str, segment: str | None = None) -> Header:
    """Return the header, if the segment exists; with `segment`, if it is that incarnation.

    Raises
    ------
    FileNotFoundError
        There is no header, or a tombstone, or another incarnation.
    """
    if header is None or header.phase is Phase.DELETED:
        raise missing(name)
    if segment is not None and header.segment != segment:
        raise FileNotFoundError(2, "The segment is gone; another has its name", name)
    return header


def check(header: Header | None, guard: Guard, name: str, *, length: int | None = None) -> Header:
    """Return the header, if an operation that changes the segment may go on.

    Parameters
    ----------
    length
        The length, where other appends of the same commit come before; by default the header's.

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
    MergeFoundError
        It is the source of a concat or rename under way.
    """
    found = live(header, name)
    if guard.segment is not None:
        check_incarnation(found, guard.segment, name)
    if found.phase is Phase.MERGING:
        raise MergeFoundError(name, found)
    if guard.epoch is not None or found.owner is not None:
        _check_epoch(found, guard, name)
    for key, expected in guard.expected_attrs.items():
        if found.attrs.get(key) != expected:
            raise AttributeMismatchError(
                f"{name}: attribute {key!r} is {found.attrs.get(key)!r}, expected {expected!r}; nothing was written"
            )
    if guard.expected_offset is not None:
        length = found.length if length is None else length
        if guard.expected_offset != length:
            raise BadOffsetError(
                f"{name}: expected offset {guard.expected_offset}, but its length is {length}; nothing was written"
            )
    if guard.expected_start is not None and guard.expected_start != found.start:
        raise BadOffsetError(
            f"{name}: expected its bytes to begin at {guard.expected_start}, but they begin at {found.start}; nothing "
            "was written"
        )
    return found


def check_absent(guard: Guard, name: str) -> None:
    """Refuse to make a segment if the guard expects a length or an attribute.

    Raises
    ------
    BadOffsetError, AttributeMismatchError
        The guard expects a length or an attribute.
    """
    if guard.expected_offset:
        raise BadOffsetError(
            f"{name} is not there, but its length was expected to be {guard.expected_offset}; nothing was written"
        )
    for key, expected in guard.expected_attrs.items():
        if expected is not None:
            raise AttributeMismatchError(
                f"{name} is not there, but attribute {key!r} was expected to be {expected!r}; nothing was written"
            )


def check_incarnation(header: Header, segment: str | None, name: str) -> Header:
    """Return the header, if it is of this incarnation.

    The incarnation of the plain file that it was adopted from counts, too.

    Raises
    ------
    FileNotFoundError
        It is of another incarnation.
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


def check_attrs(attrs: Attrs, name: str = "the segment") -> None:
    """Refuse attributes beyond the limits of the format; an attribute to remove (None) does not count.

    A function is checked by what it returns, at the commit.

    Raises
    ------
    ValueError
        Too many, too long, or not text.
    """
    if callable(attrs):
        return
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
    """Return a new incarnation, empty and open, perhaps over another header.

    The content of a segment becomes `Drop`.

    Raises
    ------
    MarksFullError
        The base has merge marks, which must be settled first.
    """
    if base is None:
        return Header(segment, 1, policy=policy, adopted=adopted, created_ms=now_ms)
    return _emptied(
        base,
        segment=segment,
        phase=Phase.OPEN,
        epoch=base.epoch + 1,
        policy=policy,
        offload=None if base.deleted else base.offload,
        drops=drop_all(base, now_ms),
        adopted=adopted or base.adopted,
        created_ms=now_ms,
        unknown=(),
    )


def _emptied(header: Header, **changes: Any) -> Header:
    """Return the header without its bytes and what goes with them: all other fields stay, a new kind of line too.

    Raises
    ------
    MarksFullError
        It has merge marks, which must be settled first.
    """
    if header.must_settle:
        raise MarksFullError("a concat or rename that it takes part in is not finished")
    content: dict[str, Any] = dict.fromkeys(("merge", "merged", "owner", "turn", "origin", "root", "edges"))
    content |= {"start": 0, "entries": (), "tail": b"", "tail_at_ms": 0, "tail_until_ms": None}
    content |= {"attrs": {}, "drops": (), "rewritten": 0}
    return replace(header, **(content | changes))


def extend(header: Header, entries: Sequence[Entry], tail: bytes, now_ms: int) -> Header:
    """Put entries and a new inline tail after the entries that are there; the old tail must begin them.

    No byte gets an earlier time than the byte before it, in spite of its writer's clock.
    """
    if tail == header.tail and not entries:
        return header
    grown = header.tail and not entries
    before_ms = header.written_ms
    last_ms = now_ms if before_ms is None else max(now_ms, before_ms)
    at_ms = header.tail_at_ms if grown else last_ms
    entries = _in_order(header, entries) if entries else header.entries
    until_ms = last_ms if tail and last_ms > at_ms else None
    return changed(header, entries=entries, tail=tail, tail_at_ms=at_ms if tail else 0, tail_until_ms=until_ms)


def _in_order(header: Header, more: Iterable[Entry]) -> tuple[Entry, ...]:
    found, last_ms = list(header.entries), header.written_ms
    for entry in more:
        if isinstance(entry, Chunk):
            # the time of an adopted plain file, which has no checksum, is the date by which the file is known
            if entry.crc32c is not None:
                entry = replace(entry, at_ms=entry.at_ms if last_ms is None else max(entry.at_ms, last_ms))
            last_ms = entry.at_ms
        found.append(entry)
    return tuple(found)


def with_attrs(header: Header, attrs: Attrs, name: str = "the segment", offset: int = 0) -> Header:
    """Set attributes, and remove those whose value is None; the others stay, in their order.

    Parameters
    ----------
    offset
        Begin of the operation's data; a function of attributes gets it.
    """
    if callable(attrs):
        attrs = attrs(header.attrs, offset)
    if not attrs or not any(value is not None or key in header.attrs for key, value in attrs.items()):
        return header
    merged = {key: value for key, value in {**header.attrs, **attrs}.items() if value is not None}
    check_attrs(merged, name)
    return replace(header, attrs=merged)


def seal(header: Header) -> Header:
    """Let a segment take no more bytes."""
    return replace(header, phase=Phase.SEALED)


def acquire(header: Header, owner: str) -> Header:
    """Return a new epoch, held by `owner`; the owner before is fenced."""
    return replace(header, epoch=header.epoch + 1, owner=owner)


def release(header: Header) -> Header:
    """Return the header without an owner; the epoch stays."""
    return replace(header, owner=None)


def tombstone(header: Header, *, merged: str | None = None) -> Header:
    """Return the header of a deleted segment.

    Raises
    ------
    MarksFullError
        It has merge marks, which must be settled first.
    """
    return _emptied(header, phase=Phase.DELETED, merged=merged, offload=None)


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
    drops = merge_drops(
        header.drops,
        [drop for entry in header.entries for drop in drops_of(entry, header.start, offset, now_ms, pages)],
    )
    found = replace(header, start=offset, entries=kept, tail=tail, drops=drops)
    return found if tail else replace(found, tail_at_ms=0, tail_until_ms=None)
