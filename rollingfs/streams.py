"""What can be done with a stream, as coroutines of the core; `Stream` is made of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rollingfs import names, retention
from rollingfs.client import Client
from rollingfs.cuts import StreamCut
from rollingfs.cutting import Cutter
from rollingfs.ledger import Goal, Ledger, Ledgers, Published
from rollingfs.listing import Info, Listings, info_of
from rollingfs.lookup import View
from rollingfs.retention import Extent, KeptCut, RetentionPolicy
from rollingfs.trimming import Trimmed, Trimmer


@dataclass(frozen=True, slots=True)
class Retained:
    """What a run of retention did (in a dry run: would do)."""

    taken: StreamCut | None
    """The cut that it took, if the last was old enough."""
    trimmed: StreamCut | None
    """The offsets that it trimmed to, of the segments that it trimmed."""
    bytes: int
    """How many bytes it dropped."""
    deleted: tuple[str, ...]
    """Sealed segments that it deleted, by path."""
    size: int
    """Bytes that are left."""
    dry_run: bool


class StreamVerbs:
    """The operations on the stream in one folder.

    Parameters
    ----------
    path
        The folder, as the backend names it. Segments directly in it are the stream's.
    """

    def __init__(self, client: Client, listings: Listings, path: str) -> None:
        self.client = client
        self.listings = listings
        self.path = path
        self.cutter = Cutter(client)
        self.ledgers = Ledgers(client)
        self.trimmer = Trimmer(client, self.ledgers)

    # -- the segments --------------------------------------------------------------------------------------

    async def segments(self) -> list[str]:
        """The paths of the stream's segments, sorted.

        Raises
        ------
        FileNotFoundError
            There is no such folder.
        """
        return sorted(view.path for view in (await self._views()).values())

    async def infos(self, paths: Iterable[str] | None = None) -> dict[str, Info]:
        """The infos of many segments, in one batch, by path; by default of all.

        Raises
        ------
        FileNotFoundError
            One is not there.
        """
        if paths is None:
            return {view.path: info_of(view) for _, view in sorted((await self._views()).items())}
        wanted = list(paths)
        calls = [partial(self.client.lookup.view, self.client.backend.strip(path), fresh=True) for path in wanted]
        found = await self.listings.gather(calls)
        return {view.path: info_of(view) for view in found}

    async def size(self) -> int:
        """Bytes that the stream holds."""
        return sum(view.size for view in (await self._views()).values())

    async def delete(self) -> None:
        """Delete all segments of the stream, and what it remembers. One that was broken off may be called again."""
        views = await self._views()
        await self.listings.gather([partial(self._delete, view.path) for view in views.values()])
        await self._delete(names.ledger_path(self.path))

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # somebody else deleted it meanwhile
            await self.client.segments.delete(path)

    async def _views(self) -> dict[str, View]:
        """The segments as they are now, by name."""
        scan = await self.listings.scan(self.path)
        found = {self._name(path): view for path, view in scan.views.items()}
        found.pop(names.LEDGER_NAME, None)
        return found

    def _name(self, path: str) -> str:
        """A segment's name within the stream.

        Raises
        ------
        ValueError
            It is no segment of this stream.
        """
        folder, _, name = path.rpartition("/")
        if folder != self.path.rstrip("/") or not name:
            raise ValueError(f"{path!r} is no segment of the stream {self.path!r}")
        return name

    def _path(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    # -- cuts ----------------------------------------------------------------------------------------------

    async def cut(self, at: float | None = None, align: bytes | None = None) -> StreamCut:
        """Where the stream's segments end now.

        Parameters
        ----------
        at
            Cut before everything that may have been written after this time (seconds since 1970) instead, as far as
            the chunks' times tell.
        align
            Cut behind the last of these delimiters, so that no record is cut in two.
        """
        return (await self._cut(await self._views(), at, align)).renamed(self._path)

    async def _cut(self, views: Mapping[str, View], at: float | None, align: bytes | None) -> StreamCut:
        """A cut whose segments go by their names."""
        calls = [partial(self.cutter.offset, view, at, align) for view in views.values()]
        offsets = dict(zip(views, await self.listings.gather(calls), strict=True))
        # the clock after the headers: all that lies before the cut had been written by then
        when = self.client.committer.clock() if at is None else at
        return StreamCut(offsets, when, sum(view.size for view in views.values()))

    async def trim(self, cut: StreamCut) -> Trimmed:
        """Truncate every segment to its offset in a cut, and delete sealed ones that lie wholly before it.

        The trim is recorded first: one that is broken off is finished by the next, or by `retain`. Segments that the
        cut does not name are left as they are.

        Raises
        ------
        BadOffsetError
            It would go back behind an earlier trim, or beyond the end of a segment; nothing was trimmed.
        ValueError
            The cut is of another stream.
        """
        offsets = {self._name(path): offset for path, offset in cut.items()}
        views = await self._views()
        goals = self.trimmer.goals(views, offsets)
        ledger = await self.ledgers.update(self.path, lambda found: found.trimmed(goals, views, self.path))
        return await self.trimmer.finish(self.path, ledger)

    async def cuts(self) -> list[StreamCut]:
        """The cuts that retention has kept, oldest first."""
        ledger = await self.ledgers.load(self.path)
        return [kept.cut.renamed(self._path) for kept in ledger.cuts]

    # -- retention -----------------------------------------------------------------------------------------

    async def get_retention(self) -> RetentionPolicy | None:
        """The stream's policy; None if it has none."""
        return (await self.ledgers.load(self.path)).retention

    async def set_retention(self, policy: RetentionPolicy | None) -> None:
        """Store a policy with the stream, or remove it."""
        await self.ledgers.update(self.path, lambda found: replace(found, retention=policy))

    async def publish(self, subscriber: str, cut: StreamCut) -> None:
        """Say that a subscriber has read all that lies before a cut.

        Raises
        ------
        ValueError
            The subscriber has no name, or the cut is of another stream.
        """
        if not subscriber:
            raise ValueError(f"{self.path}: a subscriber needs a name; nothing was written")
        published = Published(cut.renamed(self._name), self.client.committer.clock())

        def change(found: Ledger) -> Ledger:
            return replace(found, subscribers={**found.subscribers, subscriber: published})

        await self.ledgers.update(self.path, change)

    async def subscribers(self) -> dict[str, StreamCut]:
        """The cut that each subscriber has published, by name."""
        ledger = await self.ledgers.load(self.path)
        return {name: found.cut.renamed(self._path) for name, found in sorted(ledger.subscribers.items())}

    async def unsubscribe(self, name: str) -> None:
        """Forget a subscriber; nothing, if there is none of this name."""

        def change(found: Ledger) -> Ledger:
            return replace(found, subscribers={who: cut for who, cut in found.subscribers.items() if who != name})

        await self.ledgers.update(self.path, change)

    async def retain(self, dry_run: bool = False) -> Retained:
        """One run of retention: finish a trim that was broken off, take a cut if it is time, trim.

        Parameters
        ----------
        dry_run
            Change nothing, say what would be done.

        Raises
        ------
        ValueError
            The stream has no policy.
        """
        ledger = await self.ledgers.load(self.path)
        policy = ledger.retention
        if policy is None:
            raise ValueError(f"{self.path}: the stream has no retention policy; assign one to `retention`")
        before = Trimmed() if dry_run else await self.trimmer.finish(self.path, ledger)
        views = await self._views()
        now = self.client.committer.clock()
        taken = None
        if not ledger.cuts or now - ledger.cuts[-1].cut.at >= policy.every:
            taken = await self._cut(views, None, policy.align)
        plan = _Plan(policy, taken, views, now)
        goals: dict[str, Goal] = {}

        def change(found: Ledger) -> Ledger:
            nonlocal goals
            found = plan.with_cut(found)
            goals = plan.goals(found)
            return plan.trimmed(found, goals, self.path)

        if dry_run:
            change(ledger)
            did = self.trimmer.expected(views, goals)
        else:
            did = await self.trimmer.finish(self.path, await self.ledgers.update(self.path, change))
        return self._report(plan, goals, [before, did], dry_run)

    def _report(self, plan: _Plan, goals: Mapping[str, Goal], trims: Sequence[Trimmed], dry_run: bool) -> Retained:
        size = sum(view.size for view in plan.views.values()) - trims[-1].bytes
        offsets = {self._path(name): goal.offset for name, goal in goals.items()}
        return Retained(
            None if plan.taken is None else plan.taken.renamed(self._path),
            StreamCut(offsets, plan.now, size) if offsets else None,
            sum(trim.bytes for trim in trims),
            tuple(path for trim in trims for path in trim.deleted),
            size,
            dry_run,
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run of retention makes of the ledger that it finds."""

    policy: RetentionPolicy
    taken: StreamCut | None
    views: Mapping[str, View]
    now: float

    def with_cut(self, ledger: Ledger) -> Ledger:
        """The ledger with the cut that was taken."""
        if self.taken is None:
            return ledger
        kept = KeptCut(self.taken, {name: _incarnation(self.views[name]) for name in self.taken})
        return ledger if kept in ledger.cuts else replace(ledger, cuts=(*ledger.cuts, kept))

    def goals(self, ledger: Ledger) -> dict[str, Goal]:
        """What there is to trim; never back behind what is recorded."""
        extents = self._extents()
        read = [(found.cut, found.at) for found in ledger.subscribers.values()]
        target = retention.choose(self.policy, ledger.cuts, read, extents, self.now)
        wanted = {name: offset for name, offset in target.items() if _is_due(extents[name], offset)}
        goals = Trimmer.goals(self.views, wanted)
        last = ledger.trim.goals
        return {name: goal for name, goal in goals.items() if name not in last or not goal.is_behind(last[name])}

    def trimmed(self, ledger: Ledger, goals: Mapping[str, Goal], name: str) -> Ledger:
        """The ledger with the trim begun, and without cuts that are of no use after it."""
        extents = self._extents()
        left = {
            found: replace(extent, start=max(extent.start, goals[found].offset)) if found in goals else extent
            for found, extent in extents.items()
        }
        return replace(ledger, cuts=retention.prune(ledger.cuts, left)).trimmed(goals, self.views, name)

    def _extents(self) -> dict[str, Extent]:
        return {name: _extent(view) for name, view in self.views.items()}


def _is_due(extent: Extent, offset: int) -> bool:
    return offset > extent.start or (extent.sealed and offset >= extent.end)


def _extent(view: View) -> Extent:
    header = view.header
    if header is None:
        assert view.plain is not None
        return Extent(0, view.length, _incarnation(view), created_at=view.plain.modified)
    created_at = (header.created_ms - 1) / 1000  # it is rounded: what came right after is not to seem earlier
    return Extent(view.start, view.length, header.segment, header.sealed, created_at)


def _incarnation(view: View) -> str:
    if view.header is not None:
        return view.header.segment
    assert view.plain is not None
    return f"plain file {view.plain.token}"
