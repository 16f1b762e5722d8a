"""Trim the segments of a stream, by a cut or by retention, which takes a cut first.

A trim is recorded first, so that the next run finishes an interrupted trim.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from functools import partial

from rollingfs.errors import TIER_ERRORS, BadOffsetError, FencedError, SegmentTruncatedError, WholeFileError
from rollingfs.folders.listing import REPORT
from rollingfs.format import names
from rollingfs.format.header import Phase
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.runtime.interpreter import collected_later
from rollingfs.runtime.values import added, value_class
from rollingfs.segment.read.revalidate import OUTDATED
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.verbs.truncate import Cut, commit_cut, cut_head, plan_cut
from rollingfs.stream import retention
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger_codec import Column, Goal, Ledger, check_member_name
from rollingfs.stream.members import LOOKS_MAX, Members, View, take_cut
from rollingfs.stream.retention import Holding, RetentionPolicy

logger = logging.getLogger("rollingfs")


@value_class
class Trimmed:
    """Report of the bytes that a trim dropped (in a dry run: would drop)."""

    bytes: int = 0
    deleted: tuple[str, ...] = ()
    """Sealed segments that ended before the cut, by path."""
    waiting: int = 0
    """Bytes that wait for the collection of the folders they are in."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Segments that were left as they are because they cannot be read or changed, by path, with the reason."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Bytes that were dropped of each segment, by path."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Segments that stay because no part of them is a file of their format, by path, with the reason.
    They go once the cut is after all of them."""


def goals_of(members: Members, views: Mapping[str, View], cut: StreamCut) -> dict[str, Goal]:
    """Return the goals of a trim to a cut.

    Segments that are gone, and incarnations that the cut does not name, get no goal.

    Parameters
    ----------
    views
        The segments, by name.
    cut
        The cut, by name.

    Raises
    ------
    BadOffsetError
        An offset is beyond the end of its segment.
    ValueError
        An offset would drop bytes, and the cut does not name the incarnation.
    """
    goals = {}
    for name, offset in cut.items():
        view = views.get(name)
        if view is None:
            continue
        meant = cut.incarnation(name)
        if meant is None and (offset > view.start or is_over(view, offset)):
            raise ValueError(
                f"{members.path_of(name)}: the cut does not name the incarnation of the segment, which may have been "
                "replaced since; nothing was trimmed: take a cut with Stream.cut"
            )
        if meant not in view.incarnations:
            continue
        if offset > view.length:
            raise BadOffsetError(
                f"{members.path_of(name)}: cannot trim to {offset}; it holds bytes {view.start} to {view.length}; "
                "nothing was trimmed"
            )
        goals[name] = Goal(offset, view.incarnations[0])
    return goals


async def expected_trim(
    members: Members, views: Mapping[str, View], goals: Mapping[str, Goal], *, as_bytes: bool = False
) -> Trimmed:
    """Return the report of a trim in advance."""
    meant = {name: goal for name, goal in goals.items() if name in views}
    return await _trim_all(members, meant, as_bytes, is_dry=True)


async def finish_trim(members: Members, ledger: Ledger, *, as_bytes: bool = False) -> Trimmed:
    """Do the recorded trim, unless it is done.

    It stays recorded while segments cannot be read or changed: each run tries them again.

    Parameters
    ----------
    as_bytes
        Cut also what no part of is a file of its format.

    Raises
    ------
    OSError
        A segment could not be trimmed; the trim stays recorded, and the next run goes on with it.
    """
    if ledger.is_trimmed:
        return Trimmed()
    result = await _trim_all(members, ledger.goals, as_bytes)
    if result.failed:
        return result

    def finished(found: Ledger) -> Ledger:
        # if another trim was recorded meanwhile, that one is not done
        return replace(found, is_trimmed=True) if found.goals == ledger.goals else found

    await members.ledgers.update(members.path, finished)
    return result


async def _trim_all(members: Members, goals: Mapping[str, Goal], as_bytes: bool, *, is_dry: bool = False) -> Trimmed:
    paths = {members.path_of(check_member_name(name)): goal for name, goal in goals.items()}
    calls = [partial(_trim_or_report, members, path, goal, as_bytes, is_dry) for path, goal in paths.items()]
    return added(Trimmed(), *await members.client.contents.gather(calls))


async def _trim_or_report(members: Members, path: str, goal: Goal, as_bytes: bool, is_dry: bool) -> Trimmed:
    try:
        return await _trim(members, path, goal, as_bytes, is_dry)
    except OSError as error:
        is_of_tier = members.on_error == REPORT and isinstance(error, TIER_ERRORS)
        if not is_of_tier and not members.is_reported(error):
            raise
        return _failed(path, error)


async def _trim(members: Members, path: str, goal: Goal, as_bytes: bool, is_dry: bool) -> Trimmed:
    """Trim a segment, unless it is gone or replaced."""
    for last in reversed(range(LOOKS_MAX)):
        view = await _view(members, path)
        if view is None or not goal.means(view.incarnations):
            break
        try:
            return await _trim_seen(members, view, goal, as_bytes, is_dry)
        except WholeFileError as error:
            return Trimmed(left={path: str(error)})
        except FileNotFoundError:
            break  # deleted or moved away meanwhile
        except (FencedError, BadOffsetError, SegmentTruncatedError):
            if not last:
                raise
            # it has another owner, another epoch or, of Parquet, other bytes since the look
            await members.client.runtime.sleep(backoff_s(LOOKS_MAX - last))
    return Trimmed()


async def _trim_seen(members: Members, view: Segment, goal: Goal, as_bytes: bool, is_dry: bool) -> Trimmed:
    """Trim a segment as it was seen; counted is what this commit dropped, and not what another run's did."""
    path, offset = view.path, min(goal.offset, view.length)
    # in the epoch that the header has: an exclusive owner does not stop a trim
    guard = Guard(goal.segment, view.epoch if view.owner is not None else None)
    if is_over(view, offset):
        before = view if is_dry else await delete(members.client, path, guard)
        dropped = 0 if before is None else before.size
        return Trimmed(dropped, (path,), dropped={path: dropped})
    if offset <= view.start:
        return Trimmed()
    try:
        cut = Cut(offset) if as_bytes else await plan_cut(members.client, view, offset)
    except OSError as error:
        if members.on_error != REPORT or isinstance(error, (WholeFileError, *OUTDATED)):
            raise
        return _failed(path, error)  # its bytes cannot be read; of those of others nothing is known
    if is_dry or cut.at <= view.start:
        dropped = cut.at - view.start
        return Trimmed(dropped, dropped={path: dropped} if dropped else {})
    if cut.footer:
        after, start = await commit_cut(members.client, view, cut, guard), view.start
    else:
        committed = await cut_head(members.client, path, cut.at, guard)
        after, start = committed.made, committed.base.start if committed.base is not None else 0
    dropped = after.start - start
    return Trimmed(dropped, (), after.waiting_bytes, dropped={path: dropped} if dropped else {})


