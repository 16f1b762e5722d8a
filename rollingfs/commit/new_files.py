"""The files that are written for one commit: all its attempts use them."""

from __future__ import annotations

from collections.abc import Sequence, Set

from rollingfs.commit.chunk_files import Stored
from rollingfs.commit.store import Store
from rollingfs.commit.uploads import Uploads
from rollingfs.format.header import Entry, Page


class NewFiles:
    """Chunks and index pages that the steps of one commit have written.

    Parameters
    ----------
    path
        The segment.
    given
        The files that the caller has written for this change.
    """

    def __init__(self, store: Store, path: str, given: Sequence[Uploads]) -> None:
        self.store = store
        self.path = path
        self.written: dict[tuple[bytes, int], Stored] = {}
        """Chunks, by their bytes and which of several equal ones they are."""
        self.pages: dict[tuple[Entry, ...], Page] = {}
        """Index pages, by the entries that they stand for."""
        self._given = given
        self.own: Uploads | None = None
        """Chunks that this commit has written; None while there are none."""
        self._renewed: dict[Stored, Stored] = {}

    def name(self, files: Set[str]) -> None:
        """Note which files an attempt names, before it is sent."""
        for uploads in self._given:
            uploads.name(files)
        if self.own is not None:
            self.own.name(files)

    def lose(self) -> None:
        """Note that the newest attempt certainly did not take place and never will."""
        for uploads in [*self._given, *([] if self.own is None else [self.own])]:
            uploads.lose()

    def keep(self, key: tuple[bytes, int], stored: Stored) -> Stored:
        """Keep a chunk that was written for this commit, for the attempts to come."""
        if self.written.get(key) is not stored:
            self._add(stored)
        self.written[key] = stored
        return stored

    async def young(self, stored: Stored, store_now: float | None = None) -> Stored:
        """A chunk that the commit was given, or the copy that it has made because the chunk was too old."""
        known = self._renewed.get(stored, stored)
        renewed = await self.store.chunks.young(known, store_now)
        if renewed is not known:
            self._renewed[stored] = renewed
            if not renewed.staged:  # only collection deletes staged files
                self._add(renewed)
        return renewed

    def _add(self, stored: Stored) -> None:
        if self.own is None:
            self.own = Uploads(self.store.chunks, self.path)
        self.own.add([stored])
