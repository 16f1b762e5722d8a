"""`Lineage`: what a log has had since the position in its segment, file after file."""

from __future__ import annotations

import errno
import os
import platform
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from rollingfs.format.crc import crc32c
from rollingfs.ship.generations import BLOCK_BYTES, File, Generation, Log, opened
from rollingfs.ship.position import HEAD_BYTES_MAX, Position, Read

PART_BYTES = 8 * 1024 * 1024
"""A longer line is shipped in parts."""
COMMIT_BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes of one commit of a file."""
LEAVE_S = 2.0
"""A file with a successor is left when nobody has written to it for so long."""
GONE_S = 1.0
"""A file is gone when no look has found it for so long: a rotation may rename it between two looks."""
IDLE_S = 5.0
"""A log whose files were the same for so long is looked at by its status alone."""
LINE_FEED = b"\n"
NUL = b"\0"
HOST = f"{crc32c(platform.node().encode()) & 0xFFFF:04x}"


class Changed(Exception):
    """A file was cut or written over while it was read; nothing of these bytes was committed."""


@dataclass(frozen=True)
class Piece:
    """Bytes of one file that wait, and the position after them."""

    file: File
    start: Position
    end: Position
    is_last: bool
    """Whether nothing more of the file will be shipped, so that its last line gets an end."""

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.end.offset - self.start.offset

    @property
    def before(self) -> bytes:
        """Return the byte before it; empty at the begin of the file."""
        return self.file.read(self.start.offset - 1, 1) if self.start.offset else b""

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes, without zeros that the file begins with.

        Raises
        ------
        Changed
            The file was cut or written over meanwhile.
        """
        at, is_hole = self.start.offset, self.before in (b"", NUL)
        while at < self.end.offset:
            block = self.file.read(at, min(BLOCK_BYTES, self.end.offset - at))
            at += len(block)
            is_over = at == self.end.offset
            if not block or (is_over and not (self.end.holds(self.file.read) and self.start.holds(self.file.read))):
                raise Changed
            block = block.lstrip(NUL) if is_hole else block
            is_hole = is_hole and not block
            yield block


