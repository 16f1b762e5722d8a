"""`Segment`: all that is known of a path at a moment: a header, a plain file that is read in place, or no file."""

from __future__ import annotations

import errno
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from rollingfs.backend.contract import FileInfo
from rollingfs.errors import BadOffsetError, SegmentReplacedError, SegmentTruncatedError
from rollingfs.format import names
from rollingfs.format.codec import fold_more
from rollingfs.format.crc import crc32c
from rollingfs.format.header import Adopted, Header, Phase
from rollingfs.format.records import Record, Tip
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.values import cached, value_class


@value_class
class Segment:
    """A segment, or a plain file (a segment of a single chunk), as it was at a moment."""

    path: str
    header: Header | None = None
    """None for a plain file, an empty header file (which has a token), or no file."""
    token: str | None = None
    plain: FileInfo | None = None
    room: int = 0
    """The number of records that the header file can still take; 0 if it is not known."""

    @staticmethod
    def of_plain(plain: FileInfo) -> Segment:
        """Return a plain file, as the store describes it."""
        return Segment(plain.path, None, plain.token, plain)

    @property
    def text(self) -> Header | None:
        """Return the header, or an older header of the same text: all but bytes, commits and times is the same."""
        return self.header

    @property
    def turn(self) -> str | None:
        """Return the writer that asked the others to leave the next commit to it."""
        return self.header.turn if self.header else None

    @property
    def tip(self) -> Tip:
        """Return the end of the header file, by which it grows in place."""
        assert self.header is not None
        return Tip.of(self.header, self.room)

    @property
    def live(self) -> bool:
        """Whether it is the header of a segment that exists."""
        return self.header is not None and self.header.phase is not Phase.DELETED

    @property
    def start(self) -> int:
        """Segment offset of the first retained byte."""
        return self.header.start if self.header else 0

    @property
    def length(self) -> int:
        """Segment offset of the end."""
        return self.header.length if self.header else self._file.size

    @property
    def size(self) -> int:
        """Return bytes retained: length - start."""
        return self.length - self.start

    @property
    def tail_bytes(self) -> int:
        """Return the bytes of the inline tail."""
        return len(self.header.tail) if self.header else 0

    def inline(self, start: int, end: int) -> bytes | None:
        """Return the bytes ``[start, end)``, in segment offsets, if all of them are inline in the header, else None."""
        header = self.header
        if header is None:
            return None
        first = header.tail_start
        if not first <= start <= end <= first + len(header.tail):
            return None
        return header.tail[start - first : end - first]

    @property
    def extent(self) -> str:
        """Return the retained range, in the words of errors."""
        return f"it holds bytes {self.start} to {self.length}"

    @property
    def sealed(self) -> bool:
        """Return whether the segment takes no more bytes."""
        return self.header is not None and self.header.sealed

    @property
    def state(self) -> str:
        """``"open"``, ``"sealed"``, or ``"merging"`` while the segment becomes part of another segment."""
        return str(self.header.phase) if self.header else "open"

    @property
    def version(self) -> int:
        """Return the number of the last commit, which grows with every commit; 0 for a plain file."""
        return self.header.version if self.header else 0

    @property
    def epoch(self) -> int:
        """Return the number of the last exclusive owner; 0 for a plain file."""
        return self.header.epoch if self.header else 0

    @property
    def owner(self) -> str | None:
        """Return the writer that holds the segment exclusively; or None."""
        return self.header.owner if self.header else None

    @property
    def attrs(self) -> dict[str, str]:
        """Return the segment's attributes."""
        return dict(self.header.attrs) if self.header else {}

    @property
    def policy(self) -> RollingPolicy | None:
        """When the segment rolls to a new chunk; None for a plain file."""
        return self.header.policy if self.header else None

    @property
    def created(self) -> datetime:
        """When this incarnation was created (UTC); for a plain file, when it was last changed."""
        return _date(self.header.created_ms if self.header else modified_ms(self._file))

    @property
    def modified(self) -> datetime:
        """When it was last changed (UTC)."""
        return _date(self.header.modified_ms if self.header else modified_ms(self._file))

    @property
    def incarnations(self) -> tuple[str, ...]:
        """Return the ids that distinguish this file from later files of its name.

        The present id comes first.

        A plain file has a single id, which the segment that adopts it keeps; without a token of the store it has no id.
        """
        if (text := self.text) is not None:
            return text.incarnations
        adopted = shadow(self.plain)
        return (adopted.incarnation,) if adopted is not None and adopted.token else ()

    @property
    def _file(self) -> FileInfo:
        assert self.plain is not None
        return self.plain


