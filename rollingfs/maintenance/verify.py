"""Checks every chunk that a header names: the file exists, and has the size and checksum that the header gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rollingfs.backend.tier_marks import check_marks
from rollingfs.backend.tiers import check_tiers
from rollingfs.commit.index_pages import LOOKS_MAX
from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.crc import crc32c
from rollingfs.format.header import Chunk, Entry, Header
from rollingfs.maintenance.steps import Progress, Steps
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Snapshot
from rollingfs.runtime.values import value_class

READ_BYTES_MAX = 4 * 1024 * 1024

OK = "ok"
MISSING = "missing"
SHORT = "too short"
LONG = "too long"
CORRUPT = "corrupt"


@value_class
class Verified:
    """What verification found of one chunk."""

    start: int
    """Segment offset of its first byte that is used."""
    length: int
    """Bytes used."""
    file: str
    """Path on the backend."""
    size: int
    """Bytes of the file, as the header says."""
    found_size: int | None
    """Bytes of the file, as far as they were read; None if it is missing."""
    crc32c: int | None
    """As the header says; None for an adopted plain file, or chunks joined of parts."""
    state: str
    """``"ok"``, ``"missing"``, ``"too short"``, ``"too long"`` or ``"corrupt"``."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.state == OK


class Verifier:
    """Reads all chunks of segments, and compares them with the headers."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher

    async def verify(self, path: str, *, progress: Progress | None = None) -> list[Verified]:
        """One row for each chunk, in order; an index page that cannot be read is one row for all its chunks.

        The header itself, with its inline tail, was checked when it was read.

        Parameters
        ----------
        progress
            Takes the number of bytes that were read since the last call; all of them are the segment's size.

        Raises
        ------
        FileNotFoundError
            Nothing is at the path.
        CorruptHeaderError
            The header is damaged.
        UnknownTierError
            Chunks lie in a tier that is not configured.
        """
        view = await self.fetcher.lookup.view(path, fresh=True)
        known: dict[str, Verified] = {}
        steps = Steps(view.size, progress)
        for _ in range(LOOKS_MAX):
            rows = await self._look(view, known, steps)
            again = await self.fetcher.lookup.view(path, fresh=True)
            if all(row.ok for row in rows) or _version(again) == _version(view):
                break
            view = again  # a chunk that seems damaged may have been replaced or truncated meanwhile
            known = {row.file: row for row in rows if row.ok}
        steps.reach(steps.total)
        return rows

    async def _look(self, view: Snapshot, known: dict[str, Verified], steps: Steps) -> list[Verified]:
        header = view.header
        if header is None:
            return [Verified(0, view.size, view.path, view.size, view.size, None, OK)] if view.size else []
        rows: list[Verified] = []
        chunks: list[Chunk] = []
        for entry in header.entries:
            try:
                found = await self.fetcher.pages.unfold(view.path, [entry])
            except (FileNotFoundError, CorruptHeaderError) as error:
                rows.append(_damaged_page(view.path, header, entry, error))
                continue
            chunks += [chunk for chunk in found if chunk.end > header.start]
        check_tiers(self.fetcher.backend, (names.locate(view.path, chunk.file, chunk.tier) for chunk in chunks))
        calls = [partial(self._check, view.path, chunk, known, steps) for chunk in chunks]
        rows += await self.fetcher.runtime.gather(calls, self.fetcher.backend.requests_max)
        absent = {names.split_tier(row.file)[0] for row in rows if row.state == MISSING}
        await check_marks(
            self.fetcher.backend,
            self.fetcher.runtime,
            [line for line in header.tiers if line.alias in absent],
            view.path,
        )
        return sorted(rows, key=lambda row: row.start)

    async def _check(self, path: str, chunk: Chunk, known: dict[str, Verified], steps: Steps) -> Verified:
        file = names.locate(path, chunk.file, chunk.tier)
        size: int | None = known[file].found_size if file in known else None
        state = OK
        if file not in known:
            size, state = await self._read(file, chunk, steps)
        return Verified(chunk.start, chunk.length, file, chunk.size, size, chunk.crc32c, state)

    async def _read(self, file: str, chunk: Chunk, steps: Steps) -> tuple[int | None, str]:
        """Read a whole file, and ask for one byte more than there should be."""
        size = crc = 0
        try:
            while size <= chunk.size:
                end = min(size + READ_BYTES_MAX, chunk.size + 1)
                data = await self.fetcher.backend.read_range(file, size, end)
                crc = crc32c(data, crc)
                size += len(data)
                steps.add(len(data))
                if size < end:
                    break
        except FileNotFoundError:
            return None, MISSING
        if size != chunk.size:
            return size, SHORT if size < chunk.size else LONG
        return size, OK if chunk.crc32c is None or crc == chunk.crc32c else CORRUPT


def _version(view: Snapshot) -> tuple[str | None, int]:
    return (view.header.segment, view.header.version) if view.header else (view.token, 0)


def _damaged_page(path: str, header: Header, entry: Entry, error: Exception) -> Verified:
    start = max(entry.start, header.start)
    state = MISSING if isinstance(error, FileNotFoundError) else CORRUPT
    crc = entry.crc32c
    return Verified(start, entry.end - start, names.resolve(path, entry.file), entry.size, None, crc, state)


def damaged(rows: Sequence[Verified]) -> list[Verified]:
    """The rows that say that something is wrong."""
    return [row for row in rows if not row.ok]