class Lineage:
    """The files of a log, from the position in its segment on.

    Parameters
    ----------
    say
        Gets what was lost, or may be.
    any_host
        Go on although a shipper on another host has set the position.
    partial_after_s
        Ship a line without its end after so long; None to wait for its end.
    """

    def __init__(
        self, log: Log, say: Callable[[str], None], *, any_host: bool = False, partial_after_s: float | None = None
    ) -> None:
        self.log, self.say = log, say
        self.any_host, self.partial_after_s = any_host, partial_after_s
        self.text: str | None = None
        """The position in the segment: the condition of the next commit."""
        self.file: File | None = None
        self.position: Position | None = None
        """Where the next bytes are: perhaps in a later file than `text`."""
        self.size = 0
        """Bytes of the file at the last look."""
        self.is_pending = False
        """Whether a later look may find more, although no file changes."""
        self._head = b""
        self._waiting: Piece | None = None
        self._seen: object = None
        self._seen_s = self._rest_s = 0.0
        self._missing_s: float | None = None
        self._asked: object = None
        self._answer: list[Generation] = []

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
        self.file = None

    def begin(self, text: str | None) -> None:
        """Go on at the position that the segment has.

        Raises
        ------
        ValueError
            It is no position.
        """
        if text != self.text:
            self._head = b""  # of another file, perhaps
        if self.file is None or text != self.text:
            self.close()
            self.text, self.position = text, None if text is None else Position.parse(text)
            self._seen = self._missing_s = self._waiting = None

    def done(self, piece: Piece) -> None:
        """Note that a piece is committed."""
        self.text, self.position, self._waiting = str(piece.end), piece.end, None
        self._seen_s = time.monotonic()

    @property
    def _at(self) -> tuple[File, Position]:
        assert self.file is not None
        assert self.position is not None
        return self.file, self.position

    @property
    def lag_bytes(self) -> int:
        """Return the bytes of the present file that are not committed."""
        return max(0, self.size - (self.position.offset if self.position is not None else 0))

    # -- looks ---------------------------------------------------------------------------------------------

    def look(self) -> Piece | None:
        """Return what waits, or None.

        Raises
        ------
        OSError
            A file cannot be read, or another host has set the position.
        """
        if not self._has_changed() and time.monotonic() - self._seen_s > IDLE_S and not self.is_pending:
            return self._waiting
        self.is_pending, self._waiting = False, None
        try:
            if self.file is None:
                self._find()
            while self.file is not None and self._waiting is None:
                self._waiting = self._piece()
                later = self._later() if self._waiting is None else None
                if later is None:
                    break
                if self.lag_bytes:
                    self._waiting = self._piece_to(self.size, self.file.status()[1], is_last=True)
                else:
                    self._open(later)
        except FileNotFoundError:  # it was renamed since the folder was listed
            self.is_pending = True
        return self._waiting

    def _has_changed(self) -> bool:
        """Return whether a file has changed since the last look; close it if it no more has what was shipped."""
        try:
            status = None if self.log.is_dated else os.stat(self.log.path)
        except FileNotFoundError:
            status = None
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "It is not a regular file, so nothing of it is shipped", self.log.path)
        self._inode = status.st_ino if status is not None else None
        own = self.file.status() if self.file is not None else None
        seen = status and (status.st_ino, status.st_size, status.st_mtime_ns), own
        has_changed = own is not None and (not isinstance(self._seen, tuple) or own != self._seen[1])
        is_coarse = own is not None and not own[1] % 10**9  # then a file may change twice at one time
        is_other = own is not None and (has_changed or is_coarse) and not self._is_same(own[0])
        if seen == self._seen and not is_other:
            return self.log.is_dated
        if has_changed:
            self._rest_s = time.monotonic()
        if is_other:
            self.begin_again()
        self._seen, self._seen_s = seen, time.monotonic()
        return True

    def _is_same(self, size: int) -> bool:
        """Return whether the file still has what was shipped, or seen, of it."""
        file, position = self._at
        is_whole = size >= (position.offset or self.size)
        return is_whole and file.read(0, len(self._head)) == self._head and position.holds(file.read)

    def begin_again(self) -> None:
        """Find the place of the committed position."""
        self.close()
        self.begin(self.text)

    def _piece(self) -> Piece | None:
        """Return the whole lines of the file that wait; or a part, of a long line, or of a line that waits for long."""
        file, start = self._at[0], self._at[1].offset
        self.size, mtime_ns = file.status()
        if len(self._head) < HEAD_BYTES_MAX:
            self._head = file.read(0, HEAD_BYTES_MAX)
        end = _end_of_lines(file, start, min(self.size, start + COMMIT_BYTES_MAX))
        if end == start < self.size and self.partial_after_s is not None:
            self.is_pending = True
            end = self.size if time.monotonic() - self._rest_s >= self.partial_after_s else end
        return self._piece_to(end, mtime_ns) if end > start or self.text is None else None

    def _piece_to(self, end: int, mtime_ns: int, *, is_last: bool = False) -> Piece:
        file, position = self._at
        after = Position.of(file.read, file.inode, end, mtime_ns, HOST, position.before)
        return Piece(file, position, after, is_last)

    # -- which file ----------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Open the file of the position, or that which came after it."""
        there, position = self.log.generations(), self.position
        if position is None:
            for one in there[:1]:
                self._open(one)
            return
        if position.offset:
            for one in sorted(there, key=lambda one: one.inode != position.inode):
                if _may_be(one, position) and self._open(one, position):
                    return
        later = self._after(there, position)
        if later and not position.offset and later[0].inode == position.inode:
            self._open(later[0])
            return
        self._missing_s = time.monotonic() if self._missing_s is None else self._missing_s
        self.is_pending = bool(later)
        if not later or time.monotonic() - self._missing_s < GONE_S:
            return
        if position.host != HOST and not self.any_host:
            raise OSError(
                errno.EEXIST,
                "Another host has set the position in its segment, and no file here has the bytes before it, so "
                "nothing was shipped: give each host a --source of its own",
                self.log.path,
            )
        if self._open(later[0]) and position.offset:
            self.say(
                f"{self.log.path}: the file that was shipped up to byte {position.offset:,} was cut or is gone; what "
                f"it had after that, if anything, is lost; {later[0].path} comes next"
            )

    def _after(self, there: list[Generation], position: Position) -> list[Generation]:
        """Return the files that come after a position: by its bytes, by those of the file before it, or by their times.

        A file of the same time counts as later, because a doubt must not skip lines.
        """
        if self._asked != (there, position):
            own = [one for one in there if _may_be(one, position) and _read(one, position.holds)]
            before = own[-1:] or [one for one in there if _read(one, position.follows)]
            later = [one for one in there if one.is_current or one.may_be_after(position.mtime_ns)]
            later = there[there.index(before[0]) + 1 :] if before else later
            self._asked = there, position
            self._answer = [one for one in later if one.is_current or not self._is_short_copy(one, position)]
        return self._answer

    def _is_short_copy(self, one: Generation, position: Position) -> bool:
        """Return whether another file is a copy of the begin of the one shipped."""

        def is_copy(read: Read) -> bool:
            head = read(0, HEAD_BYTES_MAX)
            is_alike = crc32c(head) == position.head if len(head) == HEAD_BYTES_MAX else self._head.startswith(head)
            return bool(head) and is_alike and not read(max(0, position.offset - 1), 1)

        return one.inode != position.inode and _read(one, is_copy)

    def _open(self, generation: Generation, position: Position | None = None) -> bool:
        """Open a file at a position that it must hold, or at its begin."""
        try:
            file = opened(generation)
        except FileNotFoundError:
            return False
        if position is not None and not position.holds(file.read):
            file.close()
            return False
        self.close()
        begin = file.begin() if position is None else 0
        if begin:
            self.say(f"{generation.path}: skipped a hole of {begin:,} bytes: its writer does not append")
        self.file = file
        if position is None:
            before = "0" if self.position is None else self.position.mark
            position = Position.of(file.read, file.inode, begin, generation.mtime_ns, HOST, before)
        self.position = position
        self.size, self._head, self._missing_s, self._rest_s = 0, b"", None, time.monotonic()
        return True

    def _later(self) -> Generation | None:
        """Return the next file with bytes, once nobody writes to this one."""
        file, position = self._at
        if self._inode == file.inode:
            return None
        there = self.log.generations()
        size, mtime_ns = file.status()
        at = max((number for number, one in enumerate(there) if one.inode == file.inode), default=-1)
        if size != self.size or not any(one.size for one in there[at + 1 :]):
            return None
        self.is_pending = time.time() - mtime_ns / 1e9 < LEAVE_S and time.monotonic() - self._rest_s < LEAVE_S
        if self.is_pending:
            return None
        after = there[at + 1 :] if at >= 0 else self._after(there, position)
        return next((one for one in after if one.size), None)


def _may_be(one: Generation, position: Position) -> bool:
    """Return whether a file may have the bytes before a position; an older one may only be alike."""
    is_new = one.mtime_ns // 10**9 >= position.mtime_ns // 10**9
    return bool(position.offset and one.size) and (is_new or one.inode == position.inode)


def _read(one: Generation, question: Callable[[Read], bool]) -> bool:
    """Return the answer that the bytes of a file give."""
    with closing(opened(one)) as file:
        return question(file.read)


def _end_of_lines(file: File, start: int, end: int) -> int:
    """Return the end of the last whole line, or of a part of a long line."""
    low = end
    while low > max(start, end - PART_BYTES):
        high, low = low, max(start, low - BLOCK_BYTES)
        found = file.read(low, high - low).rfind(LINE_FEED)
        if found >= 0:
            return low + found + 1
    return end if end - start >= PART_BYTES else start
