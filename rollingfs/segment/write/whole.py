"""Delete and move segments without files in a single step, if the store has such a step.

No tombstone is left. A tombstone refuses a request that arrives late; if conflicts are certain, it is not needed. It
also names what is still to be deleted or settled, so a segment keeps it while another file has bytes of the segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from rollingfs.errors import if_interrupted
from rollingfs.format import names
from rollingfs.format.header import Header, Phase
from rollingfs.segment.commit.store import Store
from rollingfs.segment.segment import Segment

T = TypeVar("T")

BATCH_MAX = 1024
"""Maximum segments that a call of the backend deletes or moves."""


def is_alone(header: Header) -> bool:
    """Return whether a segment is a header without other files, which no client holds."""
    return not (
        header.owner is not None
        or header.entries
        or header.drops
        or header.merges
        or header.aborts
        or header.tiers
        or header.adopted
    )


async def take_whole(store: Store, seen: Mapping[str, Segment], targets: Mapping[str, str] | None = None) -> set[str]:
    """Delete segments without other files, or move them to free names; return their paths.

    It is durable once `flush_folders` has been called.
    """
    alone = {
        path: (names.header_path(path), loaded.token)
        for path, loaded in (seen.items() if store.backend.capability.removes_whole else ())
        if loaded.live and (header := loaded.header) is not None and loaded.token is not None
        if header.phase is not Phase.MERGING and is_alone(header)
    }
    if targets is None:
        return await _taken(store, alone, store.backend.remove_whole)
    moves = {path: (header, token, names.header_path(targets[path])) for path, (header, token) in alone.items()}
    taken = await _taken(store, moves, store.backend.move_whole)
    for path in taken:
        store.headers.forget(targets[path])
    return taken


async def take_all(
    store: Store, what: str, seen: Mapping[str, Segment], targets: Mapping[str, str] | None = None
) -> set[str]:
    """`take_whole` for the segments of the tree `what`, made durable."""
    taken = set(seen)  # after an error nobody knows which
    try:
        with if_interrupted(what, "unknown"):
            taken = await take_whole(store, seen, targets)
    finally:
        await flush_folders(store, [*(targets[path] for path in taken if targets is not None), *taken])
    return taken


async def flush_folders(store: Store, paths: Iterable[str]) -> None:
    """Make durable what was done to the headers of segments."""
    for one in {names.parent(path): path for path in paths}.values():
        await store.backend.flush(names.header_path(one))


async def remove_grave(store: Store, path: str, grave: Header) -> None:
    """Delete a tombstone that a commit has just made, if no file of the segment is left and the store can do that.

    The caller has deleted all files that the tombstone itself may name, or has not found them.
    """
    if grave.deleted and not (grave.must_settle or grave.tiers or any(drop.is_hint for drop in grave.drops)):
        await remove_header(store, path, grave)


async def remove_header(store: Store, path: str, header: Header) -> bool:
    """Delete the header that a commit has just made, durably, if the store can do that in one step."""
    seen, file = store.headers.seen(path), names.header_path(path)
    if not store.backend.capability.removes_whole or seen is None or not seen.token or seen.header != header:
        return False
    is_taken = bool(await _taken(store, {path: (file, seen.token)}, store.backend.remove_whole))
    if is_taken:
        await store.backend.flush(file)
    return is_taken


async def _taken(
    store: Store, files: Mapping[str, T], take: Callable[[Sequence[T]], Awaitable[Sequence[bool]]]
) -> set[str]:
    """Call a verb of the backend for the files of several segments, a batch at a time."""
    taken: set[str] = set()
    paths = list(files)
    for start in range(0, len(paths), BATCH_MAX):
        batch = paths[start : start + BATCH_MAX]
        is_taken: Sequence[bool] = [True] * len(batch)  # after an error nobody knows
        try:
            is_taken = await take([files[path] for path in batch])
        finally:
            done = [path for path, is_one in zip(batch, is_taken, strict=True) if is_one]
            for path in done:
                store.headers.forget(path)
        taken.update(done)
    return taken
