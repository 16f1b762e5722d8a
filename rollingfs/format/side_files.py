"""The files next to a header: index pages, pins, labels of chunks, and the maximum bytes of a file by its name. Pure.

An index page is an immutable list of chunks for which the header has no room. A pin in a chunk folder stands for
references of other segments: a concat or rename writes the pin before it gives the folder's chunks to another segment,
and only the folder's own collection removes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn
from urllib.parse import quote

from rollingfs import __version__
from rollingfs.format import line_codec, names, tokens
from rollingfs.format.crc import crc32c
from rollingfs.format.header import HEADER_BYTES_MAX, LARGE_PAGE_CHUNKS, OFFSET_MAX, Chunk, Header, Page
from rollingfs.runtime.values import value_class

PAGE_FORMAT = "rollingfs-index 1"
PAGE_BYTES_MAX = 16 * 1024 * 1024
"""Room for the most chunks with references of 1,024 characters, each of them escaped."""

_FIRST = len(PAGE_FORMAT) + 1
"""Position of the first chunk's line."""
_RANGE = re.compile(rb"Chunk (0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) ")
_MISCOUNTED = "it does not have as many chunks as the header says, or more than a page may have"


class ListedChunks:
    """The chunks of an index page, searched in its text: a random read parses some 15 of 4,096 lines.

    Raises
    ------
    CorruptHeaderError
        A use meets a malformed line, or lines that do not follow each other.
    """

    __slots__ = ("_count", "_data", "_end", "_length", "_name")

    def __init__(self, data: bytes, name: str, count: int) -> None:
        self._data = data
        self._name = name
        self._count = count
        self._end = len(data) - tokens.END_BYTES + 1
        if self._end <= _FIRST:
            raise tokens.Malformed(_MISCOUNTED)
        self._length = sum(self._range(data.rfind(b"\n", 0, self._end - 1) + 1))

    @property
    def size(self) -> int:
        """Return the bytes of the text."""
        return len(self._data)

    def __iter__(self) -> Iterator[Chunk]:
        found = self.overlapping(0, self._length)
        if len(found) != self._count:
            tokens.corrupt(self._name, 0, "", tokens.Malformed(_MISCOUNTED))
        return iter(found)

    def overlapping(self, start: int, end: int) -> list[Chunk]:
        """Return the chunks that hold a byte of ``[start, end)``."""
        found: list[Chunk] = []
        position, end = start, min(end, self._length)
        at = self._line_of(start)
        while position < end:
            after = self._data.index(b"\n", at) + 1
            chunk = self._parse(at, after)
            is_next = chunk.start == position if found else chunk.start <= position < chunk.end
            if not is_next or len(found) == self._count:
                self._refuse(at, after, tokens.Malformed("its chunks leave a gap or overlap"))
            found.append(chunk)
            position, at = chunk.end, after
        return found

    def check_range(self, last: int) -> None:
        """Refuse chunks that do not begin at 0, or end before `last`.

        Raises
        ------
        Malformed
            They do.
        """
        if self._range(_FIRST)[0] != 0 or not last <= self._length <= OFFSET_MAX:
            raise tokens.Malformed("its chunks do not cover the range that the header says")

    def _line_of(self, offset: int) -> int:
        """Return the position of the last line whose chunk begins at an offset or before it, or of the first line."""
        first, last = _FIRST, self._end
        while True:
            middle = self._data.rfind(b"\n", first, (first + last) // 2) + 1 or self._data.index(b"\n", first) + 1
            if middle >= last:
                return first
            if self._range(middle)[0] <= offset:
                first = middle
            else:
                last = middle

    def _range(self, at: int) -> tuple[int, int]:
        found = _RANGE.match(self._data, at)
        if found is None:
            after = self._data.index(b"\n", at) + 1
            self._parse(at, after)  # raises the line's error
            self._refuse(at, after, tokens.Malformed("has an impossible range"))
        return int(found[1]), int(found[2])

    def _parse(self, at: int, after: int) -> Chunk:
        try:
            return line_codec.parse_chunk_line(self._data[at : after - 1].decode())
        except (ValueError, IndexError) as error:
            self._refuse(at, after, error)

    def _refuse(self, at: int, after: int, error: Exception) -> NoReturn:
        line = self._data[at : after - 1].decode(errors="replace")
        tokens.corrupt(self._name, self._data.count(b"\n", 0, at) + 1, line, error)


def format_page(chunks: Sequence[Chunk]) -> bytes:
    """Return an index page's content. The chunks' offsets begin at 0; references are relative to the page's folder."""
    assert chunks[0].start == 0
    assert len(chunks) <= LARGE_PAGE_CHUNKS
    text = "\n".join([PAGE_FORMAT, *map(line_codec.format_chunk, chunks)]).encode() + b"\n"
    data = tokens.seal_text(text)
    if len(data) > PAGE_BYTES_MAX:
        raise ValueError(f"an index page would have {len(data)} bytes, but at most {PAGE_BYTES_MAX} are allowed")
    return data


def parse_page(data: bytes, page: Page | None, name: str) -> ListedChunks:
    """Read an index page; each use of its chunks checks the lines that it needs.

    `page`, the header's line, has the checksum; without it, the end line has.

    Raises
    ------
    CorruptHeaderError
        The page is malformed, or not the page that the header names.
    """
    try:
        tokens.check_size(data, PAGE_BYTES_MAX)
        if page and (len(data) != page.size or crc32c(data) != page.crc32c):
            raise tokens.Malformed("it does not have the size and the checksum that the header says")
        if page:
            tokens.check_first(data, PAGE_FORMAT)
            end, count = data.rfind(tokens.END) + tokens.END_BYTES, page.count
        else:
            text_lines, end = tokens.split_text(data, PAGE_FORMAT)
            count = len(text_lines)
        if end != len(data):
            raise tokens.Malformed("it has bytes after its end")
        if not 1 <= count <= LARGE_PAGE_CHUNKS:
            raise tokens.Malformed(_MISCOUNTED)
        listed = ListedChunks(data, name, count)
        listed.check_range(page.offset + page.length if page else 0)
    except ValueError as error:
        tokens.corrupt(name, 0, "", error)
    return listed


# -- pins ------------------------------------------------------------------------------------------------------

PIN_FORMAT = "rollingfs-pin 1"
PIN_BYTES_MAX = 64 * 1024
FIELDS = ("txn", "source", "incarnation", "target")


@value_class
class Pin:
    """The segments that may refer to the chunks of a folder, and the transaction that moves the entries."""

    txn: str
    source: str
    """Path of the segment that gives its entries away; "" if it is above the root, after a move of the tree."""
    target: str
    """Path of the segment that takes them; "" likewise."""
    incarnation: str
    """Incarnation of the source, whose header shows whether the transaction took place."""

    def folded(self) -> Pin:
        """Return this pin with the paths as disks compare them that ignore case."""
        return replace(self, source=names.folded(self.source), target=names.folded(self.target))


def pin_path(folder: str, txn: str) -> str:
    """Return the path of a transaction's pin in a chunk folder."""
    return f"{folder}/{names.PIN_PREFIX}{txn}"


def format_pin(pin: Pin, folder: str) -> bytes:
    """Return a pin's content, with paths relative to the chunk folder's parent."""
    home = names.parent(folder)
    source, target = tokens.quote(names.relative(home, pin.source)), tokens.quote(names.relative(home, pin.target))
    text = f"{PIN_FORMAT}\ntxn {pin.txn}\nsource {source}\nincarnation {pin.incarnation}\ntarget {target}\n"
    return tokens.seal_text(text.encode())


def parse_pin(data: bytes, folder: str, name: str) -> Pin:
    """Read a pin.

    Raises
    ------
    CorruptHeaderError
        The pin is malformed, or a newer release wrote it.
    """
    position, line = 0, ""
    found: dict[str, Any] = {}
    try:
        tokens.check_size(data, PIN_BYTES_MAX)
        text_lines, end = tokens.split_text(data, PIN_FORMAT)
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            kind, word = line.split(" ")
            if kind not in FIELDS or kind in found:
                raise tokens.Malformed(f"line kind {kind!r} is unknown or comes twice: upgrade rollingfs to read it")
            is_path = kind in ("source", "target")
            if is_path:  # "" above the root of the store
                found[kind] = names.find(names.parent(folder), tokens.segment_path(word)) or ""
            else:
                found[kind] = tokens.uuid(word)
        position, line = 0, ""
        tokens.need(found, *FIELDS)
        if end != len(data):
            raise tokens.Malformed("it has bytes after its end")
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, position, line, error)
    return Pin(**found)


