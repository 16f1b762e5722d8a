"""Content of a picture of a segment: the truncated bytes, the chunks with the rest, and their folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rollingfs.format.header import Chunk, Entry, Page
from rollingfs.runtime.values import value_class
from rollingfs.segment.files.state import SIZES, size_class
from rollingfs.segment.segment import Segment
from rollingfs.show.readable import count_text

WIDTH = 72
"""Characters of the bar."""
OWN = "its own folder"
INLINE = "inline in the header"
PAGES = "index pages"
"""Folder of chunks that only index pages list."""
AGES = ((60, "< 1 min"), (3600, "< 1 h"), (86400, "< 1 day"), (7 * 86400, "< 1 week"), (None, "1 week or more"))
"""Classes of chunks by the seconds since they were written."""


@value_class
class ChunkRun:
    """Neighbouring chunks of a folder, or the inline tail."""

    start: int
    """Segment offset of the first byte retained."""
    end: int
    count: int
    """Chunks; 0 for the inline tail."""
    where: str


def _where(entry: Entry) -> str:
    if isinstance(entry, Page):
        return PAGES
    folder = entry.file.rpartition("/")[0] or OWN
    return f"{folder}, tier {entry.tier}" if entry.tier else folder


def runs(entries: Iterable[Entry], start: int, length: int) -> Iterator[ChunkRun]:
    """Yield the retained bytes of a segment as runs of chunks by folder, the inline tail last.

    Parameters
    ----------
    entries
        Chunks, or what the header itself lists: an index page then stands for all its chunks.
    start, length
        Segment offsets of the first retained byte and of the end.
    """
    run: ChunkRun | None = None
    end = start
    for entry in entries:
        where = _where(entry)
        count = entry.count if isinstance(entry, Page) else 1
        end = entry.end
        if run is not None and run.where == where:
            run = ChunkRun(run.start, end, run.count + count, where)
            continue
        if run is not None:
            yield run
        run = ChunkRun(max(entry.start, start), end, count, where)
    if run is not None:
        yield run
    if end < length:
        yield ChunkRun(end, length, 0, INLINE)


@value_class
class Cell:
    """An equal part of a segment's offsets, described by the chunk with its first byte."""

    size: int
    """Bytes of that chunk; 0 for the inline tail and for truncated bytes."""
    age: int
    """The chunk's class in `AGES`."""
    start: int = 0
    """Segment offset of the chunk's first byte, which distinguishes neighbours of equal size."""
    is_gone: bool = False


@dataclass(slots=True)
class Class:
    """Chunks of about the same size, or age."""

    label: str
    count: int = 0
    bytes: int = 0


@value_class
class Leftovers:
    """Files of a segment's folder without a reference."""

    files: int = 0
    bytes: int = 0


@value_class
class MapOutline:
    """All that a picture of a segment shows."""

    path: str
    state: str
    version: int
    start: int
    length: int
    cells: Sequence[Cell]
    runs: Sequence[ChunkRun]
    sizes: Sequence[Class]
    ages: Sequence[Class]
    garbage: Leftovers

    @property
    def chunks(self) -> int:
        """Return the number of chunks."""
        return sum(run.count for run in self.runs)

    @property
    def tail_bytes(self) -> int:
        """Return bytes inline in the header."""
        return sum(run.end - run.start for run in self.runs if run.count == 0)

    @property
    def title(self) -> str:
        """Return the segment in a line, without its path."""
        facts = f"{self.state}, version {self.version}, start {self.start:,}, length {self.length:,}"
        bytes_ = f"{self.length - self.start:,} bytes in {count_text(self.chunks, 'chunk')}"
        return f"{facts}: {bytes_}{f', {self.tail_bytes:,} inline' if self.tail_bytes else ''}"


def outline(
    view: Segment, chunks: Iterable[Chunk], *, now_s: float, width: int = WIDTH, garbage: Leftovers | None = None
) -> MapOutline:
    """Return the content of a picture of a segment.

    Memory does not grow with the number of chunks.

    Parameters
    ----------
    chunks
        The chunks of the segment, in order, without the inline tail.
    now_s
        The time to which ages are counted, in seconds since 1970.
    width
        Number of cells of equal offsets.
    """
    tally = _Tally(view.start, view.length, now_s, width)
    found = list(runs(tally.noted(chunks), view.start, view.length))
    if found and found[-1].count == 0 and tally.cells:
        tally.cells[-1] = Cell(0, 0)  # an inline tail is shown, however short it is
    return MapOutline(
        view.path,
        view.state,
        view.version,
        view.start,
        view.length,
        tally.cells,
        found,
        tally.sizes,
        tally.ages,
        garbage or Leftovers(),
    )


@dataclass(slots=True)
class _Tally:
    """Counts chunks as they pass by."""

    start: int
    length: int
    now_s: float
    width: int
    cells: list[Cell] = field(init=False)
    sizes: list[Class] = field(default_factory=lambda: [Class(label) for _, label in SIZES])
    ages: list[Class] = field(default_factory=lambda: [Class(label) for _, label in AGES])

    def __post_init__(self) -> None:
        gone = self._columns(0, self.start)
        self.cells = [Cell(0, 0, is_gone=column in gone) for column in range(self.width if self.length else 0)]

    def noted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            size = chunk.end - max(chunk.start, self.start)
            age = _age_class(self.now_s - chunk.at_ms / 1000)
            for found in (self.sizes[size_class(size)], self.ages[age]):
                found.count += 1
                found.bytes += size
            for column in self._columns(max(chunk.start, self.start), chunk.end):
                self.cells[column] = Cell(size, age, chunk.start)
            yield chunk

    def _columns(self, first: int, end: int) -> range:
        """Return the cells whose first byte is between two offsets."""
        return range(*(-(-offset * self.width // self.length) for offset in (first, end))) if self.length else range(0)


def _age_class(seconds: float) -> int:
    return next(index for index, (limit, _) in enumerate(AGES) if limit is None or seconds < limit)
