"""`Lineage`: what a log has had since the position in its segment, file after file."""

from __future__ import annotations

import errno
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from rollingfs.format.crc import crc32c
from rollingfs.ship.generations import BLOCK_BYTES, NUL, File, Generation, Log, Position, Read

PART_BYTES = 8 * 1024 * 1024
"""A longer line is shipped in parts."""
COMMIT_BYTES_MAX = 1024**3
"""Maximum bytes of a file in a commit. The store waits between two commits: with 256 MiB, that takes a fifth."""
LEAVE_S = 2.0
"""Seconds without a write after which a file with a successor is left."""
GONE_S = 1.0
"""Seconds without a look that finds a file until it is gone: a rotation may rename it between two looks."""
IDLE_S = 5.0
"""Seconds without a change of files after which looks read only the status of the file, except one in so long."""
LINE_FEED = b"\n"
HOST = f"{crc32c(platform.node().encode()) & 0xFFFF:04x}"
START = Position(0, 0, "", 0, 0, HOST)
"""Before the oldest file."""


class Changed(Exception):
    """A file was cut or written over while it was read; these bytes were not committed."""


@dataclass(frozen=True)
class Piece:
    """Bytes of a file that wait, and the position after them."""

    file: File
    start: Position
    end: Position
    is_last: bool
    """Whether the file is shipped to its end, so that its last line gets an end."""

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.end.offset - self.start.offset

    @property
    def before(self) -> bytes:
        """Return the byte before it; empty at the begin of the file."""
        return self.file.read(self.start.offset - 1, 1) if self.start.offset else b""

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes.

        Raises
        ------
        Changed
            The file was cut or written over while it was read.
        """
        at = self.start.offset
        while at < self.end.offset:
            block = self.file.read(at, min(BLOCK_BYTES, self.end.offset - at))
            at += len(block)
            is_over = at == self.end.offset
            if not block or (is_over and not (self.end.holds(self.file.read) and self.start.holds(self.file.read))):
                raise Changed
            yield block

    def payload(self, prefix: bytes, *, ends: bool) -> Iterator[bytes]:
        """Yield the bytes as the segment gets them.

        Parameters
        ----------
        prefix
            Bytes before each line.
        ends
            Whether a line without an end gets a line feed, because lines of other files may follow.
        """
        begins, block = ends or self.before in (b"", LINE_FEED, NUL), b""
        for block in self.blocks():
            if prefix:
                yield (prefix if begins else b"") + block[:-1].replace(LINE_FEED, LINE_FEED + prefix) + block[-1:]
                begins = block.endswith(LINE_FEED)
            else:
                yield block
        if (ends or self.is_last) and block and not block.endswith(LINE_FEED):
            yield LINE_FEED


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
        self.position = START
        """Position of the next bytes: perhaps in a later file than `text`."""
        self.file: File | None = None
        self.is_pending = False
        """Whether a later look may find more, although no file changes."""
        self._known = START
        """The end of the file at the last look."""
        self._waiting: Piece | None = None
        self._current: Generation | None = None
        self._inodes: set[int] = set()
        """Of the files among which the open one was chosen."""
        self._rest: tuple[int, int, int] | None = None
        """Inode, size and time of the file that has the name of the log and all of it in the segment; else None."""
        self._status: tuple[int, int] | None = None
        self._changed_s = self._written_s = self._looked_s = 0.0
        self._missing_s: float | None = None

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
        self.file = self._waiting = None

    def begin(self, text: str | None) -> None:
        """Go on at the position that the segment has.

        Raises
        ------
        ValueError
            It is no position.
        """
        if self.file is None or text != self.text:
            self.close()
            self._known = self.position = START if text is None else Position.parse(text)
            self.text, self._missing_s, self._changed_s = text, None, time.monotonic()

    def begin_again(self) -> None:
        """Find the place of the committed position."""
        self.close()
        self.begin(self.text)

    def done(self, piece: Piece) -> None:
        """Note that a piece is committed."""
        self.text, self.position, self._waiting = str(piece.end), piece.end, None
        self._changed_s = time.monotonic()

    @property
    def lag_bytes(self) -> int:
        """Return the bytes of the present file that are not committed; any thread may ask."""
        return max(0, self._known.offset - self.position.offset)

    def is_rotated_before(self, piece: Piece) -> bool:
        """Return whether a piece is of a later file than the last bytes in the segment."""
        return self.text not in (None, str(piece.start)) and Position.parse(self.text or "").offset > 0

    # -- looks ---------------------------------------------------------------------------------------------

    def rests(self, now_s: float) -> bool:
        """Return whether the log is as the look before saw it, by a single call of the system."""
        if now_s > self._looked_s + IDLE_S or self._rest is None:
            return False
        try:
            status = os.stat(self.log.path)
        except OSError:  # the look reports it
            return False
        return (status.st_ino, status.st_size, status.st_mtime_ns) == self._rest

    def look(self) -> Piece | None:
        """Return what waits, or None.

        Raises
        ------
        OSError
            A file cannot be read, or another host has set the position.
        """
        self._looked_s, self._rest = time.monotonic(), None
        if not self._has_changed() and self._looked_s - self._changed_s > IDLE_S and not self.is_pending:
            if self._waiting is None and self.file is not None and self._current is not None:
                self._rest = self.file.inode, self._current.size, self._current.mtime_ns
            return self._waiting
        self.is_pending, self._waiting = False, None
        try:
            is_open = self.file is not None or self._find()
            while is_open:
                self._waiting = self._piece()
                is_open = self._waiting is None and self._go_on()
        except FileNotFoundError:  # it was renamed since the folder was listed
            self.is_pending = True
        return self._waiting

    def _has_changed(self) -> bool:
        """Return whether a file has changed since the last look; close it if it no more has what was seen of it."""
        current, now_s = self.log.current(), time.monotonic()
        status = None if self.file is None else self.file.status()
        is_written = status != self._status
        has_changed = is_written or current != self._current or self.log.is_dated
        self._current, self._status = current, status
        self._written_s = now_s if is_written else self._written_s
        self._changed_s = now_s if has_changed else self._changed_s
        is_coarse = status is not None and not status[1] % 10**9  # then a file may change twice at one time
        if self.file is None or not (is_written or is_coarse):
            return has_changed
        # the few bytes seen of a first line may begin the next file, too, while a rotated copy has the line
        is_doubtful = not self.position.offset and {one.inode for one in self.log.generations()} != self._inodes
        if is_doubtful or not self._known.holds(self.file.read):
            self.begin_again()
            return True
        return has_changed

    def _piece(self) -> Piece | None:
        """Return the whole lines of the file that wait; or a part, of a long line, or of a line that waits for long."""
        assert self.file is not None
        size, mtime_ns = self.file.status()
        if not self.position.offset and (begin := self.file.begin()):
            self.say(f"{self.file.path}: skipped a hole of {begin:,} bytes: its writer does not append")
            self.position = self._at(begin, mtime_ns)
        start = self.position.offset
        self._known = self._at(size, mtime_ns)
        end = _end_of_lines(self.file, start, min(size, start + COMMIT_BYTES_MAX))
        if end == start < size and self.partial_after_s is not None:
            self.is_pending = True
            end = size if time.monotonic() - self._written_s >= self.partial_after_s else end
        if end == start and self.text is not None:
            return None
        return Piece(self.file, self.position, self._at(end, mtime_ns), is_last=False)

    def _at(self, offset: int, mtime_ns: int) -> Position:
        assert self.file is not None
        return Position.of(self.file.read, self.file.inode, offset, mtime_ns, HOST, self.position.before)

    # -- which file ----------------------------------------------------------------------------------------

    def _find(self) -> bool:
        """Open the file of the position, or that which came after it."""
        there, position = self.log.generations(), self.position
        self._inodes = {one.inode for one in there}
        if position == START:
            later = there
        elif self._open_own(there):
            return True
        else:
            self._missing_s = time.monotonic() if self._missing_s is None else self._missing_s
            self.is_pending = time.monotonic() - self._missing_s < GONE_S
            later = [] if self.is_pending else self._after(there)
        if later and position.host != HOST and not self.any_host:
            raise OSError(
                errno.EEXIST,
                "Another host has set the position in its segment, and no file here has the bytes before it, so "
                "nothing was shipped: give each host a --source of its own",
                self.log.path,
            )
        if later and self._open(later[0]) and position.offset:
            self.say(
                f"{self.log.path}: the file that was shipped up to byte {position.offset:,} was cut or is gone; what "
                f"it had after that, if anything, is lost; {later[0].path} comes next"
            )
        return bool(later)

    def _go_on(self) -> bool:
        """Open the next file with bytes, once writes to this file have ended; its last line gets an end before."""
        assert self.file is not None
        file, known = self.file, self._known
        if self._current is not None and self._current.inode == file.inode:
            return False
        there, (size, mtime_ns) = self.log.generations(), file.status()
        at = max((number for number, one in enumerate(there) if one.inode == file.inode), default=None)
        later = [one for one in (there if at is None else there[at + 1 :]) if one.size]
        if not later or size != known.offset:
            return False
        self.is_pending = time.time() - mtime_ns / 1e9 < LEAVE_S and time.monotonic() - self._written_s < LEAVE_S
        if self.is_pending:
            return False
        self._inodes = {one.inode for one in there}
        if at is None and self._open_own(there):  # another file has its bytes now, compressed perhaps
            return True
        if self.lag_bytes:
            self._waiting = Piece(file, self.position, known, is_last=True)
            return False
        later = later if at is not None else self._after(there)
        return bool(later) and self._open(later[0])

    def _after(self, there: list[Generation]) -> list[Generation]:
        """Return the files with bytes after the position's file: by the file before it, or else by their times.

        A file of the same time counts as later, because a doubt must not skip lines. The position's inode may have come
        back in a compressed file.
        """
        position = self.position
        before = next((at for at, one in enumerate(there) if _read(one, position.follows)), None)
        later = (
            there[before + 1 :] if before is not None else [one for one in there if one.may_be_after(position.mtime_ns)]
        )
        return [
            one
            for one in later
            if one.size
            and (
                one.is_current
                or (one.inode == position.inode and not one.is_packed)
                or not _read(one, position.exceeds)
            )
        ]

    def _open_own(self, there: list[Generation]) -> bool:
        """Open the file that has the bytes before the position; a file that is older may only be alike."""
        position = self.position
        second = position.mtime_ns // 10**9
        return any(
            self._open(one, position)
            for one in sorted(there, key=lambda one: one.inode != position.inode)
            if position.offset and one.size and (one.mtime_ns // 10**9 >= second or one.inode == position.inode)
        )

    def _open(self, generation: Generation, position: Position | None = None) -> bool:
        """Open a file at a position that it must hold, or at its begin."""
        file = File(generation)
        if position is None:
            position = Position.of(file.read, file.inode, 0, generation.mtime_ns, HOST, self.position.mark)
        elif not position.holds(file.read):
            file.close()
            return False
        self.close()
        self._known, self.position, self.file = position, position, file
        self._missing_s, self._written_s = None, time.monotonic()
        return True


def _read(one: Generation, question: Callable[[Read], bool]) -> bool:
    """Return the answer that the bytes of a file give."""
    with closing(File(one)) as file:
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
