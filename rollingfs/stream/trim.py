"""Trimming a stream: recorded first, so that whoever comes next finishes what was broken off."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from rollingfs.client import Client
from rollingfs.errors import BadOffsetError
from rollingfs.folders.listing import RAISE, REPORT, OnError
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import Guard
from rollingfs.read.contents import is_of_entry
from rollingfs.read.snapshot import Snapshot
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import Goal, Ledger, Trim

logger = logging.getLogger("rollingfs")


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim dropped (in a dry run: would drop)."""

    bytes: int = 0
    deleted: tuple[str, ...] = ()
    """Sealed segments that lay wholly before the cut, by path."""
    waiting: int = 0
    """Bytes that wait for the collection of the folders they lie in."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Segments that were left as they are because they cannot be read, or not be changed; and why, by path."""


class Trimmer:
    """Trims the segments of streams.

    Parameters
    ----------
    on_error
        Whether to go on with the others after a segment that cannot be read or changed.
    """

    def __init__(self, client: Client, ledgers: Ledgers, on_error: OnError = REPORT) -> None:
        self.client = client
        self.ledgers = ledgers
        self.on_error = on_error

    @staticmethod
    def goals(views: Mapping[str, Snapshot], cut: StreamCut) -> dict[str, Goal]:
        """What a trim to a cut has to do.

        Parameters
        ----------
        views
            The segments, by name.
        cut
            By name. Of segments that are not there, and of those that only have the name of the one that it means, it
            says nothing.

        Raises
        ------
        BadOffsetError
            An offset lies beyond the end of its segment.
        ValueError
            The cut does not say of which incarnation an offset is that would drop bytes.
        """
        goals = {}
        for name, offset in cut.items():
            view = views.get(name)
            if view is None:
                continue
            meant = cut.incarnations.get(name)
            if meant is None and _drops(view, offset):
                raise ValueError(
                    f"{view.path}: the cut does not say which incarnation of the segment it means, as cuts of older "
                    "releases do not, so that could be one that was replaced since; nothing was trimmed: take a new cut"
                )
            if meant not in view.incarnations:
                continue
            if offset > view.length:
                raise BadOffsetError(
                    f"{view.path}: cannot trim to {offset}; it holds bytes {view.start} to {view.length}"
                )
            goals[name] = Goal(offset, view.incarnations[0])
        return goals

    @staticmethod
    def expected(views: Mapping[str, Snapshot], goals: Mapping[str, Goal]) -> Trimmed:
        """What a trim would drop."""
        found = [(views[name], goal.offset) for name, goal in goals.items() if name in views]
        return Trimmed(
            sum(max(0, offset - view.start) for view, offset in found),
            tuple(view.path for view, offset in found if view.header and is_over(view.header, offset)),
        )

    async def finish(self, folder: str, ledger: Ledger) -> Trimmed:
        """Do what is recorded; nothing, if it is done.

        It stays recorded for segments that cannot be read or changed now: each run tries them again.

        Raises
        ------
        OSError
            A segment could not be trimmed; the trim stays recorded, and the next run goes on with it.
        """
        if ledger.trim.done:
            return Trimmed()
        calls = [
            partial(self._trim_or_report, f"{folder.rstrip('/')}/{name}", goal)
            for name, goal in ledger.trim.goals.items()
        ]
        result = _sum(await self.client.runtime.gather(calls, self.client.backend.requests_max))
        if result.failed:
            return result
        done = ledger.trim

        def finished(found: Ledger) -> Ledger:
            # another trim may have been recorded meanwhile: then it goes on
            return replace(found, trim=Trim(done.goals)) if found.trim == done else found

        await self.ledgers.update(folder, finished)
        return result

    async def _trim_or_report(self, path: str, goal: Goal) -> Trimmed:
        try:
            return await self._trim(path, goal)
        except OSError as error:
            if self.on_error == RAISE or not is_of_entry(error):
                raise
            logger.warning("%s is not trimmed: %s", path, error)
            return Trimmed(failed={path: str(error)})

    async def _trim(self, path: str, goal: Goal) -> Trimmed:
        """Trim one segment, unless it is gone, or another has its name."""
        view = await self._view(path)
        if view is None or goal.segment not in view.incarnations:
            return Trimmed()
        offset = min(goal.offset, view.length)
        dropped = max(0, offset - view.start)
        guard = _guard(goal, view.header)
        try:
            if view.header is not None and is_over(view.header, offset):
                await self.client.segments.delete(path, guard)
                return Trimmed(dropped, (path,))
            waiting = await self.client.segments.truncate(path, offset, guard) if dropped else 0
        except FileNotFoundError:
            return Trimmed()  # deleted or moved away meanwhile
        return Trimmed(dropped, (), waiting)

    async def _view(self, path: str) -> Snapshot | None:
        try:
            view = await self.client.lookup.view(path, fresh=True)
            while view.header is not None and view.header.phase is Phase.MERGING:
                await self.client.merges.resolve(path, view.header)
                view = await self.client.lookup.view(path, fresh=True)
        except FileNotFoundError:
            return None
        return view


def is_over(header: Header, offset: int) -> bool:
    """Whether a trim to this offset leaves nothing of a segment that takes no more bytes."""
    return header.sealed and offset >= header.length


def _drops(view: Snapshot, offset: int) -> bool:
    """Whether a trim to this offset leaves less than there is."""
    return offset > view.start or (view.header is not None and is_over(view.header, offset))


def _guard(goal: Goal, header: Header | None) -> Guard:
    """Trimming is the stream's right, whoever writes exclusively: so it acts in the epoch that it finds."""
    return Guard(goal.segment, header.epoch if header is not None and header.owner is not None else None)


def _sum(found: Iterable[Trimmed]) -> Trimmed:
    several = list(found)
    return Trimmed(
        sum(one.bytes for one in several),
        tuple(path for one in several for path in one.deleted),
        sum(one.waiting for one in several),
        {path: error for one in several for path, error in one.failed.items()},
    )
