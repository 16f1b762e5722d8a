"""The plain file that a header hides: its date, and how it is deleted."""

from __future__ import annotations

import time

from rollingfs.errors import CommitTimeoutError
from rollingfs.format.header import Adopted
from rollingfs.segment.commit.store import Store
from rollingfs.segment.segment import shadow

CLOCKS_APART_MS_MAX = 24 * 3600 * 1000
"""For a file older than this by the client's clock, the store is not asked for its own clock."""


async def wait_for_new_date(store: Store, path: str, adopted: Adopted | None, deadline_s: float) -> None:
    """Wait until the store gives new files another date than a plain file has which a tombstone is to name.

    Otherwise the tombstone would hide a file with the same bytes that comes after it in the same second.

    Raises
    ------
    CommitTimeoutError
        That date comes after the deadline.
    """
    while left_s := await check_passes(store, path, adopted, deadline_s):
        await store.runtime.sleep(min(left_s, store.backend.capability.date_step_s))


async def check_passes(store: Store, path: str, adopted: Adopted | None, deadline_s: float) -> float:
    """Return the seconds that `wait_for_new_date` has to wait, for a caller that has sent no request yet.

    Raises
    ------
    CommitTimeoutError
        The date of the plain file comes after the deadline.
    """
    step_s = store.backend.capability.date_step_s
    if adopted is None or not step_s or store.now_ms() - adopted.modified_ms > CLOCKS_APART_MS_MAX:
        return 0.0
    left_s = adopted.modified_ms / 1000 + step_s - await store.backend.now(path)
    if left_s > deadline_s - time.monotonic():
        raise CommitTimeoutError(
            f"{path}: the plain file of this name is dated {left_s:.0f} s ahead of the store's clock, and the segment "
            "cannot be deleted or renamed before that time; nothing was written: try again then"
        )
    return max(left_s, 0.0)


async def delete_shadowed(store: Store, path: str, adopted: Adopted | None) -> bool:
    """Delete the plain file that a header names, if it still is that file and the store can delete conditionally.

    The date is looked at right before, because a store compares only the token. So another file is deleted only
    if another tool writes it between the two requests, with the very same bytes.
    """
    if adopted is None or not (await store.abilities(path)).delete_if:
        return False
    try:
        info = await store.backend.stat(path)
    except FileNotFoundError:
        return False
    return adopted == shadow(info) and await store.backend.delete_if(path, adopted.token)
