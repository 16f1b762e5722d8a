"""Records: appends that a disk has put after the inline tail of a header file, in place. Pure.

A header file is text, inline tail, records. Its header is the text and tail's, with the records folded in, in order.
The first record that is not whole ends the file: the bytes after it are the rest of a write that was never
acknowledged. Rules P3.1 to P3.5 of the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Self

from rollingfs.format import commit_lines, tokens
from rollingfs.format.crc import crc32c
from rollingfs.format.header import (
    COMMITS_MAX,
    OFFSET_MAX,
    TAIL_BYTES_MAX,
    TEXT_BYTES_MAX,
    Commit,
    Header,
    Phase,
    changed,
)
from rollingfs.runtime.values import value_class

_LINE = re.compile(
    rb"Record ([1-9][0-9]{0,18}) ([^ \n]{0,128}) (0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,6}) "
    rb"([0-9TZ:.-]{24}) ([0-9a-f]{8}) ([0-9a-f]{8})\n"
)
_SEGMENT = re.compile(rb"\nsegment ([0-9a-f-]{36})\n")
_VERSION = re.compile(rb"\nversion ([0-9]{1,19})\n")
_INLINE = re.compile(rb"\nInline [0-9]{1,19} ([0-9]{1,7}) ")
WRITER_BYTES_MAX = 128
"""Maximum bytes of a writer's id in a record, as its line writes it."""
_TAIL = {"tail": b"", "tail_at_ms": 0, "tail_until_ms": None}
"""Fields of a header that a record changes, in addition to the fields that every commit changes."""
_CRC = re.compile("[0-9a-f]{8}")
_CRC_BYTES = 8
_READ_STEP_BYTES = 2048

Read = Callable[[int, int], bytes]
"""Gives the bytes of a header file from one position to another; fewer where the file ends."""


@value_class
class Record:
    """An append, as its record has it."""

    version: int
    writer: str
    number: int
    at_ms: int
    data: bytes

    def encode(self, segment: str) -> bytes:
        """Return the record's line and bytes, for a header of this incarnation."""
        words = f"Record {self.version} {tokens.quote(self.writer)} {self.number} {len(self.data)}"
        line = f"{words} {tokens.format_time(self.at_ms)} {crc32c(self.data):08x} ".encode()
        return b"%s%08x\n%s" % (line, crc32c(line, _seed(segment)), self.data)


_Scan = tuple[list[re.Match[bytes]], int]
_last: tuple[bytes, int, str, _Scan] = b"", 0, "", ([], 0)
"""The newest scan: a backend makes the token of what it has read, and then its reader parses the same bytes."""


def _scan(data: bytes, start: int, segment: str) -> _Scan:
    """Return the lines of the whole records from a position on, and their end."""
    global _last
    last = _last
    if last[0] is data and last[1:3] == (start, segment):
        return last[3]
    found, at, seed = [], start, _seed(segment)
    while (line := _LINE.match(data, at)) is not None:
        end = line.end() + int(line[4])
        if end > len(data) or int(line[7], 16) != crc32c(data[at : line.start(7)], seed):
            break
        if int(line[6], 16) != crc32c(data[line.end() : end]):
            break
        found.append(line)
        at = end
    _last = data, start, segment, (found, at)
    return found, at


def parse(data: bytes, start: int, segment: str) -> tuple[list[Record], int]:
    """Return the whole records from a position of a header file on, and their end.

    Raises
    ------
    Malformed
        A whole record has a content that no writer writes.
    """
    found: list[Record] = []
    lines, at = _scan(data, start, segment)
    for line in lines:
        version, number, first = int(line[1]), int(line[3]), line.end()
        if version > OFFSET_MAX or number > OFFSET_MAX:
            raise tokens.Malformed("a record has a number that is too large")
        writer, at_ms = _unquoted(line[2]), tokens.parse_time(line[5].decode())
        found.append(Record(version, writer, number, at_ms, data[first : first + int(line[4])]))
    return found, at