class Grown(Segment):
    """A header file that records have made longer since its header was made.

    The header is made once somebody asks for it: an append goes by the tip. Whoever asks gets a `CorruptHeaderError` if
    no writer writes such records.

    Parameters
    ----------
    base
        The header file before.
    more
        A known record, or records as the file has them.
    tip
        The end of the file after them.
    """

    __slots__ = ("__dict__", "_since", "length", "tail_bytes", "text", "tip", "turn", "version")
    _since: tuple[Header, tuple[Record | bytes, ...]]
    """A header, and the records after it: one value, because threads may ask for the header, and append."""

    def __init__(self, base: Segment, more: Record | bytes, tip: Tip, token: str | None = None) -> None:
        assert base.text is not None
        text, records = base._since if isinstance(base, Grown) else (base.text, ())
        size = base.tail_bytes + tip.length - base.length
        values = (base.path, token, None, tip.room, text, (text, (*records, more)), tip, None, tip.length, size)
        for name, value in zip(_KNOWN, (*values, tip.version), strict=True):
            object.__setattr__(self, name, value)

    @cached
    def header(self) -> Header:
        """Return the header that is made of text and records."""
        header = fold_more(*self._since, names.header_path(self.path))
        object.__setattr__(self, "_since", (header, ()))
        return header

    def __reduce__(self) -> Any:
        return Segment, (self.path, self.header, self.token, None, self.room)


_KNOWN = ("path", "token", "plain", "room", "text", "_since", "tip", "turn", "length", "tail_bytes", "version")


