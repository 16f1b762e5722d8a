"""`Spot`: an offset in a very segment or plain file, so that a reader notices a replacement."""

from __future__ import annotations

import errno
import re
from collections.abc import Awaitable, Callable

from rollingfs.errors import BadOffsetError, SegmentReplacedError, SegmentTruncatedError
from rollingfs.format.crc import crc32c
from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import Segment

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
    size = spot.overlap(view)
    before = await read(spot.offset - size, spot.offset) if size else b""
    spot.check_bytes(view, before)
    return Spot.at(view, spot.offset, before)


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
