"""What concat and rename have in common: marks and pins in the sources, one commit of the target, tombstones.

1. Mark the sources, which freezes their maps, and pin the chunk folders that their entries name.
2. Commit the target. The caller's step makes its header of what `frozen` reads of the sources.
3. Turn the sources into tombstones.

If 2 certainly did not take place, the marks and pins are taken back. Whoever meets a mark that a crash has left
finishes or undoes the move (`rollingfs.commit.recovery`).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rollingfs.commit.attempt import Attempt, Step
from rollingfs.commit.committer import Committer
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.index_pages import PageGoneError
from rollingfs.errors import AppendOutcomeUnknown, CommitTimeoutError, RollingError, if_interrupted
from rollingfs.format import merging, names, placement
from rollingfs.format.header import Header, Mark, Merge
from rollingfs.format.merging import is_merging
from rollingfs.format.pin_codec import Pin, format_pin, pin_path
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.write.segment_operations import Segments

logger = logging.getLogger("rollingfs")

T = TypeVar("T")


class MarkLostError(RollingError):
    """Internal: another client has undone a mark, because it took this mover for dead; begin again."""


@dataclass(frozen=True, slots=True)
class Source:
    """A segment on its way into another."""

    path: str
    txn: str
    target: str
    segment: str | None = None
    """Its incarnation, if no other is meant."""

    @property
    def mark(self) -> Mark:
        """The line that it gets in the target."""
        return Mark(self.txn, names.relative(names.parent(self.target), self.path))


class Moves:
    """Takes sources through a move."""

    def __init__(self, committer: Committer, segments: Segments) -> None:
        self.committer = committer
        self.store = committer.store
        self.merges = committer.merges
        self.segments = segments

    async def until_marks_hold(self, path: str, move: Callable[[float], Awaitable[T]], otherwise: str) -> T:
        """Begin a move again, with new marks, until other clients leave them alone or the time is over.

        Parameters
        ----------
        move
            Is told when it is to give up, by the monotonic clock.
        otherwise
            What is true after the last try.
        """
        deadline_s = self.committer.loop.deadline_s()
        for attempt in itertools.count(1):
            try:
                return await move(deadline_s)
            except MarkLostError as lost:
                if time.monotonic() >= deadline_s:
                    raise CommitTimeoutError(f"{path}: {lost}; tried {attempt} times, {otherwise}") from lost
                logger.info("%s: %s", path, lost)
                await self.store.runtime.sleep(backoff_s(attempt))
        raise AssertionError("itertools.count ends")

    async def mark_all(self, sources: Sequence[Source], incarnation: str, deadline_s: float, *, sealed: bool) -> None:
        """Mark and pin all sources, or none.

        Parameters
        ----------
        incarnation
            The incarnation of the target.
        sealed
            Whether a source that is open is refused.
        """
        try:
            await self._each([partial(self._mark, source, incarnation, deadline_s, sealed) for source in sources])
        except (OSError, ValueError):
            await self._undo(sources)
            raise

    async def _mark(self, source: Source, incarnation: str, deadline_s: float, sealed: bool) -> None:
        """Freeze a source, then pin the folders that its entries name."""

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            if is_merging(base.header, source.txn):
                return None
            found = merging.check_source(base.header, source.path, sealed=sealed, segment=source.segment)
            target = names.relative(names.parent(source.path), source.target)
            merge = Merge(source.txn, target, incarnation, found.phase, self.store.now_ms())
            return merging.mark_merging(found, merge)

        try:
            committed = await self.committer.commit(source.path, step, deadline_s=deadline_s)
        except FileNotFoundError:
            if sealed:
                await self._refuse_plain(source.path)
            if not await self.segments.adopt(source.path):
                raise
            committed = await self.committer.commit(source.path, step, fresh=True, deadline_s=deadline_s)
        assert committed.header is not None
        await self._pin(source, committed.header)

    async def _refuse_plain(self, path: str) -> None:
        """Refuse a plain file, which counts as an open segment."""
        if await self.segments.lookup.plain(path, Loaded(None, None)) is not None:
            loaded = await self.store.headers.load(path)
            if not loaded.live and await self.segments.lookup.plain(path, loaded) is not None:
                raise merging.not_sealed(path)

    async def _pin(self, source: Source, header: Header) -> None:
        # of the retained bytes alone: the target will not name a folder in which only dropped chunks lie
        retained = [
            placement.clip(entry, header.start, entry.end) for entry in header.entries if entry.end > header.start
        ]
        try:
            folders = await self.store.pages.folders(source.path, retained)
        except PageGoneError as error:
            raise MarkLostError(f"the merge of {source.path} was undone by another client") from error
        for folder in sorted(folders):
            data = format_pin(Pin(source.txn, source.path, source.target), folder)
            await self.store.backend.write(pin_path(folder, source.txn), [data])

    async def frozen(self, target: Header | None, sources: Sequence[Source]) -> list[Header]:
        """The sources' headers as they are now, after the target was loaded; all must still be marked.

        Raises
        ------
        MarkLostError
            One is not: another client took this mover for dead.
        """
        for source in sources:
            if target is not None and merging.has_aborted(target, source.txn):
                raise MarkLostError(f"the merge of {source.path} was aborted by another client")
        loads = [partial(self.store.headers.load, source.path) for source in sources]
        frozen = []
        for source, loaded in zip(sources, await self._each(loads), strict=True):
            if loaded.header is None or not is_merging(loaded.header, source.txn):
                raise MarkLostError(f"the merge of {source.path} was undone by another client")
            frozen.append(loaded.header)
        return frozen

    async def commit_target(self, target: str, sources: Sequence[Source], step: Step, deadline_s: float) -> Header:
        """Commit the target, then bury the sources; what certainly did not take place is undone.

        Neither the burial nor the undoing is bound by the deadline: a mark that stays makes others wait.
        """
        try:
            committed = await self.committer.commit(target, step, slow=True, deadline_s=deadline_s)
        except AppendOutcomeUnknown:
            raise  # the marks stay; the next client that meets them resolves them
        except (OSError, ValueError):
            with if_interrupted(target, "not committed"):
                await self._undo(sources)
            raise
        try:
            with if_interrupted(target, "committed"):
                await self._each([partial(self.merges.finish, source.path, source.txn) for source in sources])
        except OSError as error:
            # the move has taken place; the next client that meets a mark finishes it
            logger.info("%s: not all sources could be buried yet: %s", target, error)
        else:
            self.committer.slots.remember(target, marks=[source.mark for source in sources])
        assert committed.header is not None
        return committed.header

    async def _undo(self, sources: Sequence[Source]) -> None:
        """Take back the marks of transactions that certainly did not and will not take place."""
        for source in sources:
            try:
                header = (await self.store.headers.load(source.path)).header
                if header is not None and is_merging(header, source.txn):
                    # a pin that stays would never be collected if the target is absent, so it goes. It goes before the
                    # mark: if it stays, so does the mark, and the client that resolves the mark notes the pins
                    folders = await self.store.pages.folders(source.path, header.entries)
                    await self.store.backend.delete([pin_path(folder, source.txn) for folder in sorted(folders)])
                    await self.merges.reset(source.path, source.txn)
            except OSError as error:
                logger.warning("%s: its merge mark stays until a client meets it: %s", source.path, error)

    async def _each(self, calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        return await self.store.runtime.gather(calls, self.store.backend.requests_max)
