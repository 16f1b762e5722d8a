"""The verbs that bring a segment's files into order, or set policies, by path and by handle, as `segment_verbs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.backend.tiers import check_tier
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.fs.binding import Binding
from rollingfs.policy import (
    BLOCK_BYTES,
    DELETION_LAG_S,
    KEEP,
    READERS_GRACE_S,
    TIER_DEFAULT,
    Keep,
    OffloadPolicy,
    parse_bytes,
    parse_seconds,
)
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.change import change as change_segment, roll as roll_segment

if TYPE_CHECKING:
    from rollingfs.format.policies import PolicyChange
    from rollingfs.segment.files.survey import Collected
    from rollingfs.segment.verbs.consolidate import Consolidated
    from rollingfs.segment.verbs.offload import Offloaded
    from rollingfs.segment.verbs.verify import Verified
    from rollingfs.stream.ledger import Policies


async def offload(
    at: Binding,
    tier: str = TIER_DEFAULT,
    upto: int | None = None,
    after_bytes: int | str | None = None,
    after_age: float | str | None = None,
    deletion_lag: float | str = DELETION_LAG_S,
    block_bytes: int | str = BLOCK_BYTES,
    *,
    callback: Callback = DEFAULT_CALLBACK,
) -> Offloaded:
    """Move the chunks of a segment to a tier; readers see no difference, and writers may go on.

    Neighbouring chunks become a file, a block. It is read back and verified before the segment names it. The inline
    tail and chunks in other tiers stay.
    A call that was broken off can be repeated; what it has left is collected.

    Parameters
    ----------
    tier
        An alias among the filesystem's `tiers`.
    upto
        Move only chunks that end at or before this segment offset.
    after_bytes, after_age
        Move only chunks before the newest `after_bytes` bytes (or text like ``"64MiB"``), or older than `after_age`
        seconds (or text like ``"7d"``). Either is enough.
    deletion_lag
        Seconds (or text like ``"4h"``) for which the old files stay, for readers that opened the segment before.
        They go with the next truncation, collection, consolidation or offload after that.
    block_bytes
        The largest block in bytes (or text like ``"64MiB"``); a larger chunk moves by itself.
    callback
        Counts the bytes of the segment that are done, from any thread, in fsspec's way.

    Raises
    ------
    UnknownTierError
        The filesystem has no such tier.
    FileNotFoundError
        There is no such segment or file.
    BadOffsetError, ValueError
        A number cannot be meant, or the retention of the folder, a stream, forbids it; no chunk was moved.
    CorruptChunkError
        A chunk or its copy is damaged; that chunk stays where it is.
    """
    from rollingfs.segment.files.rewrite_plan import Asked, Chosen
    from rollingfs.segment.verbs.offload import offload
    from rollingfs.stream.ledger import Ledgers, check_retention

    chosen = Chosen.parse(upto, after_bytes, after_age)
    asked = Asked(tier, chosen, parse_seconds(deletion_lag), parse_bytes(block_bytes))
    if not names.is_ledger(at.path):  # the retention of the stream in whose folder the segment lies may forbid it
        ledger = await Ledgers(at.client).resolved(names.parent(at.path))
        check_retention(at.path, asked, ledger)
    callback.set_size((await at.header()).size)
    try:
        return await offload(at.client, at.path, asked, segment=at.segment, progress=callback.relative_update)
    finally:
        await at.refresh()


async def onload(
    at: Binding,
    tier: str | None = None,
    upto: int | None = None,
    deletion_lag: float | str = DELETION_LAG_S,
    *,
    callback: Callback = DEFAULT_CALLBACK,
) -> Offloaded:
    """Move the chunks of a segment back from a tier, or from all tiers; otherwise as `offload`."""
    from rollingfs.segment.files.rewrite_plan import Chosen
    from rollingfs.segment.verbs.offload import onload

    chosen, lag_s = Chosen.parse(upto, None, None), parse_seconds(deletion_lag)
    callback.set_size((await at.header()).size)
    try:
        return await onload(
            at.client, at.path, tier, chosen, segment=at.segment, lag_s=lag_s, progress=callback.relative_update
        )
    finally:
        await at.refresh()


async def roll(at: Binding) -> int:
    """Make the inline tail of a segment a chunk now, in a single commit; readers see no difference.

    An offload moves only chunks, so roll first to move all bytes. A segment without an inline tail stays as it is, and
    so does a plain file. Sealed segments, and segments that an owner holds, are rolled too.

    Returns
    -------
    int
        The segment offset before which all bytes are in chunks: the length when it was rolled.

    Raises
    ------
    FileNotFoundError
        There is no such segment or file.
    AppendOutcomeUnknown
        It is not known whether it was rolled. No byte is lost; roll again.
    CommitTimeoutError
        It was not rolled. No byte is lost; roll again.
    """
    try:
        return await roll_segment(at.client, at.path, at.segment)
    except FileNotFoundError:
        view = await at.client.headers.view(at.path, fresh=True)
        if view.header is not None:  # adopted or made meanwhile, or another than the one that is meant
            return await roll_segment(at.client, at.path, at.segment)
        if at.segment is not None and at.segment not in view.incarnations:
            raise
        return view.length  # a plain file has nothing inline
    finally:
        await at.refresh()


# -- by handle alone -----------------------------------------------------------------------------------------


async def collect(at: Binding, grace: float | str | None = None, dry_run: bool = False) -> Collected:
    """Delete files without a reference, here and in the folders of the segment's chunks.

    Parameters
    ----------
    grace
        Age at which a file may be deleted, in seconds or as text like ``"1h"``; by default 24 hours. With less,
        you promise that no client writes. Less counts in the segment's own folder only.
    dry_run
        Delete no file; return the files that would be deleted.
    """
    from rollingfs.segment.verbs.collect import collect

    await at.refresh()
    grace_s = None if grace is None else parse_seconds(grace)
    collected = await collect(at.client, at.path, grace_s=grace_s, dry_run=dry_run)
    at.advance()
    return collected


async def consolidate(
    at: Binding, grace: float | str = READERS_GRACE_S, *, callback: Callback = DEFAULT_CALLBACK
) -> Consolidated:
    """Join small neighbouring chunks into chunks of the policy's size; appends and readers may go on.

    Parameters
    ----------
    grace
        Seconds (or text like ``"10min"``) for which the old files stay for readers that opened the segment
        before. They go with the next truncation, collection or consolidation after that.
    callback
        Counts the bytes of the segment that are done, from any thread, in fsspec's way.

    Raises
    ------
    CorruptChunkError
        A chunk is missing, too short, or fails its checksum.
    """
    from rollingfs.segment.verbs.consolidate import Consolidated, consolidate

    header = (await at.look()).header
    if header is None:
        return Consolidated()  # a plain file is one chunk
    callback.set_size(header.size)
    result = await consolidate(
        at.client, at.path, segment=header.segment, grace_s=parse_seconds(grace), progress=callback.relative_update
    )
    await at.look(fresh=False)
    return result


async def verify(at: Binding, *, callback: Callback = DEFAULT_CALLBACK) -> list[Verified]:
    """Read every chunk; returns a row for each, with its state.

    Parameters
    ----------
    callback
        Counts the bytes of the segment that are done, from any thread, in fsspec's way.

    Raises
    ------
    CorruptHeaderError
        The header itself is damaged.
    """
    from rollingfs.segment.verbs.verify import verify

    callback.set_size((await at.look()).size)
    rows = await verify(at.client, at.path, progress=callback.relative_update)
    await at.refresh()  # the rows are of what has the name, whatever that is
    return rows


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
    from rollingfs.stream import stream_verbs  # as in `opening`: most users open no stream
    from rollingfs.stream.members import Members
    from rollingfs.stream.upkeep import ROLL, Upkeep

    await stream_verbs.set_policies(Members(at.client, at.path), change)
    if change.given or change.inherit:
        at.client.inherited.forget()
        default = at.client.inherited.default
        upkeep = Upkeep(at.client, (ROLL,), dropped={name: getattr(default, name) for name in change.inherit})
        for folder in await upkeep.folders(at.path):
            await upkeep.keep(folder)


async def _check(at: Binding, offload: Any) -> None:
    """Refuse an offload policy that does not go with the tiers, or with the retention of the folder."""
    if not isinstance(offload, OffloadPolicy):
        return
    from rollingfs.stream.ledger import Ledgers, check_policy, policies_of

    if names.is_ledger(at.path):
        raise ValueError(f"{at.path} is the memory of a stream, which never moves; nothing was written")
    if offload.tier:
        check_tier(at.client.backend, offload.tier, at.path)
    ledger = await Ledgers(at.client).resolved(names.parent(at.path))
    found = policies_of(at.path, Header("", 1, offload=offload), ledger, at.client.offload_policy)
    check_policy(at.path, found, ledger, "nothing was written")


async def look_at(client: At, path: str) -> Segment | None:
    """Return the segment or plain file at a path; None for a folder, whose policy a policy of this path would be.

    Raises
    ------
    FileNotFoundError
        The path does not exist.
    """
    try:
        return await client.headers.view(path, fresh=True)
    except FileNotFoundError:
        if not await client.contents.is_folder(path):
            raise
        return None


async def policies_at(client: At, path: str, header: Header | None) -> Policies:
    """Return the policies of a segment, or of a folder without a header, and where each field comes from."""
    from rollingfs.stream.ledger import Ledgers, policies_of, resolved

    folder = path if header is None else names.parent(path)
    ledgers = Ledgers(client)
    levels = [(folder, await ledgers.load(folder)), *await ledgers.levels(folder)]
    ledger = resolved(levels)
    default = client.inherited.default
    found = policies_of(path, header, ledger, client.offload_policy)
    rolling = (default if header is None else header.policy).inheriting(ledger.rolling)
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
