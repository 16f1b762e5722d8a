"""The chunks of a segment as a lazy sequence: index pages are read when an item in them is asked for."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

from rollingfs.commit.shadowing import modified_ms
from rollingfs.format import names
from rollingfs.format.header import Chunk, Entry, Page
from rollingfs.fs.core import Core
from rollingfs.read.snapshot import Snapshot


class ChunkList(Sequence[Chunk]):
    """The chunks that hold the retained bytes of a snapshot, in order, without the inline tail.

    `len` reads no index page, unless the head of one was truncated away. A plain file is one chunk: itself.
    """

    def __init__(self, core: Core, snapshot: Snapshot) -> None:
        self._core = core
        self.snapshot = snapshot
        """The snapshot whose chunks these are."""
        self._entries: Sequence[Entry] = snapshot.header.entries if snapshot.header is not None else _plain(snapshot)

    @cached_property
    def _ends(self) -> list[int]:
        """The number of chunks up to each entry, its own included."""
        return list(itertools.accumulate(self._count(entry) for entry in self._entries))

    def _count(self, entry: Entry) -> int:
        if isinstance(entry, Chunk):
            return 1
        is_cut = entry.offset > 0 or entry.start < self.snapshot.start
        return len(self._chunks(entry)) if is_cut else entry.count

    def _chunks(self, entry: Entry) -> Sequence[Chunk]:
        if isinstance(entry, Chunk):
            return [entry]
        chunks = self._core.run(self._load(entry))
        return [chunk for chunk in chunks if chunk.end > self.snapshot.start]

    async def _load(self, page: Page) -> Sequence[Chunk]:
        try:
            return await self._core.client.pages.chunks(self.snapshot.path, page)
        except FileNotFoundError as error:
            path = self.snapshot.path
            raise FileNotFoundError(2, "The segment has changed since this snapshot: refresh() it", path) from error

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        position = index if index >= 0 else index + len(self)
        if not 0 <= position < len(self):
            raise IndexError(f"{self.snapshot.path}: there is no chunk {index}; it has {len(self)}")
        number = bisect.bisect_right(self._ends, position)
        first = self._ends[number - 1] if number else 0
        return self._chunks(self._entries[number])[position - first]

    def __iter__(self) -> Iterator[Chunk]:
        for entry in self._entries:
            yield from self._chunks(entry)

    def __repr__(self) -> str:
        return f"<{len(self)} chunks of {self.snapshot.path!r}>"


def _plain(snapshot: Snapshot) -> Sequence[Entry]:
    assert snapshot.plain is not None
    name = names.relative(names.parent(snapshot.path), snapshot.path)
    return [Chunk(0, snapshot.plain.size, name, None, modified_ms(snapshot.plain))] if snapshot.plain.size else []
