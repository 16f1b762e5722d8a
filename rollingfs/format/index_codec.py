"""Index pages: immutable lists of chunks for which the header has no room. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import overload

from rollingfs.format import line_codec, tokens
from rollingfs.format.crc import crc32c
from rollingfs.format.header import LARGE_PAGE_CHUNKS, OFFSET_MAX, Chunk, Page

PAGE_FORMAT = "rollingfs-index 1"
PAGE_BYTES_MAX = 16 * 1024 * 1024
"""Room for the most chunks with references of 1,024 characters, each of them escaped."""

_RANGE = r"(?m)^Chunk (0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) "


class ListedChunks(Sequence[Chunk]):
    """The chunks of an index page. The page's checksum and ranges are checked; each line is parsed at its first use.

    A random read needs a few of 4,096 lines.

    Raises
    ------
    CorruptHeaderError
        An access meets a malformed line.
    """

    __slots__ = ("_lines", "_name")

    def __init__(self, chunk_lines: Sequence[str], name: str) -> None:
        self._lines = chunk_lines
        self._name = name

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Chunk, ...]: ...
    def __getitem__(self, index: int | slice) -> Chunk | tuple[Chunk, ...]:
        if isinstance(index, slice):
            return tuple(map(self._parse, range(*index.indices(len(self)))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._parse(index % len(self))

    def _parse(self, index: int) -> Chunk:
        line = self._lines[index]
        try:
            return line_codec.parse_chunk_line(line)
        except (ValueError, IndexError) as error:
            tokens.corrupt(self._name, index + 2, line, error)


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
    """Read an index page and check it; with `page`, against the header's line.

    Raises
    ------
    CorruptHeaderError
        The page is malformed, or not the page that the header names.
    """
    position, line = 0, ""
    try:
        tokens.check_size(data, PAGE_BYTES_MAX)
        if page and (len(data) != page.size or crc32c(data) != page.crc32c):
            raise tokens.Malformed("it does not have the size and the checksum that the header says")
        text_lines, end = tokens.split_text(data, PAGE_FORMAT)
        ranges = re.findall(_RANGE, "\n".join(text_lines))
        if len(ranges) != len(text_lines):
            for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
                if not re.match(_RANGE, line):
                    line_codec.parse_chunk_line(line)  # raises the line's error
                    raise tokens.Malformed("has an impossible range")
        position, line = 0, ""
        _check_ranges(ranges, page)
        if end != len(data):
            raise tokens.Malformed("it has bytes after its end")
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, position, line, error)
    return ListedChunks(text_lines, name)


def _check_ranges(ranges: Sequence[tuple[str, str]], page: Page | None) -> None:
    if not 1 <= len(ranges) <= LARGE_PAGE_CHUNKS or (page and len(ranges) != page.count):
        raise tokens.Malformed("it does not have as many chunks as the header says, or more than a page may have")
    starts = [int(start) for start, _ in ranges]
    ends = list(accumulate(int(length) for _, length in ranges))
    if starts[0] != 0 or ends[-1] > OFFSET_MAX or (page and ends[-1] < page.offset + page.length):
        raise tokens.Malformed("its chunks do not cover the range that the header says")
    if starts[1:] != ends[:-1]:
        raise tokens.Malformed("its chunks leave a gap or overlap")
