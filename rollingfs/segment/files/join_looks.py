"""Look at the ends of what a concat joins: the target and its sources."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from rollingfs.errors import WholeFileError
from rollingfs.format import whole_files
from rollingfs.format.edges import TAIL_BYTES
from rollingfs.format.whole_files import JoinPart
from rollingfs.segment.at import At
from rollingfs.segment.read.ends import file_ends
from rollingfs.segment.read.revalidate import OUTDATED, SNAPSHOTS_MAX
from rollingfs.segment.segment import Segment

T = TypeVar("T")


async def seen(at: At, paths: Sequence[str], look: Callable[[Sequence[Segment]], Awaitable[T]]) -> T:
    """Return what a look into segments shows, and look again if others change them during the look."""
    for number in range(SNAPSHOTS_MAX):
        views = await at.each([partial(at.headers.view, path, fresh=True) for path in paths])
        try:
            return await look(views)
        except OUTDATED:
            if number == SNAPSHOTS_MAX - 1:
                raise
    raise AssertionError("the last look returns or raises")


class JoinLooks:
    """The ends of the files of a concat. Each is read once, and again only if its segment has changed since.

    Ends of a kind that a header notes are not read, unless the files do not join by that.

    Parameters
    ----------
    adds_line_feeds
        The concat adds a line feed to text that does not end in it; otherwise such text is refused.
    """

    def __init__(self, at: At, *, adds_line_feeds: bool) -> None:
        self._at = at
        self._adds_line_feeds = adds_line_feeds
        self._parts: dict[str, JoinPart] = {}
        self._judged: tuple[list[JoinPart], list[str]] = [], []
        """The parts that were judged last, and the parts of them that need a line feed."""
        self._noted: set[str] | None = set()
        """The parts whose headers note the kinds of their ends; None if these are not believed."""

    async def first(self, target: str, sources: Sequence[str]) -> None:
        """Look at the target and sealed sources as last seen, and at other sources now.

        The commit looks again at a target that this client has not seen, and at what has changed.

        Raises
        ------
        WholeFileError
            They do not join.
        """
        await self._at.each([partial(self._known, path, path == target) for path in (target, *sources)])
        known = list(self._parts)
        await self._at.each([partial(self._seen, path) for path in sources if path not in known])
        try:
            self._unended([*self._parts.keys() & {target}, *sources])
        except WholeFileError:
            if not (known or self._noted):
                raise
            self._noted = None
            self._parts.clear()
            await self._at.each([partial(self._seen, path) for path in sources])
            if target in known:
                with contextlib.suppress(FileNotFoundError):
                    await self._seen(target)
            self._unended([*self._parts.keys() & {target}, *sources])

    async def again(self, views: Sequence[Segment]) -> list[str]:
        """Return the paths of parts that need a line feed before the next part, as the commit joins them."""
        await self._at.each([partial(self._look, [view]) for view in views])
        try:
            return self._unended([view.path for view in views])
        except WholeFileError:
            if not self._noted:
                raise
        self._noted = None
        self._parts.clear()
        return await self.again(views)

    def _unended(self, paths: Sequence[str]) -> list[str]:
        parts = [self._parts[path] for path in paths]
        if parts != self._judged[0]:
            self._judged = parts, whole_files.unended(parts, adds_line_feeds=self._adds_line_feeds)
        return self._judged[1]

    async def _known(self, path: str, is_target: bool) -> None:
        """Look at a segment as this client knows it. Others may append to a source that is open."""
        known = self._at.headers.seen(path)
        if known is not None and known.live and known.header is not None and (is_target or known.header.sealed):
            try:
                await self._look([known])
            except OUTDATED:
                self._parts.pop(path, None)  # the commit looks again

    async def _seen(self, path: str) -> None:
        await seen(self._at, [path], self._look)

    async def _look(self, views: Sequence[Segment]) -> None:
        (view,) = views
        incarnation = view.header.segment if view.header else None
        known, extent = self._parts.get(view.path), (view.start, view.length)
        if known is None or (known.incarnation, known.extent) != (incarnation, extent):
            head, tail = await self._ends(view) if extent[0] < extent[1] else (b"", b"")
            self._parts[view.path] = JoinPart(view.path, incarnation, extent, head, tail)

    async def _ends(self, view: Segment) -> tuple[bytes, bytes]:
        """Return the ends, or samples that join as they do; empty if they are damaged, and so of no format."""
        header = view.header
        if header is not None and not header.entries:
            return header.tail, header.tail[-TAIL_BYTES:]
        if self._noted is not None and header is not None and (found := whole_files.noted(header)) is not None:
            self._noted.add(view.path)
            return found
        return await file_ends(self._at.fetcher, view) or (b"", b"")
