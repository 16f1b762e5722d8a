"""Append data to a header, as entries and an inline tail, and truncate its head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rollingfs.errors import CorruptHeaderError
from rollingfs.format import placement, transitions
from rollingfs.format.drops import pages_to_truncate
from rollingfs.format.header import Chunk, Edges, Entry, Header, changed
from rollingfs.format.placement import Item
from rollingfs.format.side_files import UNKNOWN_KINDS, Kinds, Last
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.chunk_files import NewFiles, Stored, write_chunk, write_shared
from rollingfs.segment.commit.removals import check_there
from rollingfs.segment.commit.store import Store

UPLOADS_MAX = 8
"""Maximum chunks of a commit that are written at once."""


async def as_items(data: Sequence[bytes | Stored], files: NewFiles, header: Header | None) -> list[Item]:
    """Return bytes as they are; stored chunks as entries, written again if the age rule asks for it for this header."""
    items: list[Item] = []
    store_now = None
    for item in data:
        if isinstance(item, bytes):
            items += [item] if item else []
            continue
        if item.staged and store_now is None:
            store_now = await files.store.backend.now(files.path)
        items.append(files.entry(await files.young(item, header, store_now), 0))
    return items


async def grow(
    header: Header, items: Sequence[Item], attempt: Attempt, *, joint: bool = False, spill_all: bool = False
) -> Header:
    """Append items to a header; write as chunks what does not stay inline, with `spill_all` all items.

    Several pieces that are shorter than a chunk share a file. They are between entries, as the tails of a concat's
    sources, or few bytes between staged chunks; each would cost a request. With `joint`, long pieces share a file, too.
    """
    now_ms = attempt.store.now_ms()
    policy = header.policy
    spill_all = spill_all or (policy.max_age is not None and is_aged(header, now_ms))
    placed, tail = placement.arrange(header.tail, items, policy, spill_all=spill_all)
    if not placed:
        return transitions.extend(header, (), tail, now_ms)
    files = attempt.files
    spills = [item for item in placed if isinstance(item, bytes)]
    joint = len(spills) > 1 and (joint or sum(len(data) < policy.max_bytes for data in spills) > 1)
    written = iter(await (_joint(header, spills, policy.max_bytes, files) if joint else _each(header, placed, files)))
    entries: list[Entry] = [next(written) if isinstance(item, bytes) else item for item in placed]
    grown = transitions.extend(header, placement.place(entries, header.tail_start), tail, now_ms)
    return changed(grown, edges=_edges(header, grown.entries, files.kinds))


def _edges(header: Header, entries: Sequence[Entry], kinds: Mapping[str, Kinds]) -> Edges | None:
    """Return the edges of a header that has got more entries, by the kinds of new files."""
    known = header.edges or Edges(header.start, "", 0, "")
    start, head = known.start, known.head
    if not header.entries:
        start, head = header.start, kinds.get(entries[0].file, UNKNOWN_KINDS)[0]
    tail = kinds.get(entries[-1].file, UNKNOWN_KINDS)[1]
    return Edges(start, head, entries[-1].end, tail) if head or tail else None


async def behead(store: Store, path: str, header: Header, offset: int, *, is_erase: bool = False) -> Header:
    """Return a header without the bytes before an offset; refuse if a tier is not there that loses files.

    Parameters
    ----------
    is_erase
        No tier of the segment may be missing: it may have files that the header does not name.
    """
    if header.tiers:
        aliases = None if is_erase else await _losing(store, path, header, offset)
        await check_there(store, path, header, aliases)
    pages = {page: await store.pages.chunks(path, page) for page in pages_to_truncate(header, offset)}
    return transitions.truncate(header, offset, store.now_ms(), pages, path)


async def _losing(store: Store, path: str, header: Header, offset: int) -> set[str] | None:
    """Return the tiers with files that a truncation drops; None if an index page that lists some cannot be read."""
    entries = [entry for entry in header.entries if header.start < offset and entry.start < offset]
    try:
        chunks = await store.pages.unfold(path, entries)
    except (FileNotFoundError, CorruptHeaderError):
        return None
    return {chunk.tier for chunk in chunks if header.start < chunk.end <= offset}


def is_aged(header: Header, now_ms: int) -> bool:
    """Return whether the inline tail is older than the policy allows, so that it becomes a chunk.

    A wrong clock began a tail that is dated further ahead than this: its age is not known.
    """
    max_age = header.policy.max_age
    return max_age is not None and bool(header.tail) and abs(now_ms - header.tail_at_ms) > max_age * 1000


async def _each(header: Header, placed: Sequence[Item], files: NewFiles) -> list[Chunk]:
    """Write each spill as a chunk of its own, several at a time."""
    seen: Counter[bytes] = Counter()
    there = files.store.headers.seen(files.path)
    # the incarnation, if it is there already: each attempt of an overwrite has another
    is_there = there is not None and there.header is not None and there.header.segment == header.segment
    start, incarnation = header.tail_start, header.segment if is_there else None
    last = Last.of(header) if incarnation is not None else None
    calls: list[Callable[[], Awaitable[Chunk]]] = []
    for item in placed:
        if isinstance(item, bytes):
            seen[item] += 1
            calls.append(partial(_written, header, item, seen[item], start, files, incarnation, last))
        start += len(item) if isinstance(item, bytes) else item.length
    return await files.store.runtime.gather(calls, UPLOADS_MAX)


async def _joint(header: Header, spills: Sequence[bytes], size_max: int, files: NewFiles) -> list[Chunk]:
    """Write pieces into as few files as `size_max` allows; return an entry for each piece, to be placed."""
    entries: list[Chunk] = []
    groups: list[list[bytes]] = [[]]
    for data in spills:
        if groups[-1] and sum(map(len, groups[-1])) + len(data) > size_max:
            groups.append([])
        groups[-1].append(data)
    for nth, group in enumerate(groups):
        data = b"".join(group)
        stored = await files.once(data, -nth - 1, partial(write_shared, files.store, files.path, data), header)
        whole, offset = stored.chunk(files.path, 0), 0
        for piece in group:
            entries.append(replace(whole, length=len(piece), offset=offset, size=stored.size))
            offset += len(piece)
    return entries


async def _written(
    header: Header, data: bytes, nth: int, start: int, files: NewFiles, incarnation: str | None, last: Last | None
) -> Chunk:
    """Write bytes as a chunk.

    Equal bytes that come twice are two chunks (`nth`): two entries must not name the same file, because a
    truncation of the first entry would delete the bytes of the second.
    """
    write = partial(write_chunk, files.store, files.path, data, start, incarnation, last)
    return files.entry(await files.once(data, nth, write, header), start)
