"""What can be done with a stream, as coroutines of the core; `Stream` is made of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rollingfs.client import Client
from rollingfs.folders.listing import RAISE, REPORT, Info, Listings, OnError, info_of, info_of_unreadable
from rollingfs.format import names
from rollingfs.read.contents import is_of_entry
from rollingfs.read.snapshot import Snapshot
from rollingfs.stream import retention
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.cut_finder import Cutter
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import Goal, Ledger, Published
from rollingfs.stream.retention import Extent, RetentionPolicy
from rollingfs.stream.trim import Trimmed, Trimmer

logger = logging.getLogger("rollingfs")


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
    failed: Mapping[str, str] = field(default_factory=dict)
    """Segments that were left as they are because they cannot be read, or not be changed; and why, by path."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The segments of a stream, by name."""

    views: dict[str, Snapshot]
    unreadable: dict[str, OSError]

    @property
    def names(self) -> list[str]:
        """Of all that there are."""
        return sorted([*self.views, *self.unreadable])


class StreamVerbs:
    """The operations on the stream in one folder.

    Parameters
    ----------
    path
        The folder, as the backend names it. Segments directly in it are the stream's.
    on_error
        What to do about segments that cannot be read: ``"report"`` them and go on with the others, or ``"raise"``.
    """

    def __init__(self, client: Client, listings: Listings, path: str, on_error: OnError = REPORT) -> None:
        self.on_error = on_error
        self.client = client
        self.listings = listings
        self.path = path
        self.cutter = Cutter(client)
        self.ledgers = Ledgers(client)
        self.trimmer = Trimmer(client, self.ledgers, on_error)

    # -- the segments --------------------------------------------------------------------------------------

    async def segments(self) -> list[str]:
        """The paths of the stream's segments, sorted.

        Raises
        ------
        FileNotFoundError
            There is no such folder.
        """
        return [self._path(name) for name in (await self._look()).names]

    async def infos(self, paths: Iterable[str] | None = None) -> dict[str, Info]:
        """The infos of many segments, in one batch, by path; by default of all.

        Of those that cannot be read: the size None, and the error.

        Raises
        ------
        FileNotFoundError
            One is not there.
        """
        if paths is None:
            found = await self._look()
            return {self._path(name): self._info(name, found) for name in found.names}
        calls = [partial(self._info_now, self.client.backend.strip(path)) for path in paths]
        return {info["name"]: info for info in await self.listings.gather(calls)}

    def _info(self, name: str, found: _Found) -> Info:
        if name in found.views:
            return info_of(found.views[name])
        return info_of_unreadable(self._path(name), found.unreadable[name])

    async def _info_now(self, path: str) -> Info:
        try:
            return info_of(await self.client.lookup.view(path, fresh=True))
        except OSError as error:
            if self.on_error == RAISE or not is_of_entry(error):
                raise
            return info_of_unreadable(path, error)

    async def size(self) -> int:
        """Bytes that the stream holds."""
        return sum(view.size for view in (await self._views()).values())

    async def delete(self) -> None:
        """Delete all segments of the stream, and what it remembers. One that was broken off may be called again.

        Raises
        ------
        CorruptHeaderError, PermissionError
            A segment cannot be read; nothing was deleted. ``fs.rm(path, damaged=True)`` deletes such a segment.
        """
        found = await self._look()
        if found.unreadable:
            raise found.unreadable[min(found.unreadable)]
        ledger = names.ledger_path(self.path)
        await self.client.headers.load(ledger)  # if it cannot be read, that is said before anything is deleted
        await self.listings.gather([partial(self._delete, view.path) for view in found.views.values()])
        await self._delete(ledger)

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # somebody else deleted it meanwhile
            await self.client.segments.delete(path)

    async def _look(self) -> _Found:
        """The segments as they are now."""
        try:
            scan = await self.listings.scan(self.path, self.on_error)
        except (FileNotFoundError, NotADirectoryError):
            await self.ledgers.check(self.path)
            raise
        views = {self._name(path): view for path, view in scan.listed.items()}
        return _Found(views, {self._name(path): error for path, error in scan.errors.items()})

    async def _views(self) -> dict[str, Snapshot]:
        """The segments as they are now, by name; those that cannot be read are left out and named in the log."""
        found = await self._look()
        self._warn(found.unreadable)
        return found.views

    def _warn(self, unreadable: Mapping[str, OSError]) -> None:
        for name, error in unreadable.items():
            logger.warning("%s: the segment %s is left out, because it cannot be read: %s", self.path, name, error)

    def _said(self, unreadable: Mapping[str, OSError]) -> dict[str, str]:
        return {self._path(name): str(error) for name, error in unreadable.items()}

    async def _look_to_cut(self) -> _Found:
        """The segments as they are now, each with its incarnation.

        A listing may tell no token of a plain file, or another than a look at it does.
        """
        found = await self._look()
        plain = [name for name, view in found.views.items() if view.header is None]
        looks = await self.listings.gather([partial(self._view, found.views.pop(name).path) for name in plain])
        looked_at = dict(zip(plain, looks, strict=True))
        now = {name: view for name, view in looked_at.items() if isinstance(view, Snapshot)}
        unreadable = {name: error for name, error in looked_at.items() if isinstance(error, OSError)}
        return _Found(found.views | now, found.unreadable | unreadable)

    async def _view(self, path: str) -> Snapshot | OSError | None:
        """A plain file as it is now; why it cannot be read; None if it went meanwhile."""
        try:
            return await self.client.lookup.view(path, fresh=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            if self.on_error == RAISE or not is_of_entry(error):
                raise
            return error

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

        A segment that cannot be read is not in the cut, and is named in a warning in the log.
        """
        found = await self._look_to_cut()
        self._warn(found.unreadable)
        cut, _ = await self._cut(found.views, at, align)
        return cut.renamed(self._path)

    async def _cut(
        self, views: Mapping[str, Snapshot], at: float | None, align: bytes | None
    ) -> tuple[StreamCut, dict[str, OSError]]:
        """A cut whose segments go by their names, and those that it leaves out because they cannot be read."""
        calls = [partial(self._offset, view, at, align) for view in views.values()]
        found = dict(zip(views, await self.listings.gather(calls), strict=True))
        failed = {name: offset for name, offset in found.items() if isinstance(offset, OSError)}
        self._warn(failed)
        offsets = {name: offset for name, offset in found.items() if not isinstance(offset, OSError)}
        # the clock after the headers: all that lies before the cut had been written by then
        when = self.client.committer.clock() if at is None else at
        incarnations = {name: views[name].incarnations[0] for name in offsets if views[name].incarnations}
        return StreamCut(offsets, when, sum(views[name].size for name in offsets), incarnations), failed

    async def _offset(self, view: Snapshot, at: float | None, align: bytes | None) -> int | OSError:
        """Where to cut a segment; why it cannot be cut, if what says so (a page, a chunk) is damaged or gone."""
        try:
            return await self.cutter.offset(view, at, align)
        except OSError as error:
            if self.on_error == RAISE or not (is_of_entry(error) or isinstance(error, FileNotFoundError)):
                raise
            return error

    async def trim(self, cut: StreamCut) -> Trimmed:
        """Truncate every segment to its offset in a cut, and delete sealed ones that lie wholly before it.

        The trim is recorded first: one that is broken off is finished by the next, or by `retain`. Segments that the
        cut does not name are left as they are, and so are those that got a name after the cut was taken.

        Raises
        ------
        BadOffsetError
            It would go back behind an earlier trim, or beyond the end of a segment; nothing was trimmed.
        ValueError
            The cut is of another stream, or does not say which incarnations it means; nothing was trimmed.
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        self._check_cut(cut)
        meant = cut.renamed(self._name)
        found = await self._look_to_cut()
        unread = {name: error for name, error in found.unreadable.items() if name in meant}
        self._warn(unread)
        goals = self.trimmer.goals(found.views, meant)
        ledger = await self.ledgers.update(self.path, lambda last: last.trimmed(goals, found.names, self.path))
        did = await self.trimmer.finish(self.path, ledger)
        return replace(did, failed={**self._said(unread), **did.failed})

    def _check_cut(self, cut: Any) -> None:
        _check_kind(self.path, cut, StreamCut, "the cut", "stream.cut() or StreamCut.parse(text)")

    async def cuts(self) -> list[StreamCut]:
        """The cuts that retention has kept, oldest first."""
        ledger = await self.ledgers.load(self.path)
        return [cut.renamed(self._path) for cut in ledger.cuts]

    # -- retention -----------------------------------------------------------------------------------------

    async def get_retention(self) -> RetentionPolicy | None:
        """The stream's policy; None if it has none."""
        return (await self.ledgers.load(self.path)).retention

    async def set_retention(self, policy: RetentionPolicy | None) -> None:
        """Store a policy with the stream, or remove it.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        if policy is not None:
            example = "RetentionPolicy.by_size('1GiB')"
            _check_kind(self.path, policy, RetentionPolicy, "the retention", example)
        await self.ledgers.update(self.path, lambda found: replace(found, retention=policy))

    async def publish(self, subscriber: str, cut: StreamCut) -> None:
        """Say that a subscriber has read all that lies before a cut.

        What the cut says no incarnation of counts as unread.

        Raises
        ------
        ValueError
            The subscriber has no name, or the cut is of another stream.
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        _check_kind(self.path, subscriber, str, "the subscriber", "'billing'")
        self._check_cut(cut)
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
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        ledger = await self.ledgers.load(self.path)
        policy = ledger.retention
        if policy is None:
            await self._views()  # says so if there is no such folder
            raise ValueError(f"{self.path}: the stream has no retention policy; assign one to `retention`")
        before = Trimmed() if dry_run else await self.trimmer.finish(self.path, ledger)
        there = await self._look_to_cut()
        self._warn(there.unreadable)
        views, failed = there.views, dict(there.unreadable)
        now = self.client.committer.clock()
        taken = None
        if not ledger.cuts or now - ledger.cuts[-1].at >= policy.every:
            taken, uncut = await self._cut(views, None, policy.align)
            failed |= uncut
        plan = _Plan(policy, taken, views, there.names, now)
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
        report = self._report(plan, goals, [before, did], dry_run)
        return replace(report, failed={**self._said(failed), **report.failed})

    def _report(self, plan: _Plan, goals: Mapping[str, Goal], trims: Sequence[Trimmed], dry_run: bool) -> Retained:
        size = sum(view.size for view in plan.views.values()) - trims[-1].bytes
        offsets = {name: goal.offset for name, goal in goals.items()}
        incarnations = {name: goal.segment for name, goal in goals.items() if goal.segment is not None}
        return Retained(
            None if plan.taken is None else plan.taken.renamed(self._path),
            StreamCut(offsets, plan.now, size, incarnations).renamed(self._path) if offsets else None,
            sum(trim.bytes for trim in trims),
            tuple(path for trim in trims for path in trim.deleted),
            size,
            dry_run,
            {path: error for trim in trims for path, error in trim.failed.items()},
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run of retention makes of the ledger that it finds."""

    policy: RetentionPolicy
    taken: StreamCut | None
    views: Mapping[str, Snapshot]
    extant: Sequence[str]
    """The names of all segments that there are, also of those that cannot be read."""
    now: float

    def with_cut(self, ledger: Ledger) -> Ledger:
        """The ledger with the cut that was taken."""
        if self.taken is None or self.taken in ledger.cuts:
            return ledger
        return replace(ledger, cuts=(*ledger.cuts, self.taken))

    def goals(self, ledger: Ledger) -> dict[str, Goal]:
        """What there is to trim; never back behind what is recorded."""
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
        """The ledger with the trim begun, and without cuts that are of no use after it."""
        extents = self._extents()
        left = {
            found: replace(extent, start=max(extent.start, goals[found].offset)) if found in goals else extent
            for found, extent in extents.items()
        }
        return replace(ledger, cuts=retention.prune(ledger.cuts, left)).trimmed(goals, self.extant, name)

    def _extents(self) -> dict[str, Extent]:
        return {name: _extent(view) for name, view in self.views.items()}


def _is_due(extent: Extent, offset: int) -> bool:
    return offset > extent.start or (extent.sealed and offset >= extent.end)


def _extent(view: Snapshot) -> Extent:
    return Extent(view.start, view.length, view.incarnations, view.header is not None and view.header.sealed)


def _check_kind(path: str, value: Any, kind: type, name: str, example: str) -> None:
    """Refuse what is not of a class.

    Raises
    ------
    TypeError
        It is not.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{path}: {name} is {value!r}: it must be a {kind.__name__}, as {example}; nothing was written")