async def _view(members: Members, path: str) -> Segment | None:
    try:
        view = await members.client.headers.view(path, fresh=True)
        while view.header is not None and view.header.phase is Phase.MERGING:
            await members.client.commits.merges.resolve(path, view.header)
            view = await members.client.headers.view(path, fresh=True)
    except FileNotFoundError:
        return None
    return view


def _failed(path: str, error: OSError) -> Trimmed:
    logger.warning("%s is not trimmed: %s", path, error)
    return Trimmed(failed={path: str(error)})


def is_over(view: View, offset: int) -> bool:
    """Return whether a segment is sealed, and a trim to this offset leaves no byte of it."""
    return view.sealed and offset >= view.length


@value_class
class Retained(Trimmed):
    """Report of a run of retention (in a dry run: of its plan)."""

    taken: StreamCut | None = None
    """The cut that it took, if the last was old enough."""
    trimmed: StreamCut | None = None
    """The offsets that it trimmed to, of the segments that it trimmed."""
    size: int = 0
    """Bytes that are left."""
    dry_run: bool = False


async def retain(
    members: Members, dry_run: bool = False, tried: RetentionPolicy | None = None, as_bytes: bool = False
) -> Retained | None:
    """Run retention once, as `Stream.retain` does; None if the stream has no policy."""
    run = partial(_retain, members, dry_run, tried, as_bytes)
    return await members.client.with_room(names.ledger_path(members.path), run)


