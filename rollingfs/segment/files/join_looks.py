"""Look at what a concat joins: the ends of the target and its sources, or their Arrow streams."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from rollingfs.errors import WholeFileError
from rollingfs.format import whole_files
from rollingfs.format.arrow_stream import (
    END,
    END_MARK,
    PREFIX_BYTES,
    SCHEMA,
    Layout,
    MalformedStreamError,
    Message,
    Range,
    is_same_schema,
    joined,
    layout,
    messages_in,
)
from rollingfs.format.side_files import TAIL_BYTES
from rollingfs.format.whole_files import JoinPart
from rollingfs.segment.at import At
from rollingfs.segment.read.ends import file_ends, pieces_of
from rollingfs.segment.read.ranges import Fetcher
from rollingfs.segment.read.revalidate import OUTDATED, SNAPSHOTS_MAX
from rollingfs.segment.segment import Segment

T = TypeVar("T")

BLOCK_BYTES = 64 * 1024
"""Size of a read in the search for messages: small messages share it; of a large message only the beginning is read."""
ENDED = "an end mark is last in it, and readers read no row after that"


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
        known = set(self._parts)
        if unknown := {*sources} - known:
            await self._at.each([partial(self._seen, path) for path in sorted(unknown)])
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
        parts = list(map(self._parts.__getitem__, paths))
        if parts != self._judged[0]:
            self._judged = parts, whole_files.unended(parts, adds_line_feeds=self._adds_line_feeds)
        return self._judged[1]

    async def _known(self, path: str, is_target: bool) -> None:
        """Look at a segment as this client knows it. Others may append to a source that is open."""
        known = self._at.headers.seen(path)
        if known is not None and (known.live if is_target else known.sealed):
            try:
                await self._look([known])
            except OUTDATED:
                self._parts.pop(path, None)  # the commit looks again

    async def _seen(self, path: str) -> None:
        await seen(self._at, [path], self._look)

    async def _look(self, views: Sequence[Segment]) -> None:
        (view,) = views
        header, known = view.header, self._parts.get(view.path)
        extent = (header.start, header.length) if header else (0, view.length)
        incarnation = header.segment if header else None
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


class ArrowJoins:
    """The sources of a concat that makes a single Arrow stream of all. It looks at each once, unless it has changed."""

    def __init__(self, at: At) -> None:
        self._at = at
        self._parts: dict[str, tuple[object, Layout, bytes]] = {}
        """Of each source: what shows that it has not changed, the places of its messages, and its schema."""

    async def first(self, target: str, sources: Sequence[str]) -> None:
        """Look at all sources before any is joined.

        Raises
        ------
        MalformedStreamError
            A source is no Arrow stream, or has another schema than the first; no source was joined.
        """
        looks = [partial(seen, self._at, [path], self._look) for path in sources]
        await self._at.each(looks)
        _check_same([(path, self._parts[path][2]) for path in sources if path in self._parts])

    async def again(self, target: Segment, sources: Sequence[Segment]) -> list[tuple[Range, ...]]:
        """Return the ranges of each source that continue the stream of the target, or begin it."""
        await self._at.each([partial(self._look, [view]) for view in sources])
        there = [(view.path, self._parts[view.path][2]) for view in sources if view.size]
        begins = not target.size
        if not begins:
            try:
                there.insert(0, (target.path, await schema_to_grow(self._at.fetcher, target)))
            except MalformedStreamError as error:
                raise _refused(target.path, error) from error
        _check_same(there)
        ranges: list[tuple[Range, ...]] = []
        for view in sources:
            if not view.size:
                ranges.append(())
                continue
            schemas, rows = self._parts[view.path][1]
            ranges.append(joined([*schemas[:1], *rows]) if begins else rows)
            begins = False
        return ranges

    async def _look(self, views: Sequence[Segment]) -> None:
        (view,) = views
        identity = (view.header.segment if view.header else None, view.start, view.length)
        if not view.size or (view.path in self._parts and self._parts[view.path][0] == identity):
            return
        try:
            messages = await messages_of(self._at.fetcher, view)
            places = layout(messages)
            schemas = [await self._at.fetcher.read(view, *place) for place in places[0]]
            for schema in schemas[1:]:
                if not is_same_schema(schemas[0], schema):
                    raise MalformedStreamError("it holds streams of several schemas")
        except MalformedStreamError as error:
            raise _refused(view.path, error) from error
        self._parts[view.path] = identity, places, schemas[0]


async def messages_of(fetcher: Fetcher, view: Segment, start: int | None = None) -> list[Message]:
    """Return the messages of a segment, all or from a given message on.

    Raises
    ------
    MalformedStreamError
        The bytes are no Arrow messages.
    """
    found: list[Message] = []
    at, needed = view.start if start is None else start, PREFIX_BYTES
    while at < view.length:
        block = await fetcher.read(view, *_block(view, at, needed))
        more, needed = messages_in(block, at, view.length)
        found += more
        at = more[-1].end if more else at
    return found


def _block(view: Segment, start: int, needed: int) -> Range:
    return start, min(view.length, start + max(needed, BLOCK_BYTES))


async def splits_a_stream(fetcher: Fetcher, view: Segment, offset: int) -> bool:
    """Return whether Arrow streams begin a segment, but not at an offset, so that rows would have no schema.

    Raises
    ------
    OSError
        The bytes cannot be read.
    """
    for place in (view.start, offset):
        found: list[Message] = []
        needed = PREFIX_BYTES
        try:
            while not found:
                pieces = await pieces_of(fetcher, view, [_block(view, place, needed)])
                if pieces is None:
                    return False
                found, needed = messages_in(pieces[0], place, view.length)
        except MalformedStreamError:
            return place == offset
        if found[0].kind != SCHEMA:
            return place == offset
    return False


async def schema_to_grow(fetcher: Fetcher, view: Segment) -> bytes:
    """Return the message of the schema of a segment that is a single Arrow stream without its end mark.

    Raises
    ------
    MalformedStreamError
        It is another segment.
    """
    head, needed = b"", PREFIX_BYTES
    first: list[Message] = []
    while not first:
        head = await fetcher.read(view, *_block(view, view.start, needed))
        first, needed = messages_in(head, view.start, view.length)
    if first[0].kind != SCHEMA:
        raise MalformedStreamError("it begins without a schema, as after a cut of its head")
    await check_open_ended(fetcher, view)
    return head[: first[0].end - view.start]


async def check_open_ended(fetcher: Fetcher, view: Segment, start: int | None = None) -> None:
    """Refuse a stream with its end mark.

    Parameters
    ----------
    start
        The begin of a message, before which there is no end mark.
    """
    last = await fetcher.read(view, max(view.start, view.length - len(END_MARK)), view.length)
    if last == END_MARK and (await messages_of(fetcher, view, start))[-1].kind == END:  # rows may end like it
        raise MalformedStreamError(ENDED)


def _check_same(schemas: Sequence[tuple[str, bytes]]) -> None:
    for path, schema in schemas[1:]:
        if not is_same_schema(schemas[0][1], schema):
            raise _refused(path, MalformedStreamError(f"its schema is not that of {schemas[0][0]}"))


def _refused(path: str, why: MalformedStreamError) -> MalformedStreamError:
    return MalformedStreamError(f"{path}: it cannot be joined as an Arrow stream: {why}; nothing was joined")
