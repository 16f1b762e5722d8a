"""The operations on a stream, as coroutines of its members; `fs.stream_handle.Stream` makes its methods of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from rollingfs.backend.tiers import check_tier
from rollingfs.errors import ConflictError
from rollingfs.folders.info import Info, info_of_row, info_of_unreadable
from rollingfs.folders.listing import exact_info
from rollingfs.format import names
from rollingfs.format.listing_codec import Row
from rollingfs.format.policies import PolicyChange
from rollingfs.policy import KEEP, OffloadPolicy
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.delete import delete as delete_segment
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.follow import StreamOffloaded, offload_stream
from rollingfs.stream.ledger import check_policy, policies_of
from rollingfs.stream.ledger_codec import Goal, Ledger, Published
from rollingfs.stream.members import LOOKS_MAX, Members, View, take_cut
from rollingfs.stream.retention import RetentionPolicy
from rollingfs.stream.trim import Retained, Trimmed, expected_trim, finish_trim, goals_of, retain as run_retention

Policy = TypeVar("Policy", RetentionPolicy, OffloadPolicy)

# -- the segments --------------------------------------------------------------------------------------


async def segments(members: Members) -> list[str]:
    """Return the paths of the stream's segments, sorted.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    """
    return [members.path_of(name) for name in (await members.find()).names]


async def infos(members: Members, paths: Iterable[str] | None = None) -> dict[str, Info]:
    """Return the infos of many segments in a batch, by path; by default of all.

    A segment that cannot be read has the size None, and the error.

    Raises
    ------
    FileNotFoundError
        A segment is not there.
    """
    looks: dict[str, View | OSError]
    if paths is None:
        found = await members.find()
        looks = {members.path_of(name): found.views.get(name) or found.unreadable[name] for name in found.names}
    else:
        asked = [members.client.backend.strip(path) for path in paths]
        each = await members.client.contents.gather([partial(members.look, one) for one in asked])
        looks = dict(zip(asked, each, strict=True))
    infos = {path: info_of_row(path, seen) for path, seen in looks.items() if isinstance(seen, Row)}
    infos |= {path: info_of_unreadable(path, seen) for path, seen in looks.items() if isinstance(seen, OSError)}
    views = [seen for seen in looks.values() if isinstance(seen, Segment)]
    infos |= {view.path: await exact_info(members.client, view) for view in views}
    return {path: infos[path] for path in looks}


async def size(members: Members) -> int:
    """Return bytes that the stream holds."""
    found = await members.find_once()
    members.warn(found.unreadable)
    return sum(view.size for view in found.views.values())


async def delete(members: Members) -> None:
    """Delete all segments of the stream, and its memory. An interrupted call may be repeated.

    Raises
    ------
    CorruptHeaderError, PermissionError
        A segment cannot be read; no segment was deleted. ``fs.rm(path, damaged=True)`` deletes such a segment.
    """
    found = await members.find()
    if found.unreadable:
        raise found.unreadable[min(found.unreadable)]
    ledger = names.ledger_path(members.path)
    await members.client.headers.load(ledger)  # if it cannot be read, this raises before anything is deleted
    await members.client.contents.gather([partial(_delete, members, members.path_of(name)) for name in found.views])
    await _delete(members, ledger)
    members.client.inherited.forget()


