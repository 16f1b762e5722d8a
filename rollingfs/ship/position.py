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

    @classmethod
    def of(cls, read: Read, inode: int, offset: int, mtime_ns: int, host: str) -> Position:
        """Return the position at an offset of a file.

        Parameters
        ----------
        mtime_ns
            The time of the last write that was seen before the bytes were read.
        """
        head, tail = min(offset, HEAD_BYTES_MAX), min(offset, TAIL_BYTES_MAX)
        return cls(inode, offset, crc32c(read(0, head)), crc32c(read(offset - tail, tail)), mtime_ns, host)

    def holds(self, read: Read) -> bool:
        """Return whether a file has the bytes before the offset."""
        found = Position.of(read, self.inode, self.offset, self.mtime_ns, self.host)
        tail = min(self.offset, TAIL_BYTES_MAX)
        return found == self and len(read(self.offset - tail, tail)) == tail

    def may_begin_with(self, size: int, read: Read) -> bool:
        """Return whether a shorter file is the begin of this one: a copy that was made before its last bytes came."""
        return HEAD_BYTES_MAX <= size < self.offset and crc32c(read(0, HEAD_BYTES_MAX)) == self.head

    def __str__(self) -> str:
        return f"{self.inode:x} {self.offset:x} {self.head:08x} {self.tail:08x} {self.mtime_ns:x} {self.host}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position that an attribute has.

        Raises
        ------
        ValueError
            It is none; another program may have the attribute.
        """
        inode, offset, head, tail, mtime_ns, host = text.split(" ")
        return cls(int(inode, 16), int(offset, 16), int(head, 16), int(tail, 16), int(mtime_ns, 16), host)
