"""Drop lines: files that a segment does not refer to any more, their deletion, and erasing. Pure.

A client deletes a file in the segment's own folder as soon as its drop line is due. A file in another segment's folder,
or a staged file, is left to the collection of its folder: a hint leads there, a drop line that names the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rollingfs.format import line_codec, names, placement
from rollingfs.format.header import DROPS_MAX, Chunk, Drop, Entry, Header, Page
from rollingfs.format.side_files import ListedChunks

OWN_HINT = "./"
"""The hint at the segment's own folder, where files wait that only its collection deletes."""

Pages = Mapping[Page, Sequence[Chunk]]
"""The chunks of index pages, unfolded into a segment's own terms."""


def is_own(file: str) -> bool:
    """Return whether a reference names a file in the segment's own chunk folder."""
    return "/" not in file


def is_deletable(file: str) -> bool:
    """Return whether the segment itself deletes a chunk: its own, not staged."""
    return is_own(file) and not names.is_staged(file)


def pages_to_truncate(header: Header, offset: int) -> list[Page]:
    """Return the pages that a truncation must see: those with chunks that this segment may not delete itself."""
    return [
        entry
        for entry in header.entries
        if isinstance(entry, Page) and entry.start < offset and (entry.foreign or not is_own(entry.file))
    ]


def is_due(drop: Drop, now_ms: int) -> bool:
    """Return whether a drop line has done its service once the segment has deleted now what it may delete itself.

    A line of a file that others delete protects the file until its time has come.
    """
    if is_own(drop.file):
        return drop.after_ms <= now_ms
    return 0 < drop.after_ms <= now_ms and not drop.is_hint and not drop.is_page


def has_protected(drop: Drop, now_ms: int) -> bool:
    """Return whether a line protected foreign files until now.

    The segment itself does not delete them; a page may list some.
    """
    return protects(drop) and is_due(drop, now_ms)


def protects(drop: Drop) -> bool:
    """Return whether a line keeps files for a time that the segment itself does not delete; a page may list some."""
    return drop.after_ms > 0 and not drop.is_hint and (drop.is_page or not is_deletable(drop.file))


def dropped_chunks(segment: str, drop: Drop, listed: Sequence[Chunk] | ListedChunks = ()) -> list[str]:
    """Return the paths that the segment itself deletes for a drop line.

    Of a page, they are the paths of its `listed` chunks.
    """
    lines: Sequence[Chunk | Drop] = [drop]
    if drop.is_page:
        within = placement.overlapping(listed, drop.start, drop.end)
        lines = [chunk for chunk in within if isinstance(chunk, Chunk) and drop.start < chunk.end <= drop.end]
    return [names.locate(segment, line.file, line.tier) for line in lines if is_deletable(line.file)]


def drop_all(header: Header, now_ms: int) -> tuple[Drop, ...]:
    """Return the drop lines once the whole content is gone; pages with foreign chunks are left to collection."""
    drops: list[Drop] = []
    for entry in header.entries:
        if isinstance(entry, Chunk) or (not entry.foreign and is_own(entry.file)):
            drops += drops_of(entry, header.start, entry.end, now_ms, {})
    at_once = [replace(drop, after_ms=0) for drop in header.drops]  # readers lose the rest of it as well
    return merge_drops(at_once, drops)


def drops_of(entry: Entry, old_start: int, offset: int, now_ms: int, pages: Pages) -> Iterable[Drop]:
    """Yield the drop lines of an entry when the start moves from `old_start` to `offset`."""
    if isinstance(entry, Chunk):
        if entry.end <= offset:
            yield drop_line(entry, now_ms)
        return
    if entry.start >= offset:
        return
    whole = entry.end <= offset
    own = is_own(entry.file)
    if own:
        first = max(old_start, entry.start) - entry.start + entry.offset
        last = min(offset, entry.end) - entry.start + entry.offset
        yield Drop(entry.file, now_ms, first, last, whole)
    elif whole:
        yield drop_line(entry, now_ms)
    if entry.foreign or not own:
        gone = (chunk for chunk in pages[entry] if old_start < chunk.end <= offset)
        yield from (drop for drop in (drop_line(chunk, now_ms) for chunk in gone) if drop.is_hint)


def drop_line(entry: Entry, now_ms: int) -> Drop:
    """Return the drop line for the file of an entry; a hint where the collection of its folder deletes it."""
    if is_deletable(entry.file):
        return Drop(entry.file, now_ms, tier=entry.tier)
    return Drop(f"{names.parent(entry.file) or '.'}/", now_ms, size=entry.size)


def merge_drops(old: Sequence[Drop], new: Iterable[Drop]) -> tuple[Drop, ...]:
    """Join drop lines: a hint for each folder, within the limit of a header.

    Other lines are left out: the collection of their folder finds these files.
    """
    hints: dict[str, Drop] = {}
    rest: list[Drop] = []
    for drop in [*old, *new]:
        if drop.is_hint:
            known = hints.get(drop.file)
            hints[drop.file] = drop if known is None else replace(known, size=known.size + drop.size)
        else:
            rest.append(drop)
    rest.sort(key=lambda drop: not drop.is_page)
    return (*hints.values(), *rest)[:DROPS_MAX]