@lru_cache(maxsize=tokens.WORDS_KEPT_MAX)
def _seed(segment: str) -> int:
    """Return the seed of the checksum of a record's line, by incarnation."""
    return crc32c(segment.encode())


@lru_cache(maxsize=tokens.WORDS_KEPT_MAX)
def _unquoted(word: bytes) -> str:
    return tokens.unquote(word.decode())


def fold(header: Header, found: Sequence[Record]) -> Header:
    """Return the header with records folded in.

    Raises
    ------
    Malformed
        They do not follow on this header.
    """
    if not found:
        return header
    if header.phase is not Phase.OPEN:
        raise tokens.Malformed(f"a record follows on a header whose state is {header.phase.value!r}")
    version, lines, evicted = header.version, {line.writer: line for line in header.commits}, header.evicted
    before_ms = header.written_ms
    last_ms = before_ms = found[0].at_ms if before_ms is None else before_ms
    for record in found:
        if record.version != version + 1:
            raise tokens.Malformed(f"a record makes version {record.version} of version {version}")
        version, last_ms = record.version, max(last_ms, record.at_ms)
        lines.pop(record.writer, None)
        own = Commit(record.writer, record.number, version)
        if len(lines) < COMMITS_MAX:
            lines[record.writer] = own
            continue
        commits, evicted = commit_lines.following((*lines.values(),), evicted, own)
        lines = {line.writer: line for line in commits}
    tail = b"".join([header.tail, *(record.data for record in found)])
    if len(tail) > TAIL_BYTES_MAX:
        raise tokens.Malformed(
            f"with its records it has {len(tail)} bytes of inline tail; {TAIL_BYTES_MAX} are allowed"
        )
    at_ms = header.tail_at_ms if header.tail else max(found[0].at_ms, before_ms)
    return changed(
        header,
        version=version,
        commits=(*lines.values(),),
        evicted=evicted,
        tail=tail,
        tail_at_ms=at_ms,
        tail_until_ms=last_ms if last_ms > at_ms else None,
        modified_ms=max(header.modified_ms, last_ms),
        turn=None,
    )


def data_of(base: Header, wanted: Header) -> bytes | None:
    """Return the data of the record for a step on `base`, or None.

    Only bytes after the inline tail fit a record. The tails begin alike, which is not compared: they have the same
    incarnation and the same first offset.
    """
    size = len(base.tail)
    if base.phase is not Phase.OPEN or len(wanted.tail) <= size or vars(wanted) | _TAIL != vars(base) | _TAIL:
        return None
    return wanted.tail[size:]


@value_class
class Tip:
    """The end of a header file that grows in place: all that a record needs to know of the records before it."""

    version: int
    length: int
    """Segment offset of the end."""
    room: int
    """The number of records that the file can still take."""
    left: int
    """Bytes that the inline tail can still take."""
    at_ms: int
    """Time of the newest byte that the client knows of; 0 without a byte."""

    @classmethod
    def of(cls, header: Header, room: int) -> Self:
        """Return the tip of a whole header."""
        left = min(header.policy.inline_bytes, header.policy.max_bytes) - len(header.tail)
        return cls(header.version, header.length, room, left, header.written_ms or 0)

    def record(self, writer: str, number: int, now_ms: int, data: bytes) -> tuple[Record, Self] | None:
        """Return the record that comes next, and the tip after it; or None if it does not fit."""
        version, length, left, at_ms = self.version + 1, self.length + len(data), self.left - len(data), self.at_ms
        fits = self.room > 0 and left >= 0 and length <= OFFSET_MAX >= version
        if not fits or len(tokens.quote(writer)) > WRITER_BYTES_MAX:
            return None
        at_ms = max(now_ms, at_ms)
        return Record(version, writer, number, at_ms, data), type(self)(version, length, self.room - 1, left, at_ms)

    def behind(self, others: bytes, segment: str, writer: str) -> Self | None:
        """Return the tip after the records of other writers, or None if a look must decide what they are.

        It goes by their lines. The rest is checked by those who make the header.
        """
        lines, end = _scan(others, 0, segment)
        count = len(lines)
        if end != len(others) or not count or int(lines[-1][1]) != self.version + count:
            return None
        own = tokens.quote(writer).encode()
        if any(line[2] == own for line in lines):
            return None  # it may be this very append
        size = sum(int(line[4]) for line in lines)
        return type(self)(self.version + count, self.length + size, self.room - count, self.left - size, self.at_ms)


