"""The verb that sets the policies of a segment or a folder, by path and by handle, as `segment_verbs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from rollingfs.backend.tiers import check_tier
from rollingfs.folders.listing import Listings
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.fs.binding import Binding
from rollingfs.policy import KEEP, Keep, OffloadPolicy
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.change import change as change_segment

if TYPE_CHECKING:
    from rollingfs.format.policies import PolicyChange
    from rollingfs.stream.offload_policy import Policies

SEGMENT, FILESYSTEM = "segment", "filesystem"
"""Sources of a policy's fields, except folders."""


async def set_policy(
    at: Binding,
    offload: OffloadPolicy | Keep | None = KEEP,
    *,
    max_bytes: int | str | None = None,
    max_age: float | str | Keep | None = KEEP,
    inline_bytes: int | str | None = None,
    consolidate: bool | None = None,
    inherit: str | Iterable[str] = (),
) -> None:
    """Change the policies of a live segment or of a folder; what is not given stays as it is.

    A plain file becomes a segment. A field of a folder counts for all segments in it and below it, unless they or a
    nearer folder have it; name a folder by path. `max_bytes`, `max_age`, `inline_bytes` and `consolidate` of a folder
    are written to the header of each such segment, so that appends need not ask for them: this call does that at once,
    and each round of ``rollingfs run`` does it again. Chunks keep their size. A tail that is longer than the new policy
    allows becomes chunks with the next append.

    Parameters
    ----------
    offload
        Chunks that `Stream.offload` and ``rollingfs run`` move to a tier; None to remove the policy.
    max_bytes, inline_bytes, consolidate
        As of `RollingPolicy`.
    max_age
        The same; None for never.
    inherit
        Fields among these four that this level gives up, so that the next level decides.

    Raises
    ------
    FileNotFoundError
        The path does not exist.
    FencedError
        An exclusive owner holds the segment; no byte was written.
    UnknownTierError
        The filesystem has no such tier; no byte was written.
    ValueError
        A value is outside its range, or does not go with the retention of the folder; no byte was written.
    TypeError
        No field is given, or a field that a folder does not have.
    """
    from rollingfs.format.policies import PolicyChange

    if offload is not KEEP and offload is not None:
        offload = OffloadPolicy.of(offload, f"{at.path}: offload")
    names_ = (inherit,) if isinstance(inherit, str) else tuple(inherit)
    change = PolicyChange(offload, max_bytes, max_age, inline_bytes, consolidate, names_)
    if change.changes_nothing:
        raise TypeError(
            f"{at.path}: give offload, max_bytes, max_age, inline_bytes or consolidate; nothing was written"
        )
    if not at.is_bound and await look_at(at.client, at.path) is None:
        await _set_of_folder(at, change)
        return
    await _check(at, change.offload)
    if change.inherit:
        change = replace(change, base=await at.client.inherited.policy(at.path))
    await change_segment(at.client, at.path, change.of, at.guard())
    await at.refresh()


async def _set_of_folder(at: Binding, change: PolicyChange) -> None:
    from rollingfs.stream.segment_upkeep import ROLL
    from rollingfs.stream.stream_verbs import StreamVerbs  # as in `opening`: most users open no stream
    from rollingfs.stream.upkeep import Upkeep

    verbs = StreamVerbs(at.client, Listings(at.client), at.path)
    if change.given or change.inherit:
        await verbs.set_rolling(change)
        at.client.inherited.forget()
    if change.offload is not KEEP:
        assert change.offload is None or isinstance(change.offload, OffloadPolicy)
        await verbs.set_offload_policy(change.offload)
    if change.given or change.inherit:
        default = at.client.inherited.default
        upkeep = Upkeep(at.client, (ROLL,), dropped={name: getattr(default, name) for name in change.inherit})
        for folder in await upkeep.folders(at.path, {}):
            await upkeep.keep(folder)


async def _check(at: Binding, offload: Any) -> None:
    """Refuse an offload policy that does not go with the tiers, or with the retention of the folder."""
    if not isinstance(offload, OffloadPolicy):
        return
    from rollingfs.stream.ledger import Ledgers
    from rollingfs.stream.offload_policy import check_policy, policies_of

    if names.is_ledger(at.path):
        raise ValueError(f"{at.path} is the memory of a stream, which never moves; nothing was written")
    if offload.tier:
        check_tier(at.client.backend, offload.tier, at.path)
    ledger = await Ledgers(at.client).resolved(names.parent(at.path))
    found = policies_of(at.path, Header("", 1, offload=offload), ledger, at.client.offload_policy)
    check_policy(at.path, found, ledger, "nothing was written")


async def look_at(client: At, path: str) -> Segment | None:
    """The segment or plain file at a path; None for a folder, whose policy a policy of this path would be.

    Raises
    ------
    FileNotFoundError
        The path does not exist.
    """
    try:
        return await client.lookup.view(path, fresh=True)
    except FileNotFoundError:
        if not await Listings(client).is_folder(path):
            raise
        return None


async def policies_at(client: At, path: str, header: Header | None) -> Policies:
    """The policies of a segment, or of a folder without a header, and where each field comes from."""
    from rollingfs.stream.ledger import Ledgers
    from rollingfs.stream.ledger_codec import Ledger
    from rollingfs.stream.offload_policy import policies_of

    folder = path if header is None else names.parent(path)
    ledgers = Ledgers(client)
    levels = [(folder, await ledgers.load(folder)), *await ledgers.levels(folder)]
    resolved = reduce(lambda far, near: near.under(far), reversed([ledger for _, ledger in levels]), Ledger())
    default = client.inherited.default
    found = policies_of(path, header, resolved, client.offload_policy)
    rolling = (default if header is None else header.policy).inheriting(resolved.rolling)
    own = dict.fromkeys(() if header is None else header.policy.own, "")
    offload = [] if header is None or header.offload is None else [(SEGMENT, header.offload.as_fields())]
    above = {} if client.offload_policy is None else client.offload_policy.as_fields()
    stacks: dict[str, list[tuple[str, Mapping[str, Any]]]] = {
        "rolling": [(SEGMENT, own), *((at, one.rolling) for at, one in levels), (FILESYSTEM, default.as_fields())],
        "offload": [*offload, *((at, one.offload.as_fields()) for at, one in levels if one.offload)],
        "retention": [(at, one.retention.as_fields()) for at, one in levels if one.retention],
    }
    stacks["offload"].append((FILESYSTEM, above))
    sources = {
        kind: {name: where for where, fields in reversed(stack) for name in fields} for kind, stack in stacks.items()
    }
    return replace(found, rolling=rolling, sources=sources)