def with_hints(header: Header, folders: Iterable[str], now_ms: int) -> Header:
    """Note other chunk folders (references that end in "/") that this segment referred to until now.

    Their pins name this segment; the hints lead its collection there, and keep its tombstone until they are gone.
    """
    hints = [Drop(folder, now_ms) for folder in folders]
    return replace(header, drops=merge_drops(header.drops, hints)) if hints else header


def hinted(segment: str, header: Header) -> dict[str, Drop]:
    """Return the chunk folders of other segments to which a header has hints.

    A hint that climbs above the root is left out.
    """
    found = {}
    for drop in header.drops:
        if drop.is_hint and drop.file != OWN_HINT:
            folder = names.find(names.parent(segment), drop.file[:-1])
            if folder is not None:
                found[folder] = drop
    return found


def led_to(segment: str, header: Header) -> set[str]:
    """Return the chunk folders to which something else than its entries leads: files of the segment may wait there.

    Its hints lead to other folders. Dropped files, a hidden plain file and asks lead to its own.
    """
    folders = {*hinted(segment, header)}
    # of a line with an offset, an older release has carried the operation in another writer's commit
    has_own = header.drops or header.adopted or any(line.offset is not None for line in header.commits)
    return folders | {names.chunks_folder(segment)} if has_own else folders


def shed_drops(header: Header, over: int) -> Header:
    """Leave out drop lines, hints last, until the text is `over` bytes shorter: the map needs the room."""
    kept = list(header.drops)
    while kept and over > 0:
        over -= len(line_codec.format_drop(kept.pop()).encode()) + 1
    return replace(header, drops=tuple(kept))


def clear_drops(header: Header, done: Iterable[Drop]) -> Header:
    """Forget drop lines whose work is done."""
    gone = set(done)
    return replace(header, drops=tuple(drop for drop in header.drops if drop not in gone))


# -- erasing: a truncation after which no file that the header names holds bytes before the start ---------


Place = tuple[str, str]
"""A chunk file: the alias of its tier, and its reference."""


def place(chunk: Chunk) -> Place:
    """Return the file that a chunk names."""
    return chunk.tier, chunk.file


def parts(chunks: Iterable[Chunk], cut: int) -> list[Chunk]:
    """Return the retained parts of chunks that a cut has cut through."""
    kept = (placement.clip(chunk, cut, chunk.end) for chunk in chunks if chunk.end > cut)
    return [chunk for chunk in kept if chunk.length < chunk.size]


def to_rewrite(parts: Iterable[Chunk]) -> list[Chunk]:
    """Return the partial chunks whose files have unused bytes."""
    files: dict[Place, list[Chunk]] = {}
    for chunk in parts:
        files.setdefault(place(chunk), []).append(chunk)
    return [chunk for group in files.values() if not _is_covered(group) for chunk in group]


def _is_covered(group: Sequence[Chunk]) -> bool:
    """Return whether the chunks of a file use all of its bytes."""
    end = 0
    for chunk in sorted(group, key=lambda chunk: chunk.offset):
        if chunk.offset > end:
            return False
        end = max(end, chunk.offset + chunk.length)
    return end == group[0].size


def rewritten(
    header: Header, pages: Mapping[Page, Sequence[Chunk]], new: Mapping[Chunk, Chunk], now_ms: int
) -> tuple[Header, list[Chunk]]:
    """Replace retained parts by new chunks.

    Parameters
    ----------
    header
        It is truncated already: its start is the cut.
    pages
        The pages that list chunks to be replaced, unfolded into the segment's own terms.
    new
        The new chunks, by the retained parts whose place they take.

    Returns
    -------
    header : Header
        With the old files, and the pages that listed them, as drops.
    gone : list of Chunk
        The old chunks.
    """
    entries: list[Entry] = []
    gone: list[Chunk] = []
    unfolded: list[Page] = []
    for entry in header.entries:
        if isinstance(entry, Page) and entry not in pages:
            entries.append(entry)
            continue
        if isinstance(entry, Page):
            unfolded.append(entry)
        for chunk in pages[entry] if isinstance(entry, Page) else [entry]:
            if chunk.end <= header.start:
                continue
            part = placement.clip(chunk, header.start, chunk.end)
            if part in new:
                gone.append(chunk)
            entries.append(new.get(part, chunk))
    drops = _with_pages(header.drops, unfolded, now_ms)
    files = {place(chunk): chunk for chunk in gone}.values()
    drops = merge_drops(drops, [drop_line(chunk, now_ms) for chunk in files])
    return replace(header, entries=tuple(entries), drops=drops), gone


def _with_pages(drops: Sequence[Drop], unfolded: Sequence[Page], now_ms: int) -> tuple[Drop, ...]:
    """Drop the files of pages, each after the chunks that another line drops by it."""
    found = list(drops)
    for page in unfolded:
        if not is_own(page.file):
            found.append(drop_line(page, now_ms))
            continue
        by_it = [index for index, drop in enumerate(found) if drop.is_page and drop.file == page.file]
        if by_it:
            found[by_it[-1]] = replace(found[by_it[-1]], whole=True)
        else:
            found.append(drop_line(page, now_ms))
    return merge_drops((), found)


def without_lags(header: Header) -> Header:
    """Let no drop line keep files for readers any more."""
    drops = tuple(
        replace(drop, after_ms=0) for drop in header.drops if drop.is_hint or is_own(drop.file) or not drop.after_ms
    )
    return header if drops == header.drops else replace(header, drops=drops)
