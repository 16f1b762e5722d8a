"""Verify every chunk: its file is there, with the size and the checksum that the header contains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rollingfs.backend.tier_marks import check_marks
from rollingfs.backend.tiers import check_tiers
from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.header import Chunk, Entry, Header
from rollingfs.runtime.meters import Progress, Steps
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.chunk_files import read_checksum
from rollingfs.segment.commit.index_pages import LOOKS_MAX
from rollingfs.segment.segment import Segment

READ_BYTES_MAX = 4 * 1024 * 1024

OK = "ok"
MISSING = "missing"
SHORT = "too short"
LONG = "too long"
CORRUPT = "corrupt"


@value_class
class Verified:
    """A chunk, and the state of its file."""

    start: int
    """Segment offset of its first byte that is used."""
    length: int
    """Bytes used."""
    file: str
    """Path on the backend."""
    size: int
    """Bytes of the file, by the header."""
    found_size: int | None
    """Bytes of the file, as far as they were read; None if it is missing."""
    crc32c: int | None
    """By the header; None for an adopted plain file, or chunks joined of parts."""
    state: str
    """``"ok"``, ``"missing"``, ``"too short"``, ``"too long"`` or ``"corrupt"``."""

    @property
    def ok(self) -> bool:
        """Whether the file is whole."""
        return self.state == OK


async def verify(at: At, path: str, *, progress: Progress | None = None) -> list[Verified]:
    """Return a row for each chunk, in order.

    An index page that cannot be read is a row for all its chunks. The header itself, with its inline tail, was checked
    when it was read.

    Parameters
    ----------
    progress
        Takes the number of bytes that were read since the last call; all of them are the segment's size.

    Raises
    ------
    FileNotFoundError
        There is no such segment or file.
    CorruptHeaderError
        The header is damaged.
    UnknownTierError
        A chunk is in a tier that is not configured.
    """
    view = await at.headers.view(path, fresh=True)
    known: dict[str, Verified] = {}
    steps = Steps(view.size, progress)
    for _ in range(LOOKS_MAX):
        rows = await _look(at, view, known, steps)
        again = await at.headers.view(path, fresh=True)
        if all(row.ok for row in rows) or _version(again) == _version(view):
            break
        view = again  # a chunk that seems damaged may have been replaced or truncated
        known = {row.file: row for row in rows if row.ok}
    steps.reach(steps.total)
    return rows


async def _look(at: At, view: Segment, known: dict[str, Verified], steps: Steps) -> list[Verified]:
    header = view.header
    if header is None:
        return [Verified(0, view.size, view.path, view.size, view.size, None, OK)] if view.size else []
    rows: list[Verified] = []
    chunks: list[Chunk] = []
    for entry in header.entries:
        try:
            found = await at.pages.unfold(view.path, [entry])
        except (FileNotFoundError, CorruptHeaderError) as error:
            rows.append(_damaged_page(view.path, header, entry, error))
            continue
        chunks += [chunk for chunk in found if chunk.end > header.start]
    check_tiers(at.backend, (names.locate(view.path, chunk.file, chunk.tier) for chunk in chunks))
    calls = [partial(_check, at, view.path, chunk, known, steps) for chunk in chunks]
    rows += await at.runtime.gather(calls, at.backend.capability.requests_max)
    absent = {names.split_tier(row.file)[0] for row in rows if row.state == MISSING}
    await check_marks(at.backend, at.runtime, [line for line in header.tiers if line.alias in absent], view.path)
    return sorted(rows, key=lambda row: row.start)


async def _check(at: At, path: str, chunk: Chunk, known: dict[str, Verified], steps: Steps) -> Verified:
    file = names.locate(path, chunk.file, chunk.tier)
    size: int | None = known[file].found_size if file in known else None
    state = OK
    if file not in known:
        size, state = await _read(at, file, chunk, steps)
    return Verified(chunk.start, chunk.length, file, chunk.size, size, chunk.crc32c, state)


async def _read(at: At, file: str, chunk: Chunk, steps: Steps) -> tuple[int | None, str]:
    """Read a whole file, and a byte more if there is any."""
    try:
        crc, size = await read_checksum(at.backend, file, chunk.size, steps, READ_BYTES_MAX)
    except FileNotFoundError:
        return None, MISSING
    if size != chunk.size:
        return size, SHORT if size < chunk.size else LONG
    return size, OK if chunk.crc32c is None or crc == chunk.crc32c else CORRUPT


def _version(view: Segment) -> tuple[str | None, int]:
    return (view.header.segment, view.header.version) if view.header else (view.token, 0)


def _damaged_page(path: str, header: Header, entry: Entry, error: Exception) -> Verified:
    start = max(entry.start, header.start)
    state = MISSING if isinstance(error, FileNotFoundError) else CORRUPT
    crc = entry.crc32c
    return Verified(start, entry.end - start, names.resolve(path, entry.file), entry.size, None, crc, state)


def damaged(rows: Sequence[Verified]) -> list[Verified]:
    """Return the rows of damaged chunks."""
    return [row for row in rows if not row.ok]
