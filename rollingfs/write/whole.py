"""Deletes and moves a segment in one step, where the store has such a step and the segment has no files.

No tombstone is left. A tombstone refuses a request that arrives late, and there is none where conflicts are certain. It
also says what is still to be deleted or settled, so a segment keeps it while another file has anything of the segment.
"""

from __future__ import annotations

from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.store import Store
from rollingfs.format import names
from rollingfs.format.header import Header, Phase


def is_alone(header: Header) -> bool:
    """Whether a header is all that there is of its segment, and nobody holds or moves the segment."""
    return not (
        header.phase is Phase.MERGING
        or header.owner is not None
        or header.entries
        or header.drops
        or header.merges
        or header.aborts
        or header.tiers
        or header.adopted
    )


async def remove_whole(store: Store, path: str, loaded: Loaded) -> bool:
    """Delete a segment that is alone; False: nothing was deleted. It is durable once its folder was flushed."""
    if not store.backend.removes_whole or loaded.token is None or loaded.header is None or not is_alone(loaded.header):
        return False
    return await _removed(store, path, loaded.token)


async def remove_grave(store: Store, path: str, grave: Loaded) -> None:
    """Delete a tombstone whose work is done, if no file of the segment is left; the store can do that."""
    is_needed = grave.header is None or not grave.header.deleted or grave.header.must_settle
    if not is_needed and grave.token is not None and await _removed(store, path, grave.token):
        await store.backend.flush(names.header_path(path))


async def _removed(store: Store, path: str, token: str) -> bool:
    if not await store.backend.remove_whole(names.header_path(path), token):
        return False
    store.headers.forget(path)
    return True


async def move_whole(store: Store, path: str, loaded: Loaded, target: str) -> bool:
    """Move a segment that is alone to a name where nothing is; False: nothing was moved. Flush both folders then."""
    if not store.backend.removes_whole or loaded.token is None or loaded.header is None or not is_alone(loaded.header):
        return False
    if not await store.backend.move_whole(names.header_path(path), loaded.token, names.header_path(target)):
        return False
    store.headers.forget(path)
    store.headers.forget(target)
    return True