# -- sizes -----------------------------------------------------------------------------------------------------


def read_bytes_max(path: str) -> int | None:
    """Return the bytes to read of a file: a byte more than the format allows.

    The parser refuses such a file. None: all bytes.

    Parameters
    ----------
    path
        The file's path, or its key.
    """
    name = path.rpartition("/")[2]
    if name.endswith(names.HEADER_SUFFIX):
        return HEADER_BYTES_MAX + 1
    if name.startswith(names.INDEX_PREFIX):
        return PAGE_BYTES_MAX + 1
    if name.startswith(names.PIN_PREFIX):
        return PIN_BYTES_MAX + 1
    return None


# -- labels: metadata of chunks and index pages, for a rebuild after the loss of a header -----------------

HEAD_BYTES = 4096 + 8
"""HDF5 begins after 0, 512, 1024, 2048, 4096 bytes or more, which users own; the marks of others come sooner."""
TAIL_BYTES = 1024
"""A tar ends with two empty blocks, of 512 bytes each; the ends of all others are shorter, but for a comment in a
zip."""
Kinds = tuple[str, str]
"""Of the first and the last bytes of a file; each is empty if only a look shows how they join."""
UNKNOWN_KINDS: Kinds = ("", "")
INCARNATION = "rollingfsincarnation"
OFFSET = "rollingfsoffset"
CHECKSUM = "rollingfscrc32c"
LAST = "rollingfslast"
SEGMENT = "rollingfssegment"
END = "rollingfsend"
VERSION = "rollingfsversion"

