"""The operations of REST on segments."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from rollingfs.errors import SegmentTruncatedError
from rollingfs.folders.moving import move
from rollingfs.format.append_keys import AlreadyAppended, AppendKey
from rollingfs.policy import RollingPolicy
from rollingfs.segment.segment import Segment, Spot
from rollingfs.server.operations import (
    EVENTS,
    OCTETS,
    OFFLOAD,
    POLICY,
    Age,
    Body,
    Call,
    Count,
    Encoding,
    Offset,
    Paths,
    Size,
    Text,
    Wait,
    operation,
    unpacked,
)
from rollingfs.server.problems import JSON, PROBLEM, json_answer, problem_fields
from rollingfs.server.served_store import etag
from rollingfs.server.tails import RecordTail, events, poll

PAGE_DEFAULT = 1000
WAIT_S = 20.0
_RANGE = re.compile(r"bytes=(?!-$)([0-9]{0,18})-([0-9]{0,18})")


# -- bytes -----------------------------------------------------------------------------------------------------


@operation("POST", "/v1/segments/{path}", is_upload=True)
async def append(
    call: Call,
    create: bool = False,
    expected_offset: Offset | None = None,
    idempotency_key: Text | None = None,
    key: Text | None = None,
    key_of_body: bool = False,
    writer: Text | None = None,
    newline: bool = False,
    content_encoding: Encoding = "identity",
) -> Any:
    """Append the whole body in a single commit, or leave the segment as it is.

    Parameters
    ----------
    create
        Make the segment if it is missing.
    expected_offset
        The offset at which the data must begin, else 412.
    idempotency_key
        A repeat with the same key appends no byte, and has the same answer.
    key
        The Idempotency-Key, for clients that cannot compute a header.
    key_of_body
        A checksum of the body is the key: equal bodies are repeats.
    writer
        In place of a key: name, number, entries that had gone, incarnation.
    newline
        End the data with a line feed if that is missing.
    content_encoding
        `gzip` for a compressed body, which is appended unpacked.
    """
    place, numbered = call.place(), None if writer is None else AppendKey.parse(writer)
    if sum(map(bool, (idempotency_key, key, key_of_body, writer))) > 1:
        raise HTTPException(400, "give one of Idempotency-Key, key, key_of_body and writer; nothing was changed")
    sent = call.request.stream()
    parts = unpacked(sent, call.store.body_bytes_max) if content_encoding == "gzip" else sent
    body = Body(parts, newline=newline, is_keyed=key_of_body)
    named = body.key if key_of_body else idempotency_key or key
    try:
        written, size = await call.store.append(place, body, expected_offset, named, numbered, create=create)
        offset, after, again = written.offset, cast(Any, written.header), False
    except AlreadyAppended as before:
        await body.check_repeat(before.size)
        offset, size, after, again = before.offset, before.size, await call.look(), True
    fields = {"offset": offset, "size": size, "version": after.version, "length": after.length, "repeated": again}
    return json_answer(fields, headers={"Segment-Offset": str(offset), "Segment-Version": str(after.version)})


@operation("GET", "/v1/segments/{path}", answers={200: OCTETS, 206: OCTETS, 304: "", 412: PROBLEM, 416: PROBLEM})
async def read(
    call: Call,
    start: Offset | None = None,
    end: Offset | None = None,
    range: str | None = None,
    if_range: str | None = None,
    if_match: str = "*",
    if_none_match: str = "",
) -> Any:
    """Read bytes of a snapshot. The headers Segment-Start, -Length, -Offset, -Version and -State describe it.

    Parameters
    ----------
    start
        The first segment offset; by default the first retained byte.
    end
        The segment offset after the last byte; by default the end.
    range
        Bytes counted from the first retained byte, as bytes=0-99 or bytes=-100.
    if_range
        The Range counts only for this ETag.
    if_match
        Answer 412 if the segment has another ETag.
    if_none_match
        Answer 304 if the segment still has this ETag.
    """

    def span(view: Segment) -> tuple[int, int, int]:
        return _span(view, start, end, range if if_range in (None, etag(view)) else None)

    def offsets(view: Segment) -> tuple[int, int]:
        try:
            return span(view)[:2]
        except HTTPException:  # of a snapshot that may be old: the newest has the answer
            return view.start, view.start

    # a reader of columns names the end
    is_wanted = end is not None or (range is not None and not range.endswith("-"))
    if is_wanted and call.request.method == "GET" and not if_none_match:
        view, data = await call.store.ranged(call.place(), offsets)
    else:
        view, data = await call.look(), b""
    tag, names = etag(view), ("start", "length", "version", "state")
    headers = {"ETag": tag, "Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff"}
    headers |= {f"Segment-{name.title()}": str(getattr(view, name)) for name in names}
    if if_match != "*" and tag not in re.split(r"\s*,\s*", if_match):
        raise HTTPException(412, f"the segment's ETag is {tag}", headers)
    if tag in re.split(r"\s*,\s*", if_none_match.replace("W/", "")) or if_none_match == "*":
        return Response(status_code=304, headers=headers)
    first, last, status = span(view)
    headers |= {"Segment-Offset": str(first), "Content-Length": str(last - first)}
    if status == 206:
        headers["Content-Range"] = f"bytes {first - view.start}-{last - view.start - 1}/{view.size}"
    if call.request.method == "HEAD":
        return Response(None, status, headers, OCTETS)
    if data and len(data) == last - first:
        return Response(data, status, headers, OCTETS)
    return await streamed(call.store.pieces(view, first, last, is_wanted=is_wanted), status, headers)


def _span(view: Segment, start: int | None, end: int | None, asked: str | None) -> tuple[int, int, int]:
    """Return segment offsets of what is asked for, and the status.

    Raises
    ------
    HTTPException
        There are no such bytes (416), or both ways of asking are mixed.
    SegmentTruncatedError
        The first bytes have been truncated away.
    """
    found = _RANGE.fullmatch(asked or "")  # several ranges, or another unit: the whole may be sent
    if found is not None:
        if start is not None or end is not None:
            raise HTTPException(400, "give start and end, or a Range, not both")
        start = view.start + int(found[1]) if found[1] else max(view.start, view.length - int(found[2]))
        end = view.start + int(found[2]) + 1 if found[1] and found[2] else None
    first, last = view.start if start is None else start, view.length if end is None else min(end, view.length)
    if first < view.start:
        raise SegmentTruncatedError(f"{view.path}: offset {first} was truncated away; {view.extent}")
    if first > last or (first == last and found is not None):
        raise HTTPException(416, f"no such bytes: {view.extent}", {"Content-Range": f"bytes */{view.size}"})
    return first, last, 200 if found is None else 206


async def streamed(
    pieces: AsyncIterator[memoryview], status: int, headers: dict[str, str], media: str | None = OCTETS
) -> Response:
    """Yield an answer whose first piece is there already, so that an error has its status."""
    first = await anext(pieces, b"")

    async def parts() -> AsyncIterator[bytes | memoryview]:
        yield first
        async for piece in pieces:
            yield piece

    return StreamingResponse(parts(), status, headers, media)


@operation("GET", "/v1/segments/{path}:tail", answers={200: f"{OCTETS} {EVENTS}", 204: ""})
async def tail(
    call: Call,
    offset: Text | None = None,
    wait: Wait = WAIT_S,
    max_kib: Count = 1024,
    retry: bool = False,
    last_event_id: Text | None = None,
    accept: str = "",
) -> Any:
    """Follow whole records (lines): an answer with new records, or server-sent events until the seal.

    The header Next-Offset has the next offset, in this very segment: an offset of another segment of its name gives
    409, with the start of the other in Segment-Replaced. 204: no record came in time.

    Parameters
    ----------
    offset
        Begin: an offset, a Next-Offset or the id of an event; by default the present end.
    wait
        Seconds to wait for the first record, without server-sent events.
    max_kib
        Maximum size of an answer in KiB, unless a record has more.
    retry
        When another segment has the name, go on with that, from its start.
    last_event_id
        The id that browsers send when they connect again: the begin.
    accept
        text/event-stream for server-sent events.
    """
    view = await call.look()
    given = offset if last_event_id is None else last_event_id
    following = RecordTail(call.watches, view, 1024 * max_kib, retry=retry)
    await following.begin(None if given is None else Spot.of(given))
    if EVENTS in accept:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events(following), 200, headers, EVENTS)
    found = await poll(following, wait, call.request)
    state = {"Segment-Offset": str(found.begin.offset), "Next-Offset": str(found.end)}
    state |= {"Segment-State": "sealed" if found.is_end else "open"}
    state |= {"Segment-Replaced": str(found.begin)} if found.is_replaced else {}
    return Response(found.data, 200 if found.data else 204, state, OCTETS if found.data else None)


# -- what there is ---------------------------------------------------------------------------------------------


@operation("GET", "/v1/segments/{path}:info")
async def info(call: Call) -> Any:
    """Return the state, offsets, version, dates and attributes of a segment or plain file."""
    return call.store.info(await call.look())


@operation("POST", "/v1/segments:info")
async def infos(call: Call, paths: Paths) -> Any:
    """Return the infos of many segments, or their problems."""

    async def one(path: str) -> Any:
        return call.store.info(await call.look(path))

    return {"infos": await each_or_problem(call, paths, one)}


async def each_or_problem(
    call: Call, paths: Iterable[str], run: Callable[[str], Awaitable[Any]], at_once: int = 16
) -> dict[str, Any]:
    """Return the results of calls by path, some at once; what fails has a problem in its place."""
    turns = asyncio.Semaphore(at_once)

    async def one(path: str) -> tuple[str, Any]:
        try:
            async with turns:
                return path, await run(path)
        except OSError as error:
            return path, {"problem": problem_fields(error, call.store.root, changes=call.changes)}

    return dict(await asyncio.gather(*map(one, paths)))


@operation("GET", "/v1/segments")
async def list_folder(
    call: Call, folder: Text | None = None, after: Text | None = None, limit: Count = PAGE_DEFAULT
) -> Any:
    """List a folder, page by page: segments, plain files and folders, sorted by path.

    Parameters
    ----------
    folder
        The folder; by default the root, or the prefix of the token.
    after
        Begin after this path: the `next` of the page before.
    limit
        Maximum entries of a page.
    """
    folder = (folder or call.access.prefix).strip("/")
    found = call.store.shown(await call.store.listed(call.place(folder)))
    entries = [{"path": one.pop("name"), **one} for one in found]
    left = [one for one in entries if after is None or one["path"] > after.strip("/")]
    return {"folder": folder, "entries": left[:limit], "next": left[limit - 1]["path"] if len(left) > limit else None}


@operation("GET", "/v1/segments/{path}:status")
async def status(call: Call, after_bytes: Size | None = None, after_age: Age | None = None) -> Any:
    """Return the upkeep of the segments at or below a path, by store and lag.

    Parameters
    ----------
    after_bytes
        Newest bytes that an offload would leave in the hot store; older bytes are lag.
    """
    return {"states": await call.store.fs._states(call.place(), None, after_bytes, after_age)}


# -- the life of a segment -------------------------------------------------------------------------------------


@operation("PUT", "/v1/segments/{path}", answers={201: JSON}, fields=POLICY)
async def create(call: Call, **policy: Any) -> Any:
    """Make an empty segment; 409 if something has the name. The fields are its policy."""
    given = {name: value for name, value in policy.items() if value is not None}
    await call.store.fs._create(call.place(), RollingPolicy(**given) if given else None)
    return json_answer(call.store.info(await call.look()), 201)


@operation("DELETE", "/v1/segments/{path}")
async def delete(call: Call) -> None:
    """Delete a segment or plain file."""
    await call.store.fs._rm_file(call.place())


@operation("POST", "/v1/segments/{path}:seal")
async def seal(call: Call) -> Any:
    """Let a segment take no more bytes."""
    return {"length": await call.store.fs._seal(call.place())}


@operation("POST", "/v1/segments/{path}:truncate")
async def truncate(call: Call, offset: Offset, erase: bool = False, as_bytes: bool = False) -> Any:
    """Drop the bytes before an offset; `waiting` counts bytes that wait for collection.

    Parameters
    ----------
    offset
        The first byte that stays.
    erase
        Leave no dropped byte in a file of the segment.
    as_bytes
        Also cut formats of which no part is a file, like Parquet.
    """
    did = await call.store.fs._truncate(call.place(), offset, erase=erase, as_bytes=as_bytes)
    return {"waiting": did} if isinstance(did, int) else {"erased": did}


@operation("POST", "/v1/segments/{path}:concat")
async def concat(
    call: Call, sources: Paths, as_bytes: bool = False, as_format: Text | None = None, newline: bool = False
) -> Any:
    """Append sealed segments without moving bytes; they are gone afterwards.

    Parameters
    ----------
    as_bytes
        Also join formats that do not join, like Parquet.
    as_format
        `parquet` makes a single Parquet file of the target and the sources, `arrow-stream` a single Arrow stream.
    newline
        End text with a line feed before the next part.
    """
    places = [call.place(path) for path in sources]
    return {
        "offset": await call.store.fs._concat(
            call.place(), places, as_bytes=as_bytes, as_format=as_format, newline=newline
        )
    }


@operation("POST", "/v1/segments/{path}:rename")
async def rename(call: Call, to: Text, overwrite: bool = False) -> Any:
    """Give a segment another name; no bytes are moved. Without `overwrite`, 409 if something has the name."""
    source, target = call.place(), call.place(to)
    await call.look()
    await call.store.run(move(call.store.client, source, target, into=False, overwrite=overwrite))
    return {"path": target}


@operation("POST", "/v1/segments/{path}:offload", fields=OFFLOAD)
async def offload(call: Call, tier: Text = "cold", **given: Any) -> Any:
    """Move chunks of a segment to a tier, now.

    Parameters
    ----------
    tier
        The alias of a tier of the server.
    after_bytes
        Move only chunks before this number of newest bytes.
    after_age
        Move only chunks that are older.
    deletion_lag
        Time for which the old files stay; 4 h by default.
    block_bytes
        Neighbouring chunks become a file of up to this size; 64 MiB by default.
    """
    limits = {name: value for name, value in given.items() if value is not None}
    return await call.store.fs._offload(call.place(), tier, **limits)


@operation("POST", "/v1/segments/{path}:consolidate")
async def consolidate(call: Call, grace: Age = "10min") -> Any:
    """Join small neighbouring chunks; the old files stay for readers as long as `grace`."""
    return await (await call.store.fs._segment(call.place()))._consolidate(grace)
