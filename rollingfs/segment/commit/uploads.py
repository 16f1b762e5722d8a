"""The chunk files that a change of a segment has uploaded, and which of them its writer may still delete."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable
from typing import Any, TypeVar

from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown
from rollingfs.format import names
from rollingfs.format.edges import Kinds
from rollingfs.format.header import AGE_S_MAX, Chunk, Entry, Page
from rollingfs.runtime.system import Moment
from rollingfs.segment.commit.chunk_files import Stored, young
from rollingfs.segment.commit.store import Store

logger = logging.getLogger("rollingfs")

T = TypeVar("T")


class Uploads:
    """Chunk files that their writer may still delete, because no attempt that names them took place or may take place.

    1. The writer adds the files that it has uploaded.
    2. The commit calls `name` before it sends an attempt. From then on only collection may delete the files that the
       attempt names.
    3. The commit calls `lose` once the attempt certainly did not take place and never will.
    4. The writer calls `discard` when the change is over.

    Parameters
    ----------
    path
        The segment.
    """

    def __init__(self, store: Store, path: str, stored: Iterable[Stored] = ()) -> None:
        self.path = path
        self._store = store
        self._unnamed = list(stored)
        self._named: list[Stored] = []

    def add(self, stored: Iterable[Stored]) -> None:
        """Take files that were just written."""
        self._unnamed += stored

    def name(self, files: Container[str]) -> None:
        """Let go of the files that an attempt is about to name; `files` are references in the segment's header."""
        free, self._unnamed = self._unnamed, []
        for one in free:
            (self._named if names.relate(self.path, one.path) in files else self._unnamed).append(one)

    def lose(self) -> None:
        """Take back the files of an attempt that lost its race: its condition can never hold again."""
        self._unnamed, self._named = self._unnamed + self._named, []

    def leave(self) -> None:
        """Leave all files to collection, because another attempt may still name them."""
        self._unnamed, self._named = [], []

    async def delete(self) -> None:
        """Delete the files that no attempt names which took place or may take place."""
        unnamed, self._unnamed = self._unnamed, []
        if unnamed:
            await self._store.backend.delete([one.file for one in unnamed])

    async def discard(self) -> None:
        """`delete`; a failure is only logged, because the caller must hear the outcome of the commit."""
        try:
            await self.delete()
        except OSError as error:
            logger.info("%s: uploads that were not committed are left to collect(): %s", self.path, error)

    async def settle(self, call: Coroutine[Any, Any, T]) -> T:
        """Await the commit of these files, then delete the files that no header names.

        The files are left to collection if more attempts may arrive: the outcome is unknown, or an interrupt came that
        was not judged.
        """
        try:
            result = await call
        except Exception as error:
            await self._end(may_go_on=isinstance(error, AppendOutcomeUnknown))
            raise
        except BaseException as error:
            await self._end(may_go_on=not isinstance(error, AppendInterrupted) or error.outcome == "unknown")
            raise
        await self._end(may_go_on=False)
        return result

    async def _end(self, *, may_go_on: bool) -> None:
        if may_go_on:
            self.leave()
        await self.discard()


class NewFiles:
    """Chunks and index pages that are written for a commit: all its attempts use them.

    Parameters
    ----------
    path
        The segment.
    given
        The files that the caller has written for this change.
    """

    def __init__(self, store: Store, path: str, given: Iterable[Uploads]) -> None:
        self.store = store
        self.path = path
        self._pages: dict[tuple[Entry, ...], tuple[Page, Moment]] = {}
        """Index pages, and when they were begun, by the entries that they stand for."""
        self._written: dict[tuple[bytes, int], Stored] = {}
        """Chunks, by their bytes and their number among equal chunks."""
        self._uploads = list(given)
        self.own: Uploads | None = None
        """Chunks and pages that this commit has written; None before the first."""
        self._renewed: dict[Stored, Stored] = {}
        self.kinds: dict[str, Kinds] = {}
        """Of the files of entries, by reference."""

    def name(self, files: Container[str]) -> None:
        """Note which files an attempt names, before it is sent."""
        for uploads in self._uploads:
            uploads.name(files)

    def lose(self) -> None:
        """Note that the newest attempt certainly did not take place and never will."""
        for uploads in self._uploads:
            uploads.lose()

    async def once(self, data: bytes, nth: int, write: Callable[[], Awaitable[Stored]]) -> Stored:
        """Write a file once for all attempts, but again when it has grown too old."""
        found = self._written.get((data, nth))
        stored = await write() if found is None else await young(self.store, found, None)
        if stored is not found:
            self._add(stored)
        self._written[data, nth] = stored
        return stored

    async def page(self, entries: tuple[Entry, ...]) -> Page:
        """Write an index page for consecutive entries, once for all attempts, but again when it has grown too old.

        Returns the line that stands for them.
        """
        known = self._pages.get(entries)
        if known is not None and known[1].age_s(self.store.clock) <= AGE_S_MAX:
            return known[0]
        pages, now_ms, began = self.store.pages, self.store.now_ms(), Moment.now(self.store.clock)
        page = await pages.write(self.path, await pages.unfold(self.path, entries))
        self._pages[entries] = page, began
        self._add(Stored(names.resolve(self.path, page.file), page.size, page.crc32c, now_ms, began))
        return page

    async def young(self, stored: Stored, store_now: float | None = None) -> Stored:
        """A chunk that the commit was given, or the copy that it has made because the chunk was too old."""
        known = self._renewed.get(stored, stored)
        renewed = await young(self.store, known, store_now)
        if renewed is not known:
            self._renewed[stored] = renewed
            if not renewed.staged:  # only collection deletes staged files
                self._add(renewed)
        return renewed

    def entry(self, stored: Stored, start: int) -> Chunk:
        """The entry that uses a whole file."""
        chunk = stored.chunk(self.path, start)
        self.kinds[chunk.file] = stored.kinds
        return chunk

    def _add(self, stored: Stored) -> None:
        if self.own is None:
            self.own = Uploads(self.store, self.path)
            self._uploads.append(self.own)
        self.own.add([stored])
