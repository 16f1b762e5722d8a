"""`Position`: what is known of a file and the offset up to which a segment has it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from rollingfs.format.crc import crc32c
from rollingfs.runtime.values import value_class

HEAD_BYTES_MAX = 1024
TAIL_BYTES_MAX = 256
LINES_MAX = 6
"""First lines whose ends have a checksum; the attributes of a segment have room for the positions of 32 logs."""
Read = Callable[[int, int], bytes]
"""Reads bytes of a file, by offset and size."""


@value_class
class Position:
    """A file by its inode and by checksums of its bytes, and the offset before which all bytes are in the segment."""

    inode: int
    offset: int
    begin: str
    """Checksums of the first bytes, as of `_begin`."""
    check: int
    """Checksum of the first and the last bytes before the offset."""
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
        head, tail = read(0, min(offset, HEAD_BYTES_MAX)), min(offset, TAIL_BYTES_MAX)
        check = crc32c(head + read(offset - tail, tail))
        return cls(inode, offset, _begin(head), check, mtime_ns, host, before)

    def holds(self, read: Read) -> bool:
        """Return whether a file has the bytes before the offset."""
        return not self.offset or _has(self.mark, read)

    @property
    def mark(self) -> str:
        """Return the offset and its checksum; at the begin of a file, the values of the file before it."""
        return f"{self.offset:x}.{self.check:x}" if self.offset else self.before

    @property
    def size_before(self) -> int:
        """Return the size of the file before it."""
        return int(self.before.split(".")[0], 16)

    def follows(self, read: Read) -> bool:
        """Return whether it is the file before."""
        return _has(self.before, read)

    def exceeds(self, read: Read) -> bool:
        """Return whether a file has only some of the bytes before the offset: a copy from before the last of them."""
        begin = _begin(read(0, HEAD_BYTES_MAX))
        return bool(begin) and self.begin.startswith(begin) and not read(self.offset - 1, 1)

    def __str__(self) -> str:
        here = f"{self.inode:x} {self.offset:x} {self.begin} {self.check:x}"
        return f"{here} {self.mtime_ns:x} {self.host} {self.before}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position that an attribute has.

        Raises
        ------
        ValueError
            It is not a position; another program may have the attribute.
        """
        inode, offset, begin, check, mtime_ns, host, before = text.split(" ")
        return cls(int(inode, 16), int(offset, 16), begin, int(check, 16), int(mtime_ns, 16), host, before)


def _begin(head: bytes) -> str:
    """Return checksums of bytes up to the end of each of the first lines, and of the first KiB.

    So the checksums of a file begin with the checksums of a part of it.
    """
    ends = [line.end() for line in re.finditer(b"\n", head)][:LINES_MAX]
    ends += [HEAD_BYTES_MAX] if len(head) == HEAD_BYTES_MAX else []
    return "".join(f"{crc32c(head[:end]) & 0xFFFF:04x}" for end in ends)


def _has(mark: str, read: Read) -> bool:
    """Return whether a file has the bytes before the offset of a mark."""
    offset = int(mark.split(".")[0], 16)
    return offset > 0 and Position.of(read, 0, offset, 0, "").mark == mark
