"""The commits of a rewrite: the line of a tier, before the first file in it; and the swap of chunks for new files.

A swap takes place on condition that exactly its chunks are still there. The old files are dropped, and stay for a while
for readers of older snapshots.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rollingfs.backend.tier_marks import find_mark, make_mark, missing, placed
from rollingfs.errors import CorruptHeaderError, NoBucketError, RollingError, TierFailedError
from rollingfs.format import merging, names, placement, transitions
from rollingfs.format.drops import is_deletable, is_own, merge_drops
from rollingfs.format.header import (
    AGE_S_MAX,
    LARGE_PAGE_CHUNKS,
    OFFSET_MAX,
    Chunk,
    Drop,
    Entry,
    Header,
    Page,
    Phase,
    Tier,
)
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.chunk_files import Stored, Uploads
from rollingfs.segment.commit.index_pages import read_map
from rollingfs.segment.commit.removals import check_line, finish_drops
from rollingfs.segment.files.rewrite_plan import PARTS_MAX, size_of
from rollingfs.segment.segment import Segment

NEIGHBOURS_MAX = 128
"""Maximum headers of a folder that are read before the mark of a tier is made: their lines show an earlier use."""
DROP_LINES_MAX = 16
"""More old chunks than this are listed in an index page of their own, which a single line drops."""
Swap = tuple[tuple[Chunk, ...], Stored]
"""A run of chunks, and the file that has its bytes and no others."""
Window = tuple[Header, Sequence[Chunk], bool]
"""A header, a part of its map that is enough for a commit, and whether the part is the last."""


# -- tiers -----------------------------------------------------------------------------------------------


async def young_line(at: At, path: str, header: Header, tier: str) -> Tier:
    """Return the line of a tier in a segment's header; commit a line that is missing, old, or of an older release.

    Raises
    ------
    FileNotFoundError
        The segment is gone, or has another incarnation than `header`.
    MissingTierError
        The tier is not there, though it was in use before, or it keeps the segment's files under another path.
    TierFailedError
        The tier's store failed.
    """
    now_ms = at.now_ms()
    with failing(path, tier):
        identity, place = await _found(at, path, header, tier)

    def is_good(line: Tier | None) -> bool:
        is_young = line is not None and 0 <= now_ms - line.at_ms <= AGE_S_MAX * 1000
        return line is not None and is_young and (line.id, line.path) == (identity, place)

    line = header.tier(tier)
    if line is not None and is_good(line):
        return line
    new = Tier(tier, line.key if line is not None else names.new_tier_key(), now_ms, identity, place)

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        nonlocal new
        found = transitions.live(base.header, path, header.segment)
        if found.phase is Phase.MERGING:
            raise transitions.MergeFoundError(path, found)
        there = found.tier(tier)
        if there is not None:  # another offload may have made it, with another key
            new = there if is_good(there) else replace(new, key=there.key)
        if new is there:
            return None
        others = tuple(one for one in found.tiers if one.alias != tier)
        return replace(found, tiers=(*others, new))

    await at.commits.commit(path, step)
    return new


async def _found(at: At, path: str, header: Header, tier: str) -> tuple[str, str]:
    """Return the id of a tier that is there, and the path by which it keeps the segment's files."""
    backend, line = at.backend, header.tier(tier)
    if line is None:
        if await find_mark(backend, at.runtime, tier) is None:
            await check_unused(at, path, tier)
        return await make_mark(backend, at.runtime, tier), placed(backend, path)
    identity = await check_line(at, path, header, line)
    return identity or await make_mark(backend, at.runtime, tier), placed(backend, path)


async def check_unused(at: At, path: str, tier: str) -> None:
    """Refuse to take a root without a mark for a tier that is used for the first time, if another segment has a line.

    Raises
    ------
    MissingTierError
        The tier was in use before, so its disk is not mounted, or its bucket was emptied.
    """
    try:
        entries = (await at.backend.list(names.parent(path))).entries
    except FileNotFoundError:  # in memory, the root is no folder
        return
    headers = [info.path for info in entries if info.path.endswith(names.HEADER_SUFFIX) and not info.is_folder]
    for file in headers[:NEIGHBOURS_MAX]:
        segment = names.segment_of_header(file)
        try:
            found = (await at.headers.load(segment)).header if names.parent(segment) != segment else None
        except CorruptHeaderError:
            continue
        if found is not None and (line := found.tier(tier)) is not None:
            if await find_mark(at.backend, at.runtime, tier) is not None:
                return  # another client has made the mark, and then this line, since the first look
            raise missing(at.backend, tier, path, line.id)


