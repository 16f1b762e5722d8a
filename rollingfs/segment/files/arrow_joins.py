"""Look at Arrow streams that a concat joins to a single stream, and at the stream that rows are appended to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.files.join_looks import seen
from rollingfs.segment.read.ends import pieces_of
from rollingfs.segment.read.ranges import Fetcher
from rollingfs.segment.segment import Segment

BLOCK_BYTES = 64 * 1024
"""Size of a read in the search for messages: small messages share it; of a large message only the beginning is read."""
ENDED = "an end mark is last in it, and readers read no row after that"


@value_class
class _Part:
    """Streams of a source."""

    identity: tuple[str | None, int, int]
    layout: Layout
    schema: bytes


class ArrowJoins:
    """The sources of a concat that makes a single Arrow stream of all. It looks at each once, unless it has changed."""

    def __init__(self, at: At) -> None:
        self._at = at
        self._parts: dict[str, _Part] = {}

    async def first(self, target: str, sources: Sequence[str]) -> None:
        """Look at all sources before any is joined.

        Raises
        ------
        MalformedStreamError
            A source is no Arrow stream, or has another schema than the first; no source was joined.
        """
        looks = [partial(seen, self._at, [path], self._look) for path in sources]
        await self._at.each(looks)
        _check_same([(path, self._parts[path].schema) for path in sources if path in self._parts])

    async def again(self, target: Segment, sources: Sequence[Segment]) -> list[tuple[Range, ...]]:
        """Return the ranges of each source that continue the stream of the target, or begin it."""
        await self._at.each([partial(self._look, [view]) for view in sources])
        there = [(view.path, self._parts[view.path].schema) for view in sources if view.size]
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
            places = self._parts[view.path].layout
            ranges.append(joined([*places.schemas[:1], *places.rows]) if begins else places.rows)
            begins = False
        return ranges

    async def _look(self, views: Sequence[Segment]) -> None:
        (view,) = views
        identity = (view.header.segment if view.header else None, view.start, view.length)
        known = self._parts.get(view.path)
        if not view.size or (known is not None and known.identity == identity):
            return
        try:
            messages = await messages_of(self._at.fetcher, view)
            places = layout(messages)
            schemas = [await self._at.fetcher.read(view, *place) for place in places.schemas]
            for schema in schemas[1:]:
                if not is_same_schema(schemas[0], schema):
                    raise MalformedStreamError("it holds streams of several schemas")
        except MalformedStreamError as error:
            raise _refused(view.path, error) from error
        self._parts[view.path] = _Part(identity, places, schemas[0])


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
