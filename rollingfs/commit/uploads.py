"""The chunk files that a change of a segment has uploaded, and which of them its writer may still delete."""

from __future__ import annotations

import logging
from collections.abc import Container, Coroutine, Iterable
from typing import Any, TypeVar

from rollingfs.commit.chunk_files import Chunks, Stored
from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown
from rollingfs.format import names

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

    def __init__(self, chunks: Chunks, path: str, stored: Iterable[Stored] = ()) -> None:
        self.path = path
        self._chunks = chunks
        self._unnamed = list(stored)
        self._named: list[Stored] = []

    def __bool__(self) -> bool:
        return bool(self._unnamed or self._named)

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
            await self._chunks.delete(unnamed)

    async def discard(self) -> None:
        """`delete`; a failure is only logged, because the caller must hear the outcome of the commit."""
        try:
            await self.delete()
        except OSError as error:
            logger.info("%s: uploads that were not committed are left to collect(): %s", self.path, error)

    async def settle(self, call: Coroutine[Any, Any, T]) -> T:
        """Await the commit of these files, then delete those that nothing names.

        The files are left to collection if more attempts may arrive: the outcome is unknown, or an interrupt came that
        nobody has judged.
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
