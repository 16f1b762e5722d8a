"""The operations on two segments: concat and rename. No byte is moved.

The sources are marked, which freezes their maps; their chunk folders are pinned; one commit gives their entries
to the target; then they become tombstones. A crash in between leaves marks that anyone resolves (`merges`).
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from rollingfs.commit.attempt import Attempt, Step
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.index_pages import PageGoneError
from rollingfs.commit.loop import Committer
from rollingfs.commit.recovery import Merges, is_merging
from rollingfs.commit.shadowing import shadow
from rollingfs.errors import (
    AppendInterrupted,
    AppendOutcomeUnknown,
    CommitTimeoutError,
    RollingError,
    if_interrupted,
    interrupted,
)
from rollingfs.format import names, placement, tokens, transitions
from rollingfs.format.drops import drop_all, with_hints
from rollingfs.format.header import MARKS_MAX, Adopted, Header, Mark, Merge
from rollingfs.format.pin_codec import Pin, format_pin, pin_path
from rollingfs.format.placement import Item
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.write.gather import grow
from rollingfs.write.segment_operations import Segments

logger = logging.getLogger("rollingfs")

T = TypeVar("T")

BATCH_PATH_BYTES_MAX = 24 * 1024
"""So many bytes of source names in the marks of one commit."""


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


class Concats:
    """Moves entries between segments."""

    def __init__(self, committer: Committer, segments: Segments, merges: Merges) -> None:
        self.committer = committer
        self.segments = segments
        self.merges = merges

    # -- concat --------------------------------------------------------------------------------------------

    async def concat(
        self,
        target: str,
        sources: Sequence[str],
        *,
        attrs: Mapping[str, str | None] | None = None,
        guard: Guard | None = None,
        meant: Mapping[str, str | None] | None = None,
    ) -> int:
        """Append sealed segments to another without moving bytes; they are gone afterwards.

        Up to 128 sources (fewer where their names are long) become part of the target in one commit; more
        take further commits, the last of which sets the attributes.

        Parameters
        ----------
        meant
            The incarnations of sources, by path; of others, whatever has the name is taken.

        Returns
        -------
        int
            The offset at which the first source's bytes begin.

        Raises
        ------
        ValueError
            The target is among the sources, or one source comes twice.
        FileNotFoundError
            The target or a source is missing.
        SegmentNotSealedError
            A source is not sealed.
        SegmentSealedError
            The target is.
        """
        sources = list(sources)
        if target in sources:
            raise ValueError(f"{target}: a segment cannot be concatenated to itself; nothing was changed")
        if len(set(sources)) != len(sources):
            raise ValueError(f"{target}: a source comes twice; each can be given away only once; nothing was changed")
        transitions.check_attrs(attrs or {}, target)
        guard = guard or Guard()
        batches = _batches(target, sources)
        offset = -1
        for index, batch in enumerate(batches):
            last = attrs if index == len(batches) - 1 else None
            try:
                begins = await self._concat(target, batch, last or {}, guard, meant or {})
            except AppendInterrupted as interrupt:
                if index == {"not committed": 0, "committed": len(batches) - 1}.get(interrupt.outcome):
                    raise
                raise interrupted(target, "unknown") from interrupt  # some of the sources are there
            offset = begins if index == 0 else offset
            guard = replace(guard, expected_offset=None)
        return offset

    async def _concat(
        self,
        target: str,
        paths: Sequence[str],
        attrs: Mapping[str, str | None],
        guard: Guard,
        meant: Mapping[str, str | None],
    ) -> int:
        async def move() -> int:
            with if_interrupted(target, "not committed"):
                found = await self._target(target, guard)
            sources = [Source(path, str(uuid.uuid4()), target, meant.get(path)) for path in paths]
            return await self._move_in(target, found.segment, sources, attrs, guard)

        return await self._while_marks_are_lost(target, move, "nothing was written")

    async def _target(self, target: str, guard: Guard) -> Header:
        """The target's header as last seen, if it allows a concat; what forbids it is judged by a fresh one."""
        seen = self.committer.headers.seen(target)
        if seen is not None:
            try:
                found = transitions.check(seen.header, guard, target)
                transitions.check_open(found, target)
                return found
            except (RollingError, FileNotFoundError):
                logger.debug("%s: looking at the target again", target)
        while True:
            loaded = await self.committer.headers.load(target)
            if not loaded.live and await self.segments.adopt(target, guard.segment):
                continue
            if not loaded.live and guard.segment is None:
                await self.segments.contents.check_no_folder(target)
            try:
                found = transitions.check(loaded.header, guard, target)
            except transitions.MergeFoundError as merge:
                await self.committer.resolve_merge(target, merge)
                continue
            transitions.check_open(found, target)
            return found

    async def _move_in(
        self, target: str, incarnation: str, sources: Sequence[Source], attrs: Mapping[str, str | None], guard: Guard
    ) -> int:
        with if_interrupted(target, "not committed"):
            await self._mark_all(sources, incarnation, sealed=True)
        offset = -1

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            nonlocal offset
            done = base.header is not None and all(transitions.has_merged(base.header, s.txn) for s in sources)
            if done and sources and base.live:
                return None
            if base.header is None or base.header.deleted or base.header.segment != incarnation:
                # a verb by path goes on with what has this name now, which the marks must say
                raise MarkLostError(f"{target} is not the segment any more that it was when its sources were marked")
            found = transitions.check(base.header, guard, target)
            transitions.check_open(found, target)
            transitions.check_marks(found, [source.mark for source in sources])
            frozen = await self._frozen(found, sources)
            offset = found.length
            items = [item for source, header in zip(sources, frozen, strict=True) for item in _items(source, header)]
            grown = await grow(self.committer, target, found, items, attempt, joint=True)
            marked = transitions.with_merged(grown, [source.mark for source in sources])
            return transitions.with_attrs(marked, attrs, target)

        await self._commit_target(target, sources, step)
        return offset

    # -- rename --------------------------------------------------------------------------------------------

    async def rename(self, path: str, target: str) -> None:
        """Give a segment another name, over what may be there; start, length, state, policy and attributes stay.

        Raises
        ------
        FileNotFoundError
            Nothing is at `path`.
        FencedError
            An exclusive owner holds one of the two.
        FolderOccupiedError
            A folder with something in it has the new name.
        """
        names.check_segment_name(target)
        if path == target:
            await self.segments.lookup.view(path, fresh=True)
            return

        async def move() -> None:
            await self._rename(Source(path, str(uuid.uuid4()), target))

        await self._while_marks_are_lost(path, move, "it is not renamed")

    async def _rename(self, source: Source) -> None:
        incarnation = str(uuid.uuid4())
        target = source.target
        with if_interrupted(target, "not committed"):
            await self._mark_all([source], incarnation, sealed=False)

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            if base.header is not None and transitions.has_merged(base.header, source.txn):
                return None
            if base.live:
                transitions.check(base.header, Guard(), target)
            (frozen,) = await self._frozen(base.header, [source])
            adopted = base.header.adopted if base.header else None
            if not base.live:
                adopted = shadow(await self.segments.contents.room(target, base)) or adopted
            renamed = self._renamed(source, frozen, base.header, incarnation, adopted)
            hints = await self.committer.pages.hints(target, base.header.entries) if base.header else []
            return with_hints(renamed, hints, self.committer.now_ms())

        header = await self._commit_target(target, [source], step)
        try:
            with if_interrupted(target, "committed"):
                await self.committer.finish_drops(target, header)
        except OSError as error:
            logger.info("%s: renamed, but not all of what it replaced could be deleted yet: %s", target, error)

    def _renamed(
        self, source: Source, frozen: Header, base: Header | None, incarnation: str, adopted: Adopted | None
    ) -> Header:
        now_ms = self.committer.now_ms()
        fresh = transitions.create(base, incarnation, frozen.policy, now_ms, adopted)
        assert frozen.merge is not None
        return replace(
            fresh,
            version=base.version if base else 1,
            phase=frozen.merge.prior,
            epoch=max(frozen.epoch, base.epoch if base else 0) + 1,
            start=frozen.start,
            entries=tuple(placement.transplant(frozen.entries, frozen.start, source.path, source.target)),
            tail=frozen.tail,
            tail_at_ms=frozen.tail_at_ms,
            attrs=frozen.attrs,
            drops=drop_all(base, now_ms) if base else (),
            merges=(source.mark,),
            created_ms=frozen.created_ms,
            unknown=frozen.unknown,
        )

    # -- both ----------------------------------------------------------------------------------------------

    async def _while_marks_are_lost(self, path: str, move: Callable[[], Awaitable[T]], otherwise: str) -> T:
        """Begin a move again, with new marks, until others leave them alone or the time is over."""
        deadline_s = self.committer.deadline_s()
        for attempt in itertools.count(1):
            try:
                return await move()
            except MarkLostError as lost:
                if time.monotonic() >= deadline_s:
                    raise CommitTimeoutError(f"{path}: {lost}; tried {attempt} times, {otherwise}") from lost
                logger.info("%s: %s", path, lost)
                await self.committer.runtime.sleep(backoff_s(attempt))
        raise AssertionError("itertools.count ends")

    async def _commit_target(self, target: str, sources: Sequence[Source], step: Step) -> Header:
        """Commit the target, then bury the sources; what certainly did not take place is undone."""
        try:
            committed = await self.committer.commit(target, step, slow=True)
        except AppendOutcomeUnknown:
            raise  # the marks stay, and are resolved by whoever meets them
        except (OSError, ValueError):
            with if_interrupted(target, "not committed"):
                await self._undo(sources)
            raise
        try:
            with if_interrupted(target, "committed"):
                await self._each([partial(self.merges.finish, source.path, source.txn) for source in sources])
        except OSError as error:
            # it has taken place; the marks in the sources are resolved by whoever meets them
            logger.info("%s: not all sources could be buried yet: %s", target, error)
        else:
            self.committer.remember(target, marks=[source.mark for source in sources])
        assert committed.header is not None
        return committed.header

    async def _mark_all(self, sources: Sequence[Source], incarnation: str, *, sealed: bool) -> None:
        """Mark and pin all sources, or none."""
        try:
            await self._each([partial(self._mark, source, incarnation, sealed) for source in sources])
        except (OSError, ValueError):
            await self._undo(sources)
            raise

    async def _mark(self, source: Source, incarnation: str, sealed: bool) -> None:
        """Freeze a source, then pin the folders that its entries name."""

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            if is_merging(base.header, source.txn):
                return None
            found = transitions.check_source(base.header, source.path, sealed=sealed, segment=source.segment)
            target = names.relative(names.parent(source.path), source.target)
            merge = Merge(source.txn, target, incarnation, found.phase, self.committer.now_ms())
            return transitions.mark_merging(found, merge)

        try:
            committed = await self.committer.commit(source.path, step)
        except FileNotFoundError:
            if sealed:
                await self._refuse_plain(source.path)
            if not await self.segments.adopt(source.path):
                raise
            committed = await self.committer.commit(source.path, step, fresh=True)
        assert committed.header is not None
        await self._pin(source, committed.header)

    async def _refuse_plain(self, path: str) -> None:
        """A plain file counts as an open segment."""
        if await self.segments.lookup.plain(path, Loaded(None, None)) is not None:
            loaded = await self.committer.headers.load(path)
            if not loaded.live and await self.segments.lookup.plain(path, loaded) is not None:
                raise transitions.not_sealed(path)

    async def _pin(self, source: Source, header: Header) -> None:
        # of the retained bytes alone: the target will have no trace of a folder that only dropped chunks lie in
        retained = [
            placement.clip(entry, header.start, entry.end) for entry in header.entries if entry.end > header.start
        ]
        try:
            folders = await self.committer.pages.folders(source.path, retained)
        except PageGoneError as error:
            raise MarkLostError(f"the merge of {source.path} was undone by another client") from error
        for folder in sorted(folders):
            data = format_pin(Pin(source.txn, source.path, source.target), folder)
            await self.committer.backend.write(pin_path(folder, source.txn), [data])

    async def _frozen(self, target: Header | None, sources: Sequence[Source]) -> list[Header]:
        """The sources' headers as they are now, after the target was loaded; all must still be bound.

        Raises
        ------
        MarkLostError
            One is not: somebody took this mover for dead.
        """
        for source in sources:
            if target is not None and transitions.has_aborted(target, source.txn):
                raise MarkLostError(f"the merge of {source.path} was aborted by another client")
        loads = [partial(self.committer.headers.load, source.path) for source in sources]
        frozen = []
        for source, loaded in zip(sources, await self._each(loads), strict=True):
            if loaded.header is None or not is_merging(loaded.header, source.txn):
                raise MarkLostError(f"the merge of {source.path} was undone by another client")
            frozen.append(loaded.header)
        return frozen

    async def _undo(self, sources: Sequence[Source]) -> None:
        """Take marks back whose transaction certainly did not and will not take place."""
        for source in sources:
            try:
                header = (await self.committer.headers.load(source.path)).header
                if header is not None and is_merging(header, source.txn):
                    # nobody will ever refer by this transaction; with the target absent no collection could tell.
                    # First the pins: if they stay, so does the mark, and whoever resolves it takes note of them
                    folders = await self.committer.pages.folders(source.path, header.entries)
                    await self.committer.backend.delete([pin_path(folder, source.txn) for folder in sorted(folders)])
                    await self.merges.reset(source.path, source.txn)
            except OSError as error:
                logger.warning("%s: its merge mark stays until somebody meets it: %s", source.path, error)

    async def _each(self, calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        return await self.committer.runtime.gather(calls, self.committer.backend.requests_max)


def _items(source: Source, frozen: Header) -> list[Item]:
    """A source's retained bytes as items of the target."""
    items: list[Item] = list(placement.transplant(frozen.entries, frozen.start, source.path, source.target))
    return [*items, frozen.tail] if frozen.tail else items


def _batches(target: str, sources: Sequence[str]) -> list[list[str]]:
    """Sources in groups whose marks fit one header."""
    batches: list[list[str]] = [[]]
    size = 0
    for path in sources:
        path_bytes = len(tokens.quote(names.relative(names.parent(target), path)).encode())
        if batches[-1] and (len(batches[-1]) >= MARKS_MAX or size + path_bytes > BATCH_PATH_BYTES_MAX):
            batches.append([])
            size = 0
        batches[-1].append(path)
        size += path_bytes
    return batches
