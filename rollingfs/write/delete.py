"""Deletes segments and plain files: a tombstone for each segment, then the files of many in few requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from rollingfs.backend.tiers import check_tiers, list_folder
from rollingfs.commit.attempt import Attempt
from rollingfs.commit.commits import Commits
from rollingfs.commit.drop_files import delete_dropped, due_files, finish_drops, mapped_files
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.hidden_plain_file import delete_shadowed, shadow, wait_for_new_date
from rollingfs.commit.tier_checks import check_there
from rollingfs.errors import AppendOutcomeUnknown, if_interrupted
from rollingfs.format import names, transitions
from rollingfs.format.drops import drop_all, with_hints
from rollingfs.format.header import Drop, Header
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.read.snapshot import Lookup
from rollingfs.runtime.values import value_class
from rollingfs.write.adopt import Adoption
from rollingfs.write.whole import flush_folders, remove_grave, take_whole

logger = logging.getLogger("rollingfs")

BELIEVED_S_MAX = 60.0
"""A header in the cache that was seen longer ago is looked at again before the segment is deleted."""
BATCH_MAX = 256
"""Maximum segments whose tombstones are committed before the files of all of them are deleted."""


@value_class
class Buried:
    """A segment whose tombstone is committed, and the files that go with it."""

    path: str
    before: Header
    header: Header
    files: Sequence[str] = ()
    drops: Sequence[Drop] = ()
    """The lines whose work is done then."""
    is_gone: bool = False
    """Whether nothing is left of it, without a tombstone; this is durable once its folder was flushed."""


Call = Callable[[], Awaitable[Buried | None]]


async def _noted(call: Call, buried: list[Buried]) -> None:
    one = await call()
    if one is not None:
        buried.append(one)


class Deletes:
    """Deletes what paths name."""

    def __init__(self, commits: Commits, lookup: Lookup, adoption: Adoption) -> None:
        self.commits = commits
        self.store = commits.store
        self.lookup = lookup
        self.adoption = adoption

    async def bury(self, path: str, guard: Guard = NO_GUARD, seen: Loaded | None = None) -> Buried | None:
        """Delete a plain file, or commit the tombstone of a segment; finish an interrupted delete.

        Parameters
        ----------
        seen
            A header of the segment that the caller has just seen. It spares a look, and so does one in the cache.

        Returns
        -------
        Buried or None
            The segment, whose files `clear` then deletes; None if there is nothing left to do.

        It raises what `Segments.delete` does.
        """
        return await self.store.with_room(path, partial(self._buried, path, guard, seen))

    async def _buried(self, path: str, guard: Guard, seen: Loaded | None) -> Buried | None:
        seen = self.store.headers.recent(path, BELIEVED_S_MAX) or seen
        if seen is not None and seen.live:
            try:
                return await self._removed(path, guard, seen) or await self._bury(path, guard, seen)
            except FileNotFoundError:
                pass  # it is gone since: what is there now decides
            except AppendOutcomeUnknown:
                if (await self.store.headers.load(path)).token is not None:
                    raise
                # the very file is gone, so no tombstone on it can come any more
        loaded = await self.store.headers.load(path)
        if not loaded.live and (guard.segment is None or guard.is_plain):
            with if_interrupted(path, "unknown"):  # the file may be gone, or a segment may have taken its place
                is_removed = await self.adoption.remove(path, guard.segment)
            if is_removed:
                return None
            if guard.segment is None and loaded.header is not None and await self._finish(path, loaded.header):
                return None
        return await self._removed(path, guard, loaded) or await self._bury(path, guard, None)

    async def _removed(self, path: str, guard: Guard, seen: Loaded) -> Buried | None:
        """Delete a segment that has only a header, where the store can; None if it cannot."""
        if not seen.live or not self.store.backend.capability.removes_whole:
            return None
        try:
            header = transitions.check(seen.header, guard, path)
        except OSError:
            return None  # a commit looks at the header again, and says what is wrong
        with if_interrupted(path, "unknown"):
            is_gone = await take_whole(self.store, {path: seen})
        return Buried(path, header, header, is_gone=True) if is_gone else None

    async def bury_unread(self, path: str) -> Buried:
        """Commit the tombstone of a segment whose index pages may be lost; what these list is left to collection."""
        return await self._bury(path, NO_GUARD, None, is_unread=True)

    async def _bury(self, path: str, guard: Guard, seen: Loaded | None, *, is_unread: bool = False) -> Buried:
        own: list[str] = []

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.check(base.header, guard, path)
            await check_there(self.store.headers, self.store.pages, path, found)
            plain = await self.lookup.plain(path, Loaded(None, None)) if found.adopted else None
            known = found
            if is_unread:
                known = replace(found, entries=await self.store.pages.readable(path, found.entries))
            own[:] = await mapped_files(self.store.pages, path, known)
            grave = transitions.tombstone(found)
            drops = drop_all(found, self.store.now_ms())
            hints = await self.store.pages.hints(path, known.entries)
            grave = replace(grave, adopted=shadow(plain) or found.adopted, drops=drops)
            await wait_for_new_date(self.store, path, grave.adopted, attempt.operation.deadline_s)
            return with_hints(grave, hints, self.store.now_ms())

        committed = await self.commits.commit(path, step, seen=seen)
        assert committed.base is not None
        assert committed.header is not None
        with if_interrupted(path, "committed"):
            drops, files = await due_files(self.commits, path, committed.header)
        return Buried(path, committed.base, committed.header, list(dict.fromkeys([*own, *files])), drops)

    async def clear(self, buried: Sequence[Buried]) -> None:
        """Delete the files of buried segments, all in as few requests as the store allows.

        Raises
        ------
        OSError
            Some are still there; the segments are deleted, and collection finishes this.
        """
        if not buried:
            return
        first = buried[0].path
        with if_interrupted(first, "committed"):
            what = first if len(buried) == 1 else f"{first} and {len(buried) - 1} more"
            await delete_dropped(self.store.backend, what, [file for one in buried for file in one.files])
            await flush_folders(self.store, [one.path for one in buried if one.is_gone])
            for one in buried:
                if one.is_gone:
                    continue
                self.commits.slots.remember(one.path, drops=one.drops, header=one.header)
                await delete_shadowed(self.store, one.path, one.header.adopted)
                if not await self._hides(one):
                    await remove_grave(self.store, one.path, one.header)

    async def _hides(self, one: Buried) -> bool:
        """Whether a tombstone still hides a plain file, where tombstones need not stay."""
        is_asked = self.store.backend.capability.removes_whole and one.header.adopted is not None
        return is_asked and await self.lookup.plain(one.path, Loaded(None, None)) is not None

    async def all(self, calls: Iterable[Call]) -> None:
        """Bury many, several at once, and delete the files of each batch together.

        After an error no other call begins; what is buried by then is cleared.
        """
        waiting = list(calls)
        while waiting:
            batch, waiting = waiting[:BATCH_MAX], waiting[BATCH_MAX:]
            buried: list[Buried] = []
            try:
                await self.store.each([partial(_noted, call, buried) for call in batch])
            except Exception:
                try:
                    await self.clear(buried)
                except OSError as error:
                    logger.info("%s", error)
                raise
            await self.clear(buried)

    async def _finish(self, path: str, header: Header) -> bool:
        """Delete the files that a tombstone still names; returns whether there were any."""
        named = {names.locate(path, drop.file, drop.tier) for drop in header.drops if not drop.is_hint}
        if not named:
            return False
        check_tiers(self.store.backend, named)
        listed = await list_folder(self.store.backend, names.chunks_folder(path), {drop.tier for drop in header.drops})
        if not any(entry.path in named for entry in listed):
            return False
        now = await self.store.headers.load_durable(path)  # the interrupted client may not have flushed its tombstone
        if now.live or now.header is None:
            return False  # a plain file was adopted meanwhile: this segment is to be deleted
        await finish_drops(self.commits, path, now.header)
        return True