async def _retain(members: Members, dry_run: bool, tried: RetentionPolicy | None, as_bytes: bool) -> Retained | None:
    path, client, ledgers = members.path, members.client, members.ledgers
    ledger = await ledgers.load(path)
    if tried is not None:
        ledger = replace(ledger, retention=tried)
    above = await ledgers.above(path)
    policy = ledger.under(above).retention
    if policy is None:
        await members.find()  # raises if there is no such folder
        return None
    before = Trimmed() if dry_run else await finish_trim(members, ledger, as_bytes=as_bytes)
    columns = ledger.columns
    found = await members.find_once({name for name, _ in columns}, settles=not dry_run)
    if ledger.retention is None:  # a folder above speaks of segments; it may know nothing of files of other tools here
        found = found.without_files()
    members.warn(found.unreadable)
    now, at = await members.times(found)
    taken, failed = None, dict(found.unreadable)
    if retention.is_due(ledger.cuts, policy.every_s, now):
        taken, uncut = await take_cut(members, found.views, None, policy.align, at)
        failed |= uncut
    first, extents, gone = taken, _extents(found.views), found.gone(columns)
    pending = {} if ledger.is_trimmed else ledger.goals
    if dry_run:
        extents = _after(pending, extents)
    goals: dict[str, Goal] = {}
    cuts = ledger.cuts

    @collected_later()
    def change(ledger: Ledger) -> Ledger:
        nonlocal goals, taken
        if ledger.cuts != cuts:  # another run has trimmed, and dropped offsets that the headers read here still need
            goals, taken = {}, None
            return ledger
        changed = _with_cut(ledger, above, first, policy.align, gone, now)
        taken = changed.cuts[-1] if changed is not ledger else None
        goals = _goals(changed, above, extents, now)
        return _begun(changed, goals, extents, gone, path)

    change(ledger)
    if dry_run:
        did = await expected_trim(members, found.views, {**pending, **goals}, as_bytes=as_bytes)
    else:
        while goals and client.backend.may_tear(path) and (again := await ledgers.above(path)) != above:
            above = again  # one look may not find the memory of a folder that keeps these bytes
        did = await finish_trim(members, await ledgers.update(path, change), as_bytes=as_bytes)
    total = added(before, did)
    done = {name: goal for name, goal in goals.items() if members.path_of(name) not in {**did.failed, **did.left}}
    size = sum(
        max(0, view.length - view.start - did.dropped.get(members.path_of(name), 0))
        for name, view in found.views.items()
    )
    offsets = {name: goal.offset for name, goal in done.items()}
    incarnations = {name: goal.segment for name, goal in done.items()}
    return Retained(
        total.bytes,
        total.deleted,
        total.waiting,
        {**members.reasons(failed), **total.failed},
        total.dropped,
        total.left,
        None if taken is None else taken.renamed(members.path_of),
        StreamCut(offsets, now, size, incarnations).renamed(members.path_of) if offsets else None,
        size,
        dry_run,
    )


def _with_cut(
    ledger: Ledger, above: Ledger, taken: StreamCut | None, align: bytes | None, gone: Collection[Column], now: float
) -> Ledger:
    """Return the ledger with the cut that was taken, unless another run has taken a cut.

    Nor is the cut kept if the stored policy, which counts, has another delimiter by now. Of segments that could not be
    read, the cut has the offsets of the cut before, and with them its date, in spite of a slow clock.
    """
    stored = ledger.under(above).retention
    if taken is None or stored is None or stored.align != align:
        return ledger
    if not retention.is_due(ledger.cuts, stored.every_s, now):
        return ledger
    if ledger.cuts:
        last = ledger.cuts[-1]
        missing = [name for name in last if name not in taken]
        lacking = {name: last[name] for name in missing if (name, last.incarnation(name)) not in gone}
        if lacking:
            incarnations = {**last.incarnations, **taken.incarnations}
            taken = StreamCut({**lacking, **taken}, max(taken.at, last.at), taken.size, incarnations)
    return replace(ledger, cuts=retention.following(ledger.cuts, taken))


def _goals(ledger: Ledger, above: Ledger, extents: Mapping[str, Holding], now: float) -> dict[str, Goal]:
    """Return the goals of a run of retention, each at or after the recorded goal."""
    policy = ledger.under(above).retention
    if policy is None:
        return {}
    kept = retention.Kept.of(ledger.cuts, extents, now)
    target = retention.choose(policy, kept, [cut for cut, _ in ledger.subscribers.values()], extents)
    ended = retention.ended(policy, kept, extents)
    goals = {
        name: Goal(offset, extents[name].incarnations[0])
        for name, offset in target.items()
        if offset > extents[name].start or (name in ended and offset >= extents[name].end)
    }
    last = ledger.goals
    return {name: goal for name, goal in goals.items() if name not in last or not goal.is_behind(last[name])}


def _begun(
    ledger: Ledger, goals: Mapping[str, Goal], extents: Mapping[str, Holding], gone: Collection[Column], name: str
) -> Ledger:
    """Return the ledger with a trim begun, and without the cuts that are useless after it."""
    left = _after(goals, extents)
    deleted = {(one, incarnation) for one in goals if one not in left for incarnation in extents[one].incarnations}
    cuts = retention.prune(ledger.cuts, left, {*gone, *deleted})
    return replace(ledger, cuts=cuts).trimmed(goals, gone, name)


def _after(goals: Mapping[str, Goal], extents: Mapping[str, Holding]) -> dict[str, Holding]:
    """Return the extents after a trim."""
    left = dict(extents)
    for name, goal in goals.items():
        extent = left.get(name)
        if extent is None or not goal.means(extent.incarnations):
            continue
        left[name] = replace(extent, start=max(extent.start, min(goal.offset, extent.end)))
        if extent.sealed and goal.offset >= extent.end:
            del left[name]
    return left


@collected_later()
def _extents(views: Mapping[str, View]) -> dict[str, Holding]:
    return {name: Holding(view.start, view.length, view.incarnations, view.sealed) for name, view in views.items()}