def _date(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def modified_ms(info: FileInfo) -> int:
    """Return a file's date as headers write it: milliseconds since 1970."""
    return round(info.modified * 1000)


def shadow(plain: FileInfo | None) -> Adopted | None:
    """Return the line by which a header hides this plain file, and no other."""
    return Adopted(plain.token or "", modified_ms(plain)) if plain is not None else None


def is_shadowed(header: Header | None, info: FileInfo) -> bool:
    """Return whether a header hides a plain file: a live header hides any, a tombstone only the file that it names."""
    if header is None:
        return False
    return not header.deleted or names_file(header, info)


def names_file(header: Header, info: FileInfo) -> bool:
    """Return whether this plain file belongs to the segment, which has adopted or overwritten it.

    Token *and* date: on S3 the token is a hash of the bytes, so another tool's file of the same bytes has the same.
    """
    return header.adopted is not None and header.adopted == shadow(info)


BEFORE_BYTES_MAX = 256
"""Bytes before the offset by which a plain file is known again: it has no incarnation that stays while it grows."""
INCARNATION_CHARS = 8
REPLACED = "What was read here is gone: another has its name, in which its offsets mean nothing; read from the start"
_TEXT = re.compile(r"([0-9]{1,19})(?:-(?:([0-9a-f]{8})|([0-9a-f]*)\.([0-9a-f]{8})))?")

Read = Callable[[int, int], Awaitable[bytes]]
"""Reads the bytes between two offsets of a snapshot."""


@value_class
class Spot:
    """An offset in a very segment or plain file.

    Its text, such as ``14-3fa9c1b2``, is kept by a reader to go on later. A bare offset is a spot in any file of the
    name.
    """

    offset: int
    incarnation: str = ""
    """The first digits of a segment's incarnation."""
    inode: str = ""
    """Of a plain file on a disk."""
    before: int | None = None
    """Of a plain file: the checksum of the last `BEFORE_BYTES_MAX` bytes before the offset."""

    def __str__(self) -> str:
        if self.before is not None:
            return f"{self.offset}-{self.inode}.{self.before:08x}"
        return f"{self.offset}-{self.incarnation}" if self.incarnation else str(self.offset)

    @staticmethod
    def of(given: int | str) -> Spot:
        """Return the spot that an offset, or the text of a spot, stands for.

        Raises
        ------
        ValueError
            The text is neither an offset nor a spot.
        """
        found = _TEXT.fullmatch(str(given))
        if found is None:
            raise ValueError(f"{given!r} is neither an offset, like 14, nor an offset in one segment, like 14-3fa9c1b2")
        offset, incarnation, inode, before = found.groups()
        return Spot(int(offset), incarnation or "", inode or "", None if before is None else int(before, 16))

    @staticmethod
    def at(view: Segment, offset: int, before: bytes) -> Spot:
        """Return the spot at an offset of a snapshot, by the bytes that end there."""
        if view.header is not None:
            return Spot(offset, _short(view.header.segment))
        return Spot(offset, "", _inode(view), crc32c(before[-BEFORE_BYTES_MAX:]))

    def overlap(self, view: Segment) -> int:
        """Return how many bytes before the offset a read of this snapshot must begin, for `check_bytes`."""
        is_plain = view.header is None
        if not is_plain and self.before is None:
            return 0
        size = min(self.offset, BEFORE_BYTES_MAX)
        return size if is_plain or self.offset - size >= view.start else 0

    def check(self, view: Segment) -> None:
        """Refuse a snapshot that shows another segment or file.

        Raises
        ------
        SegmentReplacedError
            Another has the name, or the plain file has lost bytes before the offset.
        """
        is_same = True
        if self.incarnation:
            is_same = view.header is not None and self.incarnation in map(_short, view.header.incarnations)
        elif self.before is not None and view.header is not None:
            is_same = view.header.was_plain and self.offset <= view.length
        elif self.before is not None:
            inodes = {self.inode, _inode(view)} - {""}
            is_same = self.offset <= view.length and len(inodes) < 2
        if not is_same:
            raise replaced(view)

    def check_bytes(self, view: Segment, before: bytes) -> None:
        """Refuse a plain file that has other bytes before the offset, within `overlap`.

        Raises
        ------
        SegmentReplacedError
            The file is another, or was written again.
        """
        if before and self.before is not None and crc32c(before) != self.before:
            raise replaced(view)


def _inode(view: Segment) -> str:
    assert view.plain is not None
    return "" if view.plain.inode is None else f"{view.plain.inode:x}"


def _short(incarnation: str) -> str:
    return incarnation[:INCARNATION_CHARS]


def replaced(view: Segment) -> SegmentReplacedError:
    """Return the error for a snapshot that is not of the segment that was read before."""
    error = SegmentReplacedError(errno.ENOENT, REPLACED, view.path)
    error.start = str(Spot.at(view, view.start, b""))
    return error


async def begin(view: Segment, spot: Spot, read: Read) -> Spot:
    """Return the spot of a reader that begins, once it is known to be in this snapshot.

    That is a small read of a plain file.

    Raises
    ------
    SegmentReplacedError
        The spot belongs to another segment.
    SegmentTruncatedError, BadOffsetError
        The snapshot has no such offset.
    """
    spot.check(view)
    check_extent(view, spot.offset)
    before, _ = await read_on(view, spot, spot.offset, read)
    return Spot.at(view, spot.offset, before)


async def read_on(view: Segment, spot: Spot, end: int, read: Read) -> tuple[bytes, bytes]:
    """Return bytes from a spot up to an offset, and of a plain file the bytes before them, which show that it goes on.

    Raises
    ------
    SegmentReplacedError
        The plain file has other bytes before the spot.
    """
    first = spot.offset - spot.overlap(view)
    found = await read(first, end) if first < end else b""
    before = found[: spot.offset - first]
    spot.check_bytes(view, before)
    return before, found[len(before) :]


def check_extent(view: Segment, offset: int) -> None:
    """Refuse an offset that a snapshot does not have.

    Raises
    ------
    SegmentTruncatedError, BadOffsetError
        It is before the first retained byte, or beyond the end.
    """
    if offset < view.start:
        raise SegmentTruncatedError(f"{view.path}: offset {offset} was truncated away; {view.extent}")
    if offset > view.length:
        raise BadOffsetError(f"{view.path}: offset {offset} lies beyond the end; {view.extent}")
