"""`Position`: what is known of a file and the offset up to which a segment has it. Pure."""

from __future__ import annotations

from collections.abc import Callable

from rollingfs.format.crc import crc32c
from rollingfs.runtime.values import value_class

HEAD_BYTES_MAX = 1024
TAIL_BYTES_MAX = 256
Read = Callable[[int, int], bytes]
"""Reads bytes of a file, by offset and size."""


@value_class
class Position:
    """A file by its inode and by checksums of its bytes, and the offset before which all bytes are in the segment."""

    inode: int
    offset: int
    head: int
    """Checksum of the first bytes before the offset."""
    tail: int
    """Checksum of the last bytes before the offset."""
    mtime_ns: int
    """When the file was last written, as far as it was read."""
    host: str
    before: str = "0"
    """The mark of the file before it: a rotated file that has it is older, whatever the times of the files."""

    @classmethod
    def of(cls, read: Read, inode: int, offset: int, mtime_ns: int, host: str, before: str = "0") -> Position:
        """Return the position at an offset of a file.

        Parameters
        ----------
        mtime_ns
            The time of the last write that was seen before the bytes were read.
        """
        head, tail = min(offset, HEAD_BYTES_MAX), min(offset, TAIL_BYTES_MAX)
        return cls(inode, offset, crc32c(read(0, head)), crc32c(read(offset - tail, tail)), mtime_ns, host, before)

    def holds(self, read: Read) -> bool:
        """Return whether a file has the bytes before the offset."""
        return not self.offset or _has(self.mark, read)

    @property
    def mark(self) -> str:
        """Return the offset and its checksums; at the begin of a file, those of the file before it."""
        return f"{self.offset:x}.{self.head:x}.{self.tail:x}" if self.offset else self.before

    def follows(self, read: Read) -> bool:
        """Return whether it is the file before."""
        return _has(self.before, read)

    def __str__(self) -> str:
        here = f"{self.inode:x} {self.offset:x} {self.head:08x} {self.tail:08x}"
        return f"{here} {self.mtime_ns:x} {self.host} {self.before}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position that an attribute has.

        Raises
        ------
        ValueError
            It is none; another program may have the attribute.
        """
        inode, offset, head, tail, mtime_ns, host, *before = text.split(" ")
        return cls(int(inode, 16), int(offset, 16), int(head, 16), int(tail, 16), int(mtime_ns, 16), host, *before)


def _has(mark: str, read: Read) -> bool:
    """Return whether a file has the bytes before the offset of a mark."""
    offset = int(mark.split(".")[0], 16)
    return offset > 0 and len(read(offset - 1, 1)) == 1 and Position.of(read, 0, offset, 0, "").mark == mark
