"""Merges under way: whoever meets the mark of a concat or rename finishes it or undoes it.

A source that is *merging* belongs to a transaction of a mover that may be dead. If its target has the
transaction, the source becomes a tombstone; if not, the target is first told that the transaction is aborted,
so that the mover cannot win any more, and then the source gets its prior state back.
"""

from __future__ import annotations

import logging
from functools import partial

from rollingfs.commit.attempt import Attempt
from rollingfs.commit.header_cache import Headers, Loaded
from rollingfs.commit.index_pages import PageGoneError
from rollingfs.commit.loop import Committer
from rollingfs.commit.shadowing import delete_shadowed, let_pass
from rollingfs.format import names, transitions
from rollingfs.format.drops import with_hints
from rollingfs.format.header import Header, Mark, Phase

logger = logging.getLogger("rollingfs")

MARK_AGE_S_MAX = 5.0
"""A younger mark belongs to a mover that is presumably alive, and is waited for."""
MARK_POLL_S = 0.1
SOURCES_AT_ONCE_MAX = 8


def is_merging(header: Header | None, txn: str) -> bool:
    """Whether this is a source that is still bound to a transaction."""
    return header is not None and header.merge is not None and header.merge.txn == txn


class Merges:
    """Resolves the marks that concat and rename leave while they are under way."""

    def __init__(self, committer: Committer, headers: Headers) -> None:
        self.committer = committer
        self.headers = headers

    async def resolve(self, path: str, header: Header) -> None:
        """Finish or undo the merge of the source at `path`, or wait until its mover has.

        Raises
        ------
        AppendOutcomeUnknown, CommitTimeoutError
            The store does not answer, or others were faster for too long.
        """
        merge = header.merge
        assert merge is not None
        waited_s = 0.0
        while waited_s < MARK_AGE_S_MAX and self.committer.now_ms() - merge.at_ms < MARK_AGE_S_MAX * 1000:
            await self.committer.runtime.sleep(MARK_POLL_S)
            waited_s += MARK_POLL_S
            if not is_merging((await self.headers.load(path)).header, merge.txn):
                return
        target = names.check_segment_name(names.climb(names.parent(path), merge.target))
        logger.info("%s: resolving the merge %s into %s", path, merge.txn, target)
        if await self.abort(path, target, header):
            await self.reset(path, merge.txn)
        else:
            await self.finish(path, merge.txn)

    async def abort(self, source: str, target: str, header: Header) -> bool:
        """Make sure that a merge never takes place; False if it has taken place already."""
        took_place = False
        merge = header.merge
        assert merge is not None

        async def pinned() -> list[str]:
            try:
                return await self.committer.pages.hints(source, header.entries, target)
            except PageGoneError:
                if is_merging((await self.headers.load(source)).header, merge.txn):
                    raise
                return []  # somebody else has resolved the mark, and noted the folders

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            nonlocal took_place
            found = base.header
            took_place = found is not None and transitions.has_merged(found, merge.txn)
            if took_place or (found is not None and transitions.has_aborted(found, merge.txn)):
                return None
            mark = Mark(merge.txn, names.relative(names.parent(target), source))
            if found is None:
                # nothing is there that could carry the line: a rename's target, not made yet
                found = Header(merge.target_segment, 1, phase=Phase.DELETED, created_ms=self.committer.now_ms())
            # the pins in these folders name it: its tombstone, when it becomes one, must stay until they are gone
            found = with_hints(found, await pinned(), self.committer.now_ms())
            return transitions.with_aborted(found, mark)

        await self.committer.commit(target, step, fresh=True)
        return not took_place

    async def reset(self, source: str, txn: str) -> None:
        """Give a source its prior state back, after its transaction can not take place any more."""

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = base.header
            return transitions.unmark(found) if found is not None and is_merging(found, txn) else None

        await self.committer.commit(source, step)

    async def finish(self, source: str, txn: str) -> None:
        """Turn a source into a tombstone, after its transaction took place."""

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = base.header
            if found is None or not is_merging(found, txn):
                return None
            hints = await self.committer.pages.hints(source, found.entries)
            await let_pass(self.committer, source, found.adopted)
            return with_hints(transitions.bury(found, txn), hints, self.committer.now_ms())

        header = (await self.committer.commit(source, step)).header
        if header is not None and header.merged == txn:
            await delete_shadowed(self.committer, source, header.adopted)

    async def settle(self, target: str) -> None:
        """Resolve the sources of all marks that a segment has, so that the next commit may drop the lines."""
        header = (await self.headers.load(target)).header
        if header is None:
            return
        merges = [partial(self._settle, target, mark, True) for mark in header.merges]
        aborts = [partial(self._settle, target, mark, False) for mark in header.aborts]
        await self.committer.runtime.gather([*merges, *aborts], SOURCES_AT_ONCE_MAX)
        self.committer.remember(target, marks=[*header.merges, *header.aborts])

    async def _settle(self, target: str, mark: Mark, took_place: bool) -> None:
        source = names.check_segment_name(names.climb(names.parent(target), mark.source))
        if not is_merging((await self.headers.load_durable(source)).header, mark.txn):
            return  # the line that says what became of it may go
        if took_place:
            await self.finish(source, mark.txn)
        else:
            await self.reset(source, mark.txn)
