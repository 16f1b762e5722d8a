"""Index pages: immutable lists of chunks that have outgrown the header. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rollingfs import lines, words
from rollingfs.header import LARGE_PAGE_CHUNKS, Chunk, Page

PAGE_FORMAT = "rollingfs-index 1"


def format_page(chunks: Sequence[Chunk]) -> bytes:
    """An index page's content. Its chunks' offsets begin at 0; references are relative to the page's folder."""
    assert chunks[0].start == 0
    assert len(chunks) <= LARGE_PAGE_CHUNKS
    text = "\n".join([PAGE_FORMAT, *map(lines.format_chunk, chunks)]).encode() + b"\n"
    return words.seal_text(text)


def parse_page(data: bytes, page: Page | None, name: str) -> tuple[Chunk, ...]:
    """Read an index page and check it, against the header's line where that is known.

    Raises
    ------
    CorruptHeaderError
        It is malformed, or not the page that the header means.
    """
    position, line = 0, ""
    chunks: list[Chunk] = []
    try:
        if page and (len(data) != page.size or words.crc32c(data) != page.crc32c):
            raise words.Malformed("it has not the size or the checksum that the header says")
        text_lines, end = words.split_text(data, PAGE_FORMAT)
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            kind, *parts = line.split(" ")
            if kind != "Chunk":
                raise words.Malformed(f"line kind {kind!r} is too new for this release: upgrade rollingfs to read it")
            chunks.append(lines.parse_chunk(parts))
        position, line = 0, ""
        if end != len(data) or not chunks or (page and len(chunks) != page.count):
            raise words.Malformed("it has not as many chunks as the header says, or bytes after its end")
        if any(before.end != after.start for before, after in pairwise(chunks)):
            raise words.Malformed("its chunks leave a gap or overlap")
        if chunks[0].start != 0 or (page and chunks[-1].end < page.offset + page.length):
            raise words.Malformed("its chunks do not cover what the header says")
    except (ValueError, IndexError) as error:
        words.corrupt(name, position, line, error)
    return tuple(chunks)
