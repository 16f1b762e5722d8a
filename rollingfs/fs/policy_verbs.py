"""The verb that sets the policies of a segment or a folder, by path and by handle, as `segment_verbs`."""

from __future__ import annotations

from typing import Any

from rollingfs.backend.tiers import check_tier
from rollingfs.client import Client
from rollingfs.folders.listing import Listings
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.format.policies import PolicyChange
from rollingfs.fs.binding import Binding
from rollingfs.policy import KEEP, Keep, OffloadPolicy
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.offload_policy import check_policy, policies_of


async def set_policy(
    at: Binding,
    offload: OffloadPolicy | Keep | None = KEEP,
    *,
    max_bytes: int | str | None = None,
    max_age: float | str | Keep | None = KEEP,
    inline_bytes: int | str | None = None,
    consolidate: bool | None = None,
) -> None:
    """Change the policies of a live segment, or the offload policy of a folder; what is not given stays as it is.

    A plain file becomes a segment. Of a folder, `offload` counts for all segments directly in it that have no field
    of their own; name it by path. Chunks keep their size. A tail that is longer than the new policy allows becomes
    chunks with the next append.

    Parameters
    ----------
    offload
        Which chunks `Stream.offload` and ``rollingfs run`` move to a tier; None to remove the policy.
    max_bytes, inline_bytes, consolidate
        As of `RollingPolicy`, for a segment.
    max_age
        The same; None for never.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    FencedError
        An exclusive owner holds the segment; nothing was written.
    UnknownTierError
        The filesystem has no such tier; nothing was written.
    ValueError
        A value is outside its range, or does not go with the retention of the folder; nothing was written.
    TypeError
        Nothing is given, or what a folder does not have.
    """
    if offload is not KEEP and offload is not None:
        offload = OffloadPolicy.of(offload, f"{at.path}: offload")
    change = PolicyChange(offload, max_bytes, max_age, inline_bytes, consolidate)
    if change.changes_nothing:
        raise TypeError(
            f"{at.path}: give offload, max_bytes, max_age, inline_bytes or consolidate; nothing was written"
        )
    if not at.is_bound and await is_folder(at.client, at.path):
        await _set_of_folder(at, change)
        return
    await _check(at, change.offload)
    await at.client.segments.change(at.path, change.of, at.guard())
    await at.refresh()


async def _set_of_folder(at: Binding, change: PolicyChange) -> None:
    if not change.is_of_offload_alone:
        raise TypeError(
            f"{at.path} is a folder, and max_bytes, max_age, inline_bytes and consolidate are those of a segment; "
            "nothing was written: set them for its segments"
        )
    from rollingfs.stream.stream_verbs import StreamVerbs  # as in `opening`: most users open no stream

    assert change.offload is None or isinstance(change.offload, OffloadPolicy)
    await StreamVerbs(at.client, Listings(at.client), at.path).set_offload_policy(change.offload)


async def _check(at: Binding, offload: Any) -> None:
    """Refuse an offload policy that does not go with the tiers, or with the retention of the folder."""
    if not isinstance(offload, OffloadPolicy):
        return
    if names.is_ledger(at.path):
        raise ValueError(f"{at.path} is the memory of a stream, which never moves; nothing was written")
    if offload.tier:
        check_tier(at.client.backend, offload.tier, at.path)
    ledger = await Ledgers(at.client).load(names.parent(at.path))
    found = policies_of(at.path, Header("", 1, offload=offload), ledger, at.client.offload_policy)
    check_policy(at.path, found, ledger, "nothing was written")


async def is_folder(client: Client, path: str) -> bool:
    """Whether a policy of this path would be a folder's: there is one, and neither a segment nor a plain file.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    """
    try:
        await client.lookup.view(path, fresh=True)
    except FileNotFoundError:
        if not await Listings(client).is_folder(path):
            raise
        return True
    return False
