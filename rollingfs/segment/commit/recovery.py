"""A client that meets the mark of a broken-off concat or rename finishes or undoes that operation.

A source that is *merging* belongs to a transaction of a mover that may be dead. If its target has the
transaction, the source becomes a tombstone. If not, the target first records that the transaction is aborted,
so that the mover cannot win any more; then the source gets its prior state back.

Anybody who may write a folder can write a mark there that names a target elsewhere. So no file is written in another
folder than the source's, unless a pin in the target's chunk folder shows that a mover wrote there, too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from rollingfs.backend.patience import look_for, read_fitting
from rollingfs.format import merging, names
from rollingfs.format.drops import with_hints
from rollingfs.format.header import Header, MergeOutcome, Phase
from rollingfs.format.merging import is_merging
from rollingfs.format.side_files import Pin, parse_pin, pin_path
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.index_pages import PageGoneError
from rollingfs.segment.commit.operation import Committed
from rollingfs.segment.commit.removals import delete_shadowed, wait_for_new_date
from rollingfs.segment.commit.store import Store
from rollingfs.segment.segment import Segment

logger = logging.getLogger("rollingfs")

MARK_AGE_S_MAX = 5.0
"""The mover of a younger mark is presumably alive: others wait for it."""
MARK_POLL_S = 0.1
SOURCES_AT_ONCE_MAX = 8


class Merges:
    """Resolves the marks that concat and rename leave while they are under way.

    Parameters
    ----------
    commit
        `Commits.commit`.
    """

    def __init__(self, store: Store, commit: Callable[..., Awaitable[Committed]]) -> None:
        self.store = store
        self._commit = commit

    # -- one source ----------------------------------------------------------------------------------------

    async def resolve(self, path: str, header: Header) -> None:
        """Finish or undo the merge of the source at `path`, or wait until its mover has done so.

        Raises
        ------
        AppendOutcomeUnknown, CommitTimeoutError
            The store does not answer, or others were faster for too long.
        """
        merge = header.merge
        assert merge is not None
        waited_s = 0.0
        while waited_s < MARK_AGE_S_MAX and self.store.now_ms() - merge.at_ms < MARK_AGE_S_MAX * 1000:
            await self.store.runtime.sleep(MARK_POLL_S)
            waited_s += MARK_POLL_S
            if not is_merging((await self.store.headers.load(path)).header, merge.txn):
                return
        target = names.find(names.parent(path), merge.target)
        logger.info("%s: resolving the merge %s into %s", path, merge.txn, target)
        if target is None or target == path:
            took_place = False  # no mover made this mark, or another tool has moved the tree away from the target
        elif await self._is_evident(path, target, header):
            took_place = not await self.abort(path, target, header)
        else:  # the mover is done with the target, if there ever was one: its header tells
            found = (await self.store.headers.load_durable(target)).header
            took_place = found is not None and merging.has_merged(found, merge)
        if took_place:
            await self.finish(path, merge.txn)
        else:
            await self.reset(path, merge.txn)

    async def _is_evident(self, source: str, target: str, header: Header) -> bool:
        """Whether the target's folder shows that a mover moves the source there: by the mark itself, or by a pin."""
        if names.parent(source) == names.parent(target):
            return True
        assert header.merge is not None
        folder, txn = names.chunks_folder(target), header.merge.txn
        path, backend, runtime = pin_path(folder, txn), self.store.backend, self.store.runtime

        async def look() -> Pin | None:
            try:
                return await read_fitting(backend, runtime, path, lambda blob: parse_pin(blob.data, folder, path))
            except FileNotFoundError:
                return None

        pin = await look_for(backend, runtime, path, look)
        return pin is not None and pin.folded() == Pin(txn, source, target, header.segment).folded()

    async def abort(self, source: str, target: str, header: Header) -> bool:
        """Make sure that a merge never takes place; False if it has taken place already."""
        took_place = False
        merge = header.merge
        assert merge is not None

        async def pinned() -> list[str]:
            try:
                return await self.store.pages.hints(source, header.entries, target)
            except PageGoneError:
                if is_merging((await self.store.headers.load(source)).header, merge.txn):
                    raise
                return []  # another client has resolved the mark, and noted the folders

        async def step(base: Segment, attempt: Attempt) -> Header | None:
            nonlocal took_place
            found = base.header
            took_place = found is not None and merging.has_merged(found, merge)
            if took_place or (found is not None and merging.has_aborted(found, merge.txn)):
                return None
            mark = MergeOutcome(merge.txn, names.relative(names.parent(target), source))
            if found is None:
                # nothing is there that could carry the line: a rename's target, not made yet
                found = Header(merge.target_segment, 1, phase=Phase.DELETED, created_ms=self.store.now_ms())
            # the pins in these folders name it: its tombstone, when it becomes one, must stay until they are gone
            found = with_hints(found, await pinned(), self.store.now_ms())
            return merging.with_aborted(found, mark)

        await self._commit(target, step, fresh=True)
        return not took_place

    async def reset(self, source: str, txn: str) -> None:
        """Give a source its prior state back, after its transaction can not take place any more."""

        async def step(base: Segment, attempt: Attempt) -> Header | None:
            found = base.header
            return merging.unmark(found) if found is not None and is_merging(found, txn) else None

        await self._commit(source, step)

    async def finish(self, source: str, txn: str) -> Header | None:
        """Turn a source into a tombstone, after its transaction took place; return it, if the source still is there."""

        async def step(base: Segment, attempt: Attempt) -> Header | None:
            found = base.header
            if found is None or not is_merging(found, txn):
                return None
            hints = await self.store.pages.hints(source, found.entries)
            await wait_for_new_date(self.store, source, found.adopted, attempt.operation.deadline_s)
            return with_hints(merging.bury(found, txn), hints, self.store.now_ms())

        header = (await self._commit(source, step)).header
        if header is None and is_merging((await self.store.headers.load_durable(source)).header, txn):
            header = (await self._commit(source, step)).header  # one look has not found it
        if header is None or header.merged != txn:
            return None
        await delete_shadowed(self.store, source, header.adopted)
        return header

    async def settled(self, path: str) -> Segment:
        """A header whose own merge is over, once those are settled that it has marks of."""
        loaded = await self.store.headers.load(path)
        while loaded.header is not None and loaded.header.phase is Phase.MERGING:
            await self.resolve(path, loaded.header)
            loaded = await self.store.headers.load(path)
        if loaded.header is not None and (loaded.header.merges or loaded.header.aborts):
            await self.settle(path)
        return loaded

    # -- all marks of a target -------------------------------------------------------------------------------

    async def settle(self, target: str) -> None:
        """Resolve the sources of all marks that a segment has, so that the next commit may drop the lines."""
        header = (await self.store.headers.load(target)).header
        if header is None:
            return
        merges = [partial(self._settle, target, header.segment, mark, True) for mark in header.merges]
        aborts = [partial(self._settle, target, header.segment, mark, False) for mark in header.aborts]
        await self.store.runtime.gather([*merges, *aborts], SOURCES_AT_ONCE_MAX)
        self.store.slots.remember(target, marks=[*header.merges, *header.aborts])

    async def _settle(self, target: str, segment: str, mark: MergeOutcome, took_place: bool) -> None:
        """Bring the source of a line to the state of the line, if its own mark names this target and incarnation.

        Otherwise the line has no owner, and may go: the source has been resolved, another tool has moved the tree, or
        somebody has made the line up.
        """
        source = names.find(names.parent(target), mark.source)
        if source is None or source == target:
            return
        header = (await self.store.headers.load_durable(source)).header
        merge = header.merge if header is not None else None
        if header is None or merge is None or merge.txn != mark.txn:
            return
        if names.folded(names.find(names.parent(source), merge.target) or "") != names.folded(target):
            return
        if took_place and merge.target_segment == segment:
            await self.finish(source, mark.txn)
        # a rename that was aborted has found another incarnation than the one that it would have made
        elif not took_place and (merge.target_segment == segment or await self._is_evident(source, target, header)):
            await self.reset(source, mark.txn)