@contextlib.contextmanager
def failing(path: str, tier: str, source: str = "") -> Iterator[None]:
    """Say of an error of a store which segment and which tier it is about, and what became of the bytes.

    Raises
    ------
    TierFailedError
        A store did not do what it was asked to. Errors that name a tier already, and missing files, pass.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, RollingError | FileNotFoundError) and not isinstance(error, NoBucketError):
            raise
        what = f"{source} could not be moved" if source else "nothing could be moved"
        raise TierFailedError(
            f"{path}: the tier {tier!r} failed, so {what}; what was not moved stays where it was, nothing is lost: "
            f"repeat the call when the store answers. It said: {error}"
        ) from error


# -- chunks ----------------------------------------------------------------------------------------------


async def window(at: At, path: str, segment: str, position: int, bytes_max: int, known: Header | None = None) -> Window:
    """Return a header of an incarnation, and the chunks from `position` on.

    Parameters
    ----------
    known
        A header that serves as long as its index pages are there; by default the newest is loaded.

    Raises
    ------
    FileNotFoundError
        The segment is gone, or has another incarnation.
    CorruptHeaderError
        An index page is lost.
    ConflictError
        Its index pages change all the time.
    """

    async def read(loaded: Segment) -> Window:
        header = transitions.live(loaded.header, path, segment)
        return header, *await window_of(at, path, header, position, bytes_max)

    loaded = await at.headers.load(path) if known is None else Segment(path, known)
    return await read_map(at.headers, path, read, loaded)


async def live(at: At, path: str, segment: str | None) -> Header:
    """Return the header as it is now, if the segment exists and is of this incarnation."""
    return transitions.live((await at.headers.load(path)).header, path, segment)


async def window_of(at: At, path: str, header: Header, position: int, bytes_max: int) -> tuple[Sequence[Chunk], bool]:
    """Return the same of a header that was loaded.

    Raises
    ------
    PageGoneError
        An index page that it names is gone: it is not the newest header any more.
    """
    start = max(position, header.start)
    found: list[Chunk] = []
    size = 0
    for entry in placement.overlapping(header.entries, start, header.tail_start):
        if size >= bytes_max or len(found) >= 2 * PARTS_MAX:
            return found, False
        chunks = [chunk for chunk in await at.pages.unfold(path, [entry]) if chunk.end > start]
        found += chunks
        size += size_of(chunks)
    return found, True


async def is_there(at: At, path: str, segment: str, run: Sequence[Chunk]) -> bool:
    """Return whether a segment still names the files of a run; raises what `read_map` does."""

    async def read(loaded: Segment) -> bool:
        header = loaded.header
        if header is None or header.segment != segment or header.start > run[0].start:
            return False
        entries = placement.overlapping(header.entries, run[0].start, run[-1].end)
        files = {(chunk.tier, chunk.file) for chunk in await at.pages.unfold(path, entries)}
        return all((chunk.tier, chunk.file) in files for chunk in run)

    loaded = await at.headers.load(path)
    if not await read_map(at.headers, path, read, loaded):
        return False
    return await read_map(at.headers, path, read, await at.headers.load_newer(path, loaded.token))


async def swap_chunks(
    at: At,
    path: str,
    segment: str,
    swaps: Sequence[Swap],
    uploads: Uploads,
    *,
    lag_s: float,
    tiers: tuple[Tier, ...] = (),
    protects: bool = False,
    counts: bool = False,
) -> list[Swap]:
    """Replace the old chunks by the new files in a commit; return the swaps that took place.

    Parameters
    ----------
    segment
        The incarnation that is changed.
    lag_s
        Seconds for which the old files stay.
    tiers
        The tiers of the new files.
    protects
        Whether old files that others delete stay as long: each gets a line of its own in addition to the hint.
    counts
        Whether the header counts the bytes of the new files as rewritten.
    """
    done: list[Swap] = []

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        done.clear()
        found = base.header
        if found is None or found.deleted or found.segment != segment:
            return None
        if found.phase is Phase.MERGING:
            raise transitions.MergeFoundError(path, found)
        swapped, gone, pages = await _swapped(at, path, found, swaps, attempt, done)
        if not done:
            return None
        now_ms = at.now_ms()
        model = Drop("", now_ms, after_ms=now_ms + round(lag_s * 1000) if lag_s else 0)
        drops = await _drops(found, gone, pages, attempt, model, lasting=protects and model.after_ms > 0)
        new_bytes = sum(stored.size for _, stored in done) if counts else 0
        rewritten = min(found.rewritten + new_bytes, OFFSET_MAX)
        changed = replace(found, entries=swapped, drops=merge_drops(found.drops, drops), rewritten=rewritten)
        return merging.with_tiers(changed, tiers)

    committed = await at.commits.commit(path, step, uploads=[uploads])
    if done and committed.header is not None:
        await finish_drops(at, path, committed.header)
    return done


async def _swapped(
    at: At, path: str, header: Header, swaps: Sequence[Swap], attempt: Attempt, done: list[Swap]
) -> tuple[tuple[Entry, ...], list[Chunk], list[Page]]:
    """Return the entries in which the runs that are still there are swapped, and the chunks and pages that go."""
    swaps = sorted(swaps, key=lambda swap: swap[0][0].start)
    first, last = swaps[0][0][0].start, swaps[-1][0][-1].end
    old = placement.overlapping(header.entries, first, min(last, header.tail_start))
    chunks = [c for c in await at.pages.unfold(path, old) if c.end > header.start]
    index = {chunk.end: position for position, chunk in enumerate(chunks)}
    gone: list[Chunk] = []
    kept: list[Entry] = []
    position = 0
    for run, stored in swaps:
        end = index.get(run[-1].end, -1) + 1
        begin = end - len(run)
        if begin < position or not _is_same(chunks[begin:end], run, is_first=begin == 0):
            continue
        young = await attempt.files.young(stored, header)
        kept += [*chunks[position:begin], young.chunk(path, run[0].start)]
        gone += chunks[begin:end]
        position = end
        done.append((run, stored))
    if not old or not done:
        return header.entries, [], []
    place = header.entries.index(old[0])
    entries = (*header.entries[:place], *kept, *chunks[position:], *header.entries[place + len(old) :])
    return entries, gone, [entry for entry in old if isinstance(entry, Page)]


async def _drops(
    header: Header, gone: Sequence[Chunk], pages: Sequence[Page], attempt: Attempt, model: Drop, *, lasting: bool
) -> list[Drop]:
    """Return the drop lines: a line for each of few old chunks; of many, a line for each index page of neighbours.

    A rebuild takes the list of a page for chunks that were committed there. So the page contains their offsets.
    """
    files = list({(chunk.tier, chunk.file): chunk for chunk in gone}.values())
    entries: list[Entry] = [*files, *pages]
    drops = [
        replace(model, file=f"{names.parent(entry.file) or '.'}/", size=entry.size, after_ms=0)
        for entry in entries
        if not is_deletable(entry.file)
    ]
    drops += [replace(model, file=page.file) for page in pages if is_own(page.file)]
    listed = [chunk for chunk in files if lasting or is_deletable(chunk.file)]
    if len(listed) <= DROP_LINES_MAX:
        return drops + [replace(model, file=chunk.file, tier=chunk.tier) for chunk in listed]
    for run in _neighbours(listed):
        if len(run) == 1:
            drops.append(replace(model, file=run[0].file, tier=run[0].tier))
            continue
        page = await attempt.files.page(header, run)
        drops.append(replace(model, file=page.file, start=0, end=page.length, whole=True))
    return drops


def _neighbours(chunks: Iterable[Chunk]) -> list[tuple[Chunk, ...]]:
    """Return runs of chunks without gaps, each as long as an index page may be."""
    runs: list[list[Chunk]] = []
    for chunk in chunks:
        if runs and runs[-1][-1].end == chunk.start and len(runs[-1]) < LARGE_PAGE_CHUNKS:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [tuple(run) for run in runs]


def _is_same(found: Sequence[Chunk], run: Sequence[Chunk], *, is_first: bool) -> bool:
    """Return whether these are the chunks of a run, whose head may have been truncated before the run was planned."""
    if len(found) != len(run) or not found or not found[0].start <= run[0].start < found[0].end:
        return False
    head = found[0] if not is_first else placement.clip(found[0], run[0].start, found[0].end)
    return (head, *found[1:]) == tuple(run)