# -- what names one state of a header file ---------------------------------------------------------------------


@value_class
class Mark:
    """Identity of a state of a header file: its incarnation, its version, its last whole record.

    Size and date do not belong to it: the rest of a torn record changes both, and the next record may have the same
    size.
    """

    segment: str
    version: int
    base: str
    """The checksum of the text, from its end line."""
    end: int
    """The position after the last whole record; without records, after the inline tail."""
    crc_at: int
    """The position of `crc`."""
    crc: str
    """The checksum of the last whole record's line; without records, `base`."""

    def __str__(self) -> str:
        return f"{self.segment}-{self.base}-{self.version:x}-{self.end:x}-{self.crc_at:x}-{self.crc}"

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the mark from its text by `str`, or None."""
        words = text.rsplit("-", 5)
        if len(words) != 6 or len(words[0]) != 36:
            return None
        segment, base, version, end, crc_at, crc = words
        return cls(segment, int(version, 16), base, int(end, 16), int(crc_at, 16), crc)

    def followed(self, data: bytes) -> Self:
        """Return the mark of the file after one or more records at its end."""
        lines, at = _scan(data, 0, self.segment)
        if not lines:
            return self
        line = lines[-1]
        crc_at, crc = self.end + line.start(7), line[7].decode()
        return type(self)(self.segment, int(line[1]), self.base, self.end + at, crc_at, crc)

    def extended(self, record: bytes) -> Self:
        """Return the mark of the file after a whole record at its end."""
        line = record[: record.index(b"\n")]
        crc_at, crc = self.end + len(line) - _CRC_BYTES, line[-_CRC_BYTES:].decode()
        return type(self)(self.segment, int(line.split(b" ", 2)[1]), self.base, self.end + len(record), crc_at, crc)

    def is_in(self, read: Read) -> bool:
        """Return whether a file of the same inode still begins with the marked bytes.

        Files only grow while they have the same inode, except after the last whole record.
        """
        return read(self.crc_at, self.crc_at + _CRC_BYTES) == self.crc.encode()


def mark_of(read: Read, size: int) -> Mark | None:
    """Return the mark of a header file, without a read of its inline tail, or None."""
    head, text_end = b"", -1
    while text_end < 0 and len(head) < min(size, TEXT_BYTES_MAX):
        more = read(len(head), min(size, max(_READ_STEP_BYTES, 4 * len(head))))
        if not more:
            return None
        head += more
        text_end = head.find(tokens.END)
    end = text_end + tokens.END_BYTES
    segment, version = _SEGMENT.search(head, 0, max(text_end, 0)), _VERSION.search(head, 0, max(text_end, 0))
    if text_end < 0 or len(head) < end or segment is None or version is None:
        return None
    inline = _INLINE.search(head, 0, text_end)
    crc_at = text_end + len(tokens.END)
    crc = head[crc_at : crc_at + _CRC_BYTES].decode("latin-1")
    if not _CRC.fullmatch(crc):
        return None
    tail_end = end + (int(inline[1]) if inline is not None else 0)
    mark = Mark(segment[1].decode(), int(version[1]), crc, tail_end, crc_at, crc)
    return mark.followed(read(tail_end, size)) if tail_end < size else mark
