"""The states of segments, and their outlook: bytes in each store, and bytes that wait to be moved or deleted.

Of all below a folder, with a listing for each folder, and a read of each header that is new. Where the client has
tiers, the policies of the folders are read too: below by the listing, and above once in `POLICIES_S_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import add, attrgetter

from rollingfs.errors import ConflictError, CorruptHeaderError
from rollingfs.folders.collect_tree import tree_of
from rollingfs.folders.listing import REPORT, tree
from rollingfs.format import names
from rollingfs.format.header import Chunk, Entry, Header, Phase
from rollingfs.format.transitions import live
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.index_pages import read_map
from rollingfs.segment.files.rewrite_plan import Asked, Chosen, Plan, Run, joins, may_join, size_of
from rollingfs.segment.segment import Segment
from rollingfs.stream.blocks import mover_of
from rollingfs.stream.ledger import Ledgers, policies_of

SIZES = (
    (64 << 10, "< 64 KiB"),
    (1 << 20, "< 1 MiB"),
    (16 << 20, "< 16 MiB"),
    (64 << 20, "< 64 MiB"),
    (None, "64 MiB or more"),
)
"""Classes of chunks by their bytes."""
CHUNKS_MAX = 65_536
"""Of a segment with more chunks, index pages that are not read are left out of the plans."""


@value_class
class Outlook:
    """The number of chunks, and the chunks that the next round of upkeep joins or moves. Both can be added up."""

    sizes: tuple[int, ...] = (0,) * len(SIZES)
    """The number of chunks of each class in `SIZES`."""
    joins: int = 0
    """Chunks that consolidation joins."""
    joins_to: int = 0
    """Chunks that it makes of them."""
    join_bytes: int = 0
    moves: int = 0
    """Chunks that the offload policy moves."""
    moves_to: int = 0
    """Blocks that it makes of them."""
    move_bytes: int = 0

    @property
    def saved_objects(self) -> int:
        """Objects that there are fewer then, and requests that a read of everything makes fewer."""
        return self.joins - self.joins_to + self.moves - self.moves_to

    def plus(self, other: Outlook) -> Outlook:
        """Return both together."""
        sizes = tuple(map(sum, zip(self.sizes, other.sizes, strict=True)))
        return Outlook(sizes, *map(add, _counts(self), _counts(other)))

    @staticmethod
    def of(
        header: Header, entries: Sequence[Entry], now_ms: int, stores: Sequence[str], mover: Plan | None = None
    ) -> Outlook:
        """Return the outlook of a segment.

        Parameters
        ----------
        entries
            The entries of the header. Of an index page that is not unfolded, all chunks count as equally long.
        stores
            As of `joins`.
        mover
            The chunks that the offload policy moves; None without a policy.
        """
        sizes = [0] * len(SIZES)
        for entry in entries:
            count = _count(entry)
            sizes[size_class(entry.length / count)] += count
        planned = [entry for entry in entries if isinstance(entry, Chunk) or header.chunk_count <= CHUNKS_MAX]
        chunks = [chunk for entry in planned for chunk in _chunks(entry, header) if chunk.end > header.start]
        moved: list[Run] = []
        joined: list[Run] = []
        if mover is not None and header.phase is not Phase.MERGING:
            moved = mover(header, chunks, now_ms, True)[1]
        if may_join(header):
            joined = joins(stores, by_itself=True)(header, _after(chunks, moved), now_ms, True)[1]
        return Outlook(tuple(sizes), *_sums(joined), *_sums(moved))


_counts = attrgetter("joins", "joins_to", "join_bytes", "moves", "moves_to", "move_bytes")


def size_class(size: float) -> int:
    """Return the class in `SIZES` of a chunk."""
    return next(index for index, (limit, _) in enumerate(SIZES) if limit is None or size < limit)


def _count(entry: Entry) -> int:
    """Return its chunks. A page that begins within its file lists more chunks than it uses, or than it has bytes."""
    return 1 if isinstance(entry, Chunk) else min(entry.count, entry.length)


def _chunks(entry: Entry, header: Header) -> Iterator[Chunk]:
    if isinstance(entry, Chunk):
        yield entry
    else:
        start, count = entry.start, _count(entry)
        for index in range(count):
            length = entry.length // count + (index < entry.length % count)
            yield Chunk(start, length, entry.file, None, header.modified_ms)
            start += length


def _after(chunks: Sequence[Chunk], moved: Sequence[Run]) -> list[Chunk]:
    """Return the chunks once the runs have moved: upkeep joins after it has moved."""
    gone = {chunk.start for run, _ in moved for chunk in run}
    blocks = []
    for run, tier in moved:
        size = size_of(run)
        blocks.append(replace(run[0], length=size, offset=0, size=size, tier=tier, pieces=()))
    left = [chunk for chunk in chunks if chunk.start not in gone]
    return sorted([*left, *blocks], key=lambda chunk: chunk.start)


def _sums(runs: Sequence[Run]) -> tuple[int, int, int]:
    return sum(len(run) for run, _ in runs), len(runs), sum(size_of(run) for run, _ in runs)


@value_class
class SegmentState:
    """A segment or plain file as maintenance sees it. Sizes are in bytes, offsets are segment offsets."""

    path: str
    state: str
    """``"open"``, ``"sealed"``, ``"merging"``, ``"plain"`` or ``"unreadable"``; then only `error` has more."""
    start: int = 0
    """Offset of the first retained byte."""
    length: int = 0
    """End offset."""
    hot_bytes: int = 0
    """Retained bytes in the hot store, with those inside the header."""
    cold_bytes: int = 0
    """Retained bytes in tiers."""
    inline_bytes: int = 0
    """Bytes inside the header, which no offload moves."""
    cold_end: int = 0
    """All retained bytes before this offset are in tiers."""
    lag_bytes: int = 0
    """Bytes that an offload would move now."""
    lag_s: float = 0.0
    """The age, in seconds, of the oldest chunk that an offload would move now; 0.0 if it would move no chunk."""
    drops: int = 0
    """Drop lines: things that are no longer part of the segment and that wait to be deleted."""
    chunks: int = 0
    version: int = 0
    """Number of the last commit."""
    committed: float = 0.0
    """Date of the last commit, in seconds since 1970."""
    rewritten: int = 0
    """Bytes that consolidations have rewritten so far."""
    outlook: Outlook = Outlook()
    """Its chunks by size, and the chunks that the next round of upkeep joins or moves."""
    error: str | None = None

    @property
    def size(self) -> int:
        """Bytes retained."""
        return self.length - self.start

    @staticmethod
    def of(path: str, header: Header, chunks: Sequence[Chunk], count: int, chosen: Chosen, now_ms: int) -> SegmentState:
        """Return the state of a segment.

        Parameters
        ----------
        chunks
            The chunks of the header, index pages unfolded. Without chunks, all bytes are hot and stay.
        count
            Number of the segment's chunks.
        chosen
            The chunks that an offload would move.
        """
        cold = sum(_retained(chunk, header) for chunk in chunks if chunk.tier)
        cold_end = header.start
        for chunk in chunks:
            if not chunk.tier:
                break
            cold_end = chunk.end
        waiting = [chunk for chunk in chunks if not chunk.tier and chosen.has(chunk, header, now_ms)]
        oldest_ms = min((chunk.at_ms for chunk in waiting), default=now_ms)
        return SegmentState(
            path,
            str(header.phase),
            header.start,
            header.length,
            header.size - cold,
            cold,
            len(header.tail),
            cold_end,
            sum(_retained(chunk, header) for chunk in waiting),
            max(0, now_ms - oldest_ms) / 1000,
            len(header.drops),
            count,
            header.version,
            header.modified_ms / 1000,
            header.rewritten,
        )


def _retained(chunk: Chunk, header: Header) -> int:
    """Return the bytes of a chunk that have not been truncated away."""
    return chunk.end - max(chunk.start, header.start)


async def states_below(ledgers: Ledgers, path: str, depth_max: int | None, chosen: Chosen) -> list[SegmentState]:
    """Return the states at or below a path, sorted by path, with unreadable segments.

    A listing with tokens spares the read of known headers.

    Parameters
    ----------
    ledgers
        The policies of folders as the last look found them.

    Raises
    ------
    FileNotFoundError
        No segment, file or folder has this name.
    PermissionError
        The folder cannot be listed.
    """
    client = ledgers.client
    scans = await tree(client, path, depth_max, on_error=REPORT)
    views = [view for scan in scans.values() for view in scan.listed.values()]
    failed = {one: error for scan in scans.values() for one, error in scan.errors.items()}
    failed |= {f"{scan.path}/": scan.error for scan in scans.values() if scan.error is not None}
    if not scans:
        views = [await client.headers.view(path, fresh=True)]
    if client.backend.tiers:
        below = tree_of(scans)
        await ledgers.renew(below if scans else replace(below, segments=frozenset([path])))
    found = await client.contents.gather([partial(_state, client, ledgers, view, chosen) for view in views])
    found += [SegmentState(one, "unreadable", error=str(error)) for one, error in failed.items()]
    return sorted(found, key=lambda one: one.path)


async def _state(client: At, ledgers: Ledgers, view: Segment, chosen: Chosen) -> SegmentState:
    if view.header is None:
        assert view.plain is not None
        size = view.size
        return SegmentState(view.path, "plain", 0, size, size, chunks=int(size > 0), committed=view.plain.modified)

    async def read(loaded: Segment) -> SegmentState:
        header = live(loaded.header, view.path)
        chunks, entries = [], list[Entry](header.entries)
        if header.tiers or client.backend.tiers or chosen != Chosen():
            listed = await client.pages.unfold(view.path, header.entries)
            chunks = [chunk for chunk in listed if chunk.end > header.start]
            entries = list[Entry](chunks)
        count, now_ms = await client.pages.count(view.path, header), client.now_ms()
        ledger = ledgers.by_folder.get(names.parent(view.path))
        offload = None if ledger is None else policies_of(view.path, header, ledger, client.offload_policy).offload
        asked = Asked.by(offload)
        mover, stores = None if asked is None else mover_of(asked), ("", *client.backend.tiers)
        state = SegmentState.of(view.path, header, chunks, count, chosen, now_ms)
        return replace(state, outlook=Outlook.of(header, entries, now_ms, stores, mover))

    try:
        return await read_map(client.headers, view.path, read, view)
    except (FileNotFoundError, CorruptHeaderError, ConflictError) as error:
        return SegmentState(view.path, "unreadable", error=str(error))
