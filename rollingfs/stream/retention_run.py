"""One run of retention: it takes a cut, trims the stream, and reports both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollingfs.read.snapshot import Snapshot
from rollingfs.stream import retention
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.cut_finder import Cutter
from rollingfs.stream.ledger_codec import Goal, Ledger
from rollingfs.stream.members import Members
from rollingfs.stream.retention import Extent, RetentionPolicy
from rollingfs.stream.trim import Trimmed, Trimmer


@dataclass(frozen=True, slots=True)
class Retained:
    """What a run of retention did (in a dry run: would do)."""

    taken: StreamCut | None
    """The cut that it took, if the last was old enough."""
    trimmed: StreamCut | None
    """The offsets that it trimmed to, of the segments that it trimmed."""
    bytes: int
    """The number of bytes that it dropped."""
    deleted: tuple[str, ...]
    """Sealed segments that it deleted, by path."""
    size: int
    """Bytes that are left."""
    dry_run: bool
    failed: Mapping[str, str] = field(default_factory=dict)
    """Segments that it left as they are because it could not read or change them, by path, with the reason."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Bytes that it dropped of each segment, by path."""


async def retain(members: Members, cutter: Cutter, trimmer: Trimmer, dry_run: bool) -> Retained:
    """`StreamVerbs.retain`."""
    path, ledgers = members.path, trimmer.ledgers
    ledger = await ledgers.load(path)
    policy = ledger.retention
    if policy is None:
        await members.find()  # raises if there is no such folder
        raise ValueError(f"{path}: the stream has no retention policy; assign one to `retention`")
    before = Trimmed() if dry_run else await trimmer.finish(ledger)
    found = await members.find_to_cut()
    members.warn(found.unreadable)
    failed = dict(found.unreadable)
    now = members.client.store.clock()
    taken = None
    if not ledger.cuts or now - ledger.cuts[-1].at >= policy.every:
        taken, uncut = await cutter.take(found.views, None, policy.align)
        failed |= uncut
    plan = _Plan(policy, taken, found.views, found.names, now)
    goals: dict[str, Goal] = {}

    def change(ledger: Ledger) -> Ledger:
        nonlocal goals
        ledger = plan.with_cut(ledger)
        goals = plan.goals(ledger)
        return plan.trimmed(ledger, goals, path)

    if dry_run:
        change(ledger)
        did = trimmer.expected(found.views, goals)
    else:
        did = await trimmer.finish(await ledgers.update(path, change))
    report = plan.report(goals, [before, did], members, dry_run)
    return replace(report, failed={**members.reasons(failed), **report.failed})


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run of retention makes of the ledger that it finds."""

    policy: RetentionPolicy
    taken: StreamCut | None
    views: Mapping[str, Snapshot]
    extant: Sequence[str]
    """The names of all segments, also of those that cannot be read."""
    now: float

    def with_cut(self, ledger: Ledger) -> Ledger:
        """The ledger with the cut that was taken."""
        if self.taken is None or self.taken in ledger.cuts:
            return ledger
        return replace(ledger, cuts=(*ledger.cuts, self.taken))

    def goals(self, ledger: Ledger) -> dict[str, Goal]:
        """The goals of the trim; none lies before a recorded one."""
        extents = self._extents()
        read = [found.cut for found in ledger.subscribers.values()]
        target = retention.choose(self.policy, ledger.cuts, read, extents, self.now)
        goals = {
            name: Goal(offset, extents[name].incarnations[0])
            for name, offset in target.items()
            if extents[name].incarnations and _is_due(extents[name], offset)
        }
        last = ledger.trim.goals
        return {name: goal for name, goal in goals.items() if name not in last or not goal.is_behind(last[name])}

    def trimmed(self, ledger: Ledger, goals: Mapping[str, Goal], name: str) -> Ledger:
        """The ledger with the trim begun, and without the cuts that are useless after it."""
        extents = self._extents()
        left = {
            found: replace(extent, start=max(extent.start, goals[found].offset)) if found in goals else extent
            for found, extent in extents.items()
        }
        return replace(ledger, cuts=retention.prune(ledger.cuts, left)).trimmed(goals, self.extant, name)

    def _extents(self) -> dict[str, Extent]:
        return {name: _extent(view) for name, view in self.views.items()}

    def report(self, goals: Mapping[str, Goal], trims: Sequence[Trimmed], members: Members, dry_run: bool) -> Retained:
        """What the run did, given its trims, oldest first."""
        size = sum(view.size for view in self.views.values()) - trims[-1].bytes
        offsets = {name: goal.offset for name, goal in goals.items()}
        incarnations = {name: goal.segment for name, goal in goals.items() if goal.segment is not None}
        total = Trimmed.of(trims)
        return Retained(
            None if self.taken is None else self.taken.renamed(members.path_of),
            StreamCut(offsets, self.now, size, incarnations).renamed(members.path_of) if offsets else None,
            total.bytes,
            total.deleted,
            size,
            dry_run,
            total.failed,
            total.dropped,
        )


def _is_due(extent: Extent, offset: int) -> bool:
    return offset > extent.start or (extent.sealed and offset >= extent.end)


def _extent(view: Snapshot) -> Extent:
    return Extent(view.start, view.length, view.incarnations, view.header is not None and view.header.sealed)
