"""A run of retention: it takes a cut, trims the stream, and reports both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from rollingfs.runtime.gc_pause import collected_later
from rollingfs.runtime.values import added, value_class
from rollingfs.stream import retention
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.cut_finder import take_cut
from rollingfs.stream.ledger_codec import Column, Goal, Ledger
from rollingfs.stream.members import Members, View
from rollingfs.stream.retention import Holding, RetentionPolicy
from rollingfs.stream.trim import Trimmed, expected_trim, finish_trim


class NoRetentionError(ValueError):
    """The stream has no retention policy."""


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
    members: Members, dry_run: bool, tried: RetentionPolicy | None = None, as_bytes: bool = False
) -> Retained:
    """`StreamVerbs.retain`."""
    path, client, ledgers = members.path, members.client, members.ledgers
    ledger = await ledgers.load(path)
    if tried is not None:
        ledger = replace(ledger, retention=tried)
    above = await ledgers.above(path)
    policy = ledger.under(above).retention
    if policy is None:
        await members.find()  # raises if there is no such folder
        raise NoRetentionError(f"{path}: the stream has no retention policy; assign one to `retention`")
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
    extents = _extents(found.views)
    plan = _Plan(policy, above, taken, extents, found.gone(columns), now)
    pending = {} if ledger.trim.done else ledger.trim.goals
    if dry_run:
        plan = replace(plan, extents=_after(pending, plan.extents))
    goals: dict[str, Goal] = {}
    cuts = ledger.cuts

    @collected_later()
    def change(ledger: Ledger) -> Ledger:
        nonlocal goals, taken
        if ledger.cuts != cuts:  # another run has trimmed, and dropped offsets that the headers read here still need
            goals, taken = {}, None
            return ledger
        changed = plan.with_cut(ledger)
        taken = changed.cuts[-1] if changed is not ledger else None
        goals = plan.goals(changed)
        return plan.trimmed(changed, goals, path)

    if dry_run:
        change(ledger)
        did = await expected_trim(members, found.views, {**pending, **goals}, as_bytes=as_bytes)
    else:
        change(ledger)
        while goals and client.backend.may_tear(path) and (again := await ledgers.above(path)) != plan.above:
            plan = replace(plan, above=again)  # one look may not find the memory of a folder that keeps these bytes
        did = await finish_trim(members, await ledgers.update(path, change), as_bytes=as_bytes)
    total = added(before, did)
    done = {name: goal for name, goal in goals.items() if members.path_of(name) not in {**did.failed, **did.left}}
    size = sum(max(0, view.length - view.start - did.dropped.get(view.path, 0)) for view in found.views.values())
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


@value_class
class _Plan:
    """Changes of a run of retention to the ledger that it finds. The stored policy counts."""

    policy: RetentionPolicy
    """The policy by which the cut was taken."""
    above: Ledger
    """The policies that the folder inherits."""
    taken: StreamCut | None
    extents: Mapping[str, Holding]
    gone: Collection[Column]
    now: float

    def with_cut(self, ledger: Ledger) -> Ledger:
        """Return the ledger with the cut that was taken, unless another run has taken a cut, or the policy has changed.

        Of segments that could not be read, the cut has the offsets of the cut before, and with them its date, in spite
        of a slow clock.
        """
        policy, taken = ledger.under(self.above).retention, self.taken
        if taken is None or policy is None or policy.align != self.policy.align:
            return ledger
        if not retention.is_due(ledger.cuts, policy.every_s, self.now):
            return ledger
        if ledger.cuts:
            last = ledger.cuts[-1]
            missing = [name for name in last if name not in taken]
            lacking = {name: last[name] for name in missing if (name, last.incarnation(name)) not in self.gone}
            if lacking:
                incarnations = {**last.incarnations, **taken.incarnations}
                taken = StreamCut({**lacking, **taken}, max(taken.at, last.at), taken.size, incarnations)
        return replace(ledger, cuts=retention.following(ledger.cuts, taken))

    def goals(self, ledger: Ledger) -> dict[str, Goal]:
        """Return the goals of the trim, each at or after the recorded goal."""
        policy, extents = ledger.under(self.above).retention, self.extents
        if policy is None:
            return {}
        read = [found.cut for found in ledger.subscribers.values()]
        kept = retention.Kept.of(ledger.cuts, extents, self.now)
        target = retention.choose(policy, kept, read, extents)
        ended = retention.ended(policy, kept, extents)
        goals = {
            name: Goal(offset, extents[name].incarnations[0])
            for name, offset in target.items()
            if offset > extents[name].start or (name in ended and offset >= extents[name].end)
        }
        last = ledger.trim.goals
        return {name: goal for name, goal in goals.items() if name not in last or not goal.is_behind(last[name])}

    def trimmed(self, ledger: Ledger, goals: Mapping[str, Goal], name: str) -> Ledger:
        """Return the ledger with the trim begun, and without the cuts that are useless after it."""
        left = _after(goals, self.extents)
        deleted = {(name, one) for name in goals if name not in left for one in self.extents[name].incarnations}
        cuts = retention.prune(ledger.cuts, left, {*self.gone, *deleted})
        return replace(ledger, cuts=cuts).trimmed(goals, self.gone, name)


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