async def _delete(members: Members, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # another client deleted it meanwhile
        await delete_segment(members.client, path)


# -- cuts ----------------------------------------------------------------------------------------------


async def cut(members: Members, at: float | None = None, align: bytes | None = None) -> StreamCut:
    """Return the present ends of the stream's segments.

    A segment that cannot be read is not in the cut; a warning in the log names it.

    Parameters
    ----------
    at
        Instead, cut before everything that may have been written after this time (seconds since 1970), as far as
        the chunks' times show.
    align
        Cut after the last of these delimiters, so that no record is cut in two.
    """
    found = await members.find_once()
    members.warn(found.unreadable)
    when = (await members.times(found))[1] if at is None else at
    cut, _ = await take_cut(members, found.views, at, align, when)
    return cut.renamed(members.path_of)


async def trim(members: Members, cut: StreamCut, dry_run: bool = False, as_bytes: bool = False) -> Trimmed:
    """Truncate every segment to its offset in a cut, and delete sealed segments that end before it.

    The trim is recorded first: the next `trim` or `retain` finishes an interrupted trim. Two kinds of segments
    stay as they are: segments that the cut does not name, or that took a name after the cut.

    Parameters
    ----------
    dry_run
        Make no change, return the result that it would have.
    as_bytes
        Cut files of formats of which no part is a file, too; a trim that others finish leaves them.

    Raises
    ------
    BadOffsetError
        The cut is before an earlier trim, or beyond the end of a segment; no byte was trimmed.
    ValueError
        The cut is of another stream, or does not name the incarnations that it means; no byte was trimmed.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    """
    _check_cut(members, cut)
    meant = cut.renamed(members.name_of)
    last = await members.ledgers.load(members.path)
    found = await members.find_once({name for name, _ in last.columns})
    unread = {name: error for name, error in found.unreadable.items() if name in meant}
    members.warn(unread)
    goals = goals_of(members, found.views, meant)
    if dry_run:
        pending = {} if last.is_trimmed else last.goals
        expected = await expected_trim(members, found.views, {**pending, **goals}, as_bytes=as_bytes)
        return replace(expected, failed=members.reasons(unread))
    gone = found.gone(last.columns)
    ledger = await members.ledgers.update(members.path, lambda last: last.trimmed(goals, gone, members.path))
    did = await finish_trim(members, ledger, as_bytes=as_bytes)
    return replace(did, failed={**members.reasons(unread), **did.failed})


def _check_cut(members: Members, cut: Any) -> None:
    _check_kind(members.path, cut, StreamCut, "the cut", "stream.cut() or StreamCut.parse(text)")


async def cuts(members: Members) -> list[StreamCut]:
    """Return the cuts that retention has kept, oldest first."""
    ledger = await members.ledgers.load(members.path)
    return [cut.renamed(members.path_of) for cut in ledger.cuts]


# -- retention -----------------------------------------------------------------------------------------


async def get_retention(members: Members) -> RetentionPolicy | None:
    """Return the stream's own policy, or None."""
    return (await members.ledgers.load(members.path)).retention


async def set_retention(members: Members, policy: RetentionPolicy | None) -> None:
    """Store a policy with the stream, or remove it.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    ValueError
        The offload policy of the folder contradicts it; no byte was written.
    """
    if policy is not None:
        example = "RetentionPolicy.by_size('1GiB')"
        _check_kind(members.path, policy, RetentionPolicy, "the retention", example)
    await change_retention(members, lambda _: policy)


async def change_retention(
    members: Members, change: Callable[[RetentionPolicy | None], RetentionPolicy | None]
) -> None:
    """Store what `change` makes of the policy that is there at the commit, as `set_retention` does."""
    await _update(members, lambda found: replace(found, retention=_stored(change(found.retention))))


async def get_offload_policy(members: Members) -> OffloadPolicy | None:
    """Return the folder's own offload policy, or None."""
    return (await members.ledgers.load(members.path)).offload


async def set_offload_policy(members: Members, policy: OffloadPolicy | None) -> None:
    """Store an offload policy with the stream, or remove it.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    UnknownTierError
        The filesystem has no such tier; no byte was written.
    ValueError
        The retention of the stream contradicts it; no byte was written.
    """
    if policy is not None:
        _check_kind(members.path, policy, OffloadPolicy, "the offload policy", "OffloadPolicy('cold')")
    await set_policies(members, PolicyChange(policy))


async def set_policies(members: Members, change: PolicyChange) -> None:
    """Change the folder's offload policy and its fields of the rolling policy, in one commit.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    UnknownTierError, ValueError
        As of `set_offload_policy`; or a value is outside its range. No byte was written.
    """
    policy = change.offload
    if isinstance(policy, OffloadPolicy) and policy.tier:
        check_tier(members.client.backend, policy.tier, members.path)

    def changed(found: Ledger) -> Ledger:
        offload = found.offload if policy is KEEP else _stored(policy)
        return replace(found, rolling=change.of_folder(found.rolling), offload=offload)

    await _update(members, changed, is_checked=policy is not KEEP)


def _stored(policy: Policy | None) -> Policy | None:
    """Return a policy as a ledger keeps it: None without a field."""
    return policy if policy is not None and policy.as_fields() else None


async def _update(members: Members, change: Callable[[Ledger], Ledger], *, is_checked: bool = True) -> None:
    """Update the ledger, unless the retention and the offload policy that count then contradict each other."""
    above = await members.ledgers.above(members.path) if is_checked else Ledger()

    def checked(found: Ledger) -> Ledger:
        ledger = change(found)
        resolved = ledger.under(above)
        policies = policies_of(members.path, None, resolved, members.client.offload_policy)
        check_policy(members.path, policies, resolved, "nothing was written")
        return ledger

    await members.ledgers.update(members.path, checked if is_checked else change)


async def publish(members: Members, subscriber: str, cut: StreamCut) -> None:
    """Record that a subscriber has read all before a cut.

    A segment counts as unread if the cut names no incarnation of it.

    Raises
    ------
    ValueError
        The subscriber has no name, or the cut is of another stream.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    """
    _check_subscriber(members, subscriber)
    _check_cut(members, cut)
    published = cut.renamed(members.name_of), members.client.clock()
    await _enrol(members, subscriber, lambda found: {**found, subscriber: published})


async def subscribe(members: Members, subscriber: str) -> None:
    """Become a subscriber at the start; a known subscriber keeps its position.

    Retention drops no unread byte from the moment when this returns, but for what a trim that began earlier could
    not drop yet because a segment could not be read. If it raises, do not rely on that.

    Raises
    ------
    ValueError
        The subscriber has no name.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    CommitTimeoutError, ConflictError, AppendOutcomeUnknown
        The subscription may not be stored; it may be made again.
    """
    _check_subscriber(members, subscriber)
    now = members.client.clock()
    published = StreamCut({}, now, 0), now
    await _enrol(members, subscriber, lambda found: {subscriber: published, **found})


async def _enrol(
    members: Members, subscriber: str, change: Callable[[Mapping[str, Published]], Mapping[str, Published]]
) -> None:
    """Change positions of subscribers. A trim under way does not know a new subscriber, so it is finished first."""
    tried: Mapping[str, Goal] | None = None
    must_finish = False

    def changed(found: Ledger) -> Ledger:
        nonlocal must_finish
        must_finish = subscriber not in found.subscribers and not found.is_trimmed and found.goals != tried
        return found if must_finish else replace(found, subscribers=change(found.subscribers))

    for _ in range(LOOKS_MAX):
        ledger = await members.ledgers.update(members.path, changed)
        if not must_finish:
            return
        tried = ledger.goals
        await finish_trim(members, ledger)
    raise ConflictError(f"{members.path}: others began {LOOKS_MAX} trims meanwhile; nothing was written, try again")


def _check_subscriber(members: Members, subscriber: Any) -> None:
    _check_kind(members.path, subscriber, str, "the subscriber", "'billing'")
    if not subscriber:
        raise ValueError(f"{members.path}: a subscriber needs a name; nothing was written")


async def subscribers(members: Members) -> dict[str, StreamCut]:
    """Return the cut that each subscriber has published, by name."""
    ledger = await members.ledgers.load(members.path)
    return {name: cut.renamed(members.path_of) for name, (cut, _) in sorted(ledger.subscribers.items())}


async def unsubscribe(members: Members, name: str) -> None:
    """Forget a subscriber, if there is a subscriber of this name."""

    def change(found: Ledger) -> Ledger:
        return replace(found, subscribers={who: cut for who, cut in found.subscribers.items() if who != name})

    await members.ledgers.update(members.path, change)


async def retain(
    members: Members, dry_run: bool = False, *, policy: RetentionPolicy | None = None, as_bytes: bool = False
) -> Retained:
    """Run retention once: finish an interrupted trim, take a cut if it is time, trim.

    Parameters
    ----------
    dry_run
        Make no change, return the result that it would have.
    policy
        With `dry_run`: what this policy would do, in place of the stream's own.
    as_bytes
        As in `trim`.

    Raises
    ------
    ValueError
        The stream has no policy, or a policy is given without `dry_run`; no byte was changed.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    """
    if policy is not None and not dry_run:
        raise ValueError(
            f"{members.path}: only a dry run tries a policy; nothing was changed: assign it to `retention`"
        )
    did = await run_retention(members, dry_run, policy, as_bytes)
    if did is None:
        raise ValueError(f"{members.path}: the stream has no retention policy; assign one to `retention`")
    return did


async def offload(
    members: Members,
    tier: str | None = None,
    after_bytes: int | str | None = None,
    after_age: float | str | None = None,
    deletion_lag: float | str | None = None,
    block_bytes: int | str | None = None,
) -> StreamOffloaded:
    """Move chunks of every segment to a tier, as `fs.offload` does; plain files stay as they are.

    Without arguments the policy of each segment decides (`OffloadPolicy`), and a policy that cannot be carried out
    is reported for its segment. With any of these arguments, the policies do not count.

    Parameters
    ----------
    tier
        An alias among the filesystem's `tiers`; ``"cold"`` if other arguments are given.
    after_bytes, after_age
        Move only chunks before the newest `after_bytes` bytes of each segment (or text like ``"64MiB"``), or older
        than `after_age` seconds (or text like ``"7d"``). Either is enough.
    deletion_lag
        Seconds (or text like ``"4h"``, the default) for which the old files stay.
    block_bytes
        Neighbouring chunks become a file of up to this many bytes (or text like ``"64MiB"``, the default).

    Raises
    ------
    ValueError
        The lag outlives the retention, or retention trims before anything is offloaded; or the policies are to
        decide, and there is no policy. No chunk was moved.
    UnknownTierError
        The filesystem has no such tier.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    """
    asked = Asked.of(tier, after_bytes, after_age, deletion_lag, block_bytes)
    return await offload_stream(members, asked)


def _check_kind(path: str, value: Any, kind: type, name: str, example: str) -> None:
    """Refuse an argument of another class.

    Raises
    ------
    TypeError
        The argument is of another class.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(
            f"{path}: {name} is {value!r}: it must be {article} {kind.__name__}, as {example}; nothing was written"
        )