NAME_BYTES_MAX = 1024
"""A store keeps some 2 KiB of metadata with an object."""

# `re` compiles them at their first use: only a rebuild reads labels
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NUMBER = r"0|[1-9][0-9]{0,18}"
_LAST = r"(0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) ([0-9A-Za-z._-]+)(?: ([0-9a-z_-]+))?"
_CRC = r"[0-9a-f]{8}"


@value_class
class Last:
    """The last chunk of a header that was committed: it has the whole of a file in the own folder."""

    start: int
    length: int
    file: str
    tier: str = ""

    @staticmethod
    def of(header: Header) -> Last | None:
        """Return the last chunk of a header; None if its last entry is not such a chunk."""
        entry = header.entries[-1] if header.entries else None
        if not isinstance(entry, Chunk) or entry.length != entry.size:
            return None
        found = Last(entry.start, entry.length, entry.file, entry.tier)
        return found if re.fullmatch(_LAST, found.text) else None

    @property
    def text(self) -> str:
        return f"{self.start} {self.length} {self.file} {self.tier}".rstrip()


@value_class
class Label:
    """Facts of a file when its writing begins; no reader of a segment relies on them."""

    incarnation: str | None = None
    """Of the segment that it is written for."""
    offset: int | None = None
    """Segment offset that its first byte is expected to have."""
    crc32c: int | None = None
    """Checksum of the file."""
    last: Last | None = None
    """The last chunk of the incarnation when the writing began: it proves the place of that chunk."""
    end: int | None = None
    """Of a file that was moved or joined: the segment offset after its last byte."""
    name: str | None = None
    """Of such a file: the path of the segment."""

    def metadata(self) -> dict[str, str]:
        """Return the label as metadata of an object."""
        crc, last = self.crc32c, self.last
        fields = {
            INCARNATION: self.incarnation,
            OFFSET: self.offset,
            CHECKSUM: None if crc is None else f"{crc:08x}",
            LAST: None if last is None else last.text,
        }
        found = {name: str(value) for name, value in fields.items() if value is not None}
        if self.end is not None and self.name is not None:
            found |= {END: str(self.end), SEGMENT: quote(self.name)[:NAME_BYTES_MAX], VERSION: __version__}
        return found


def parse_label(metadata: Mapping[str, str]) -> Label | None:
    """Return the label in an object's metadata; malformed fields count as missing."""
    # older files have hyphens, and on Azure underscores
    given = {re.sub("[-_]", "", key).lower(): value for key, value in metadata.items()}
    incarnation, offset, crc = (given.get(key, "") for key in (INCARNATION, OFFSET, CHECKSUM))
    last = re.fullmatch(_LAST, given.get(LAST, ""))
    label = Label(
        incarnation if re.fullmatch(_UUID, incarnation) else None,
        int(offset) if re.fullmatch(_NUMBER, offset) else None,
        int(crc, 16) if re.fullmatch(_CRC, crc) else None,
        Last(int(last[1]), int(last[2]), last[3], last[4] or "") if last else None,
    )
    return label if label != Label() else None
