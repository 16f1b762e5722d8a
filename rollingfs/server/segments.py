"""The operations of REST on segments."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from rollingfs.errors import SegmentTruncatedError
from rollingfs.policy import RollingPolicy
from rollingfs.read.snapshot import Snapshot
from rollingfs.server.keys import AlreadyAppended
from rollingfs.server.operations import EVENTS, JSON, OCTETS, Amount, Call, Count, Offset, Paths, Wait, operation
from rollingfs.server.problems import PROBLEM, Refused, problem_fields
from rollingfs.server.store import etag
from rollingfs.server.tails import Following, events

SEND_BYTES = 256 * 1024
PAGE_DEFAULT = 1000
WAIT_S = 20.0
_RANGE = re.compile(r"bytes=(?!-$)([0-9]{0,18})-([0-9]{0,18})")


# -- bytes -----------------------------------------------------------------------------------------------------


@operation("POST", "segments", is_upload=True)
async def append(
    call: Call, create: bool = False, expected_offset: Offset | None = None, idempotency_key: str | None = None
) -> Any:
    """Append the body, all or nothing, in one commit.

    Parameters
    ----------
    create
        Make the segment if there is none.
    expected_offset
        The offset at which the data must begin, else 412.
    idempotency_key
        A repeat with the same key appends nothing, and is answered alike.
    """
    call.place()
    try:
        body = call.request.stream()
        written, size = await call.store.append(call.path, body, expected_offset, idempotency_key, create=create)
    except AlreadyAppended as before:
        view = await call.store.look(call.path)
        return _appended(before.offset, before.size, view.version, view.length, is_repeated=True)
    return _appended(written.offset, size, written.header.version, written.offset + size, is_repeated=False)


def _appended(offset: int, size: int, version: int, length: int, *, is_repeated: bool) -> Response:
    fields = {"offset": offset, "size": size, "version": version, "length": length, "repeated": is_repeated}
    return JSONResponse(fields, headers={"Segment-Offset": str(offset), "Segment-Version": str(version)})


@operation("GET", "segments", answers={200: OCTETS, 206: OCTETS, 304: "", 416: PROBLEM})
async def read(
    call: Call,
    start: Offset | None = None,
    end: Offset | None = None,
    range: str | None = None,
    if_range: str | None = None,
    if_none_match: str = "",
) -> Any:
    """Read bytes of one snapshot. The headers Segment-Start, -Length, -Offset, -Version and -State say what it is.

    Parameters
    ----------
    start
        The first segment offset; by default that of the first retained byte.
    end
        The segment offset behind the last byte; by default the end.
    range
        Bytes counted from the first retained byte, as bytes=0-99 or bytes=-100.
    if_range
        The Range counts only for this ETag.
    if_none_match
        Answer 304 if the segment still has this ETag.
    """
    call.place()
    view = await call.store.look(call.path)
    tag, headers = etag(view), _headers(view)
    if tag in re.split(r"\s*,\s*", if_none_match.replace("W/", "")) or if_none_match == "*":
        return Response(status_code=304, headers=headers)
    first, last, status = _span(view, start, end, range if if_range in (None, tag) else None)
    headers |= {"Segment-Offset": str(first), "Content-Length": str(last - first)}
    if status == 206:
        headers["Content-Range"] = f"bytes {first - view.start}-{last - view.start - 1}/{view.size}"
    if call.request.method == "HEAD":
        return Response(None, status, headers, OCTETS)
    return await streamed(call.store.pieces(view, first, last), status, headers)


def _headers(view: Snapshot) -> dict[str, str]:
    found = {"ETag": etag(view), "Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff"}
    return found | {
        f"Segment-{name.title()}": str(getattr(view, name)) for name in ("start", "length", "version", "state")
    }


def _span(view: Snapshot, start: int | None, end: int | None, asked: str | None) -> tuple[int, int, int]:
    """Segment offsets of what is asked for, and the status.

    Raises
    ------
    Refused
        There are no such bytes (416), or both ways of asking are mixed.
    SegmentTruncatedError
        The first bytes have been truncated away.
    """
    found = _RANGE.fullmatch(asked or "")  # several ranges, or another unit: the whole may be sent
    if found is not None and (start is not None or end is not None):
        raise Refused(400, "give start and end, or a Range, not both")
    if found is None:
        first, last = view.start if start is None else start, view.length if end is None else min(end, view.length)
        if first < view.start:
            raise SegmentTruncatedError(f"{view.path}: offset {first} was truncated away; {view.extent}")
    elif not found[1]:
        first, last = view.length - min(int(found[2]), view.size), view.length
    else:
        first = view.start + int(found[1])
        last = min(view.length, view.start + int(found[2]) + 1) if found[2] else view.length
    if first > last or (first == last and found is not None):
        raise Refused(416, f"no such bytes: {view.extent}", {"Content-Range": f"bytes */{view.size}"})
    return first, last, 200 if found is None else 206


async def streamed(
    pieces: AsyncIterator[bytes], status: int, headers: dict[str, str], media: str | None = OCTETS
) -> Response:
    """An answer whose first piece is there already, so that an error has its status."""
    first = await anext(pieces, b"")

    async def parts() -> AsyncIterator[bytes]:
        piece: bytes | None = first
        while piece is not None:
            for begin in range(0, len(piece), SEND_BYTES):
                yield piece[begin : begin + SEND_BYTES]
            piece = await anext(pieces, None)

    return StreamingResponse(parts(), status, headers, media)


@operation("GET", "segments", "tail", answers={200: f"{OCTETS} {EVENTS}", 204: ""})
async def tail(
    call: Call,
    offset: Offset | None = None,
    wait: Wait = WAIT_S,
    max_kib: Count = 1024,
    last_event_id: str = "",
    accept: str = "",
) -> Any:
    """Follow whole records (lines) as they come: one answer when there are some, or server-sent events until the seal.

    The header Next-Offset says where to go on. 204 says that none came in time.

    Parameters
    ----------
    offset
        Where to begin; by default at the end as it is now.
    wait
        Seconds to wait for the first record, without server-sent events.
    max_kib
        Maximum size of an answer in KiB, unless one record has more.
    last_event_id
        As browsers send it when they connect again: where to begin.
    accept
        text/event-stream for server-sent events.
    """
    call.place()
    view = await call.store.look(call.path)
    if last_event_id.isascii() and last_event_id.isdigit():
        offset = int(last_event_id[:18])
    following = Following(call.watches, call.path, view, offset, 1024 * max_kib)
    if EVENTS in accept:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events(following, call.store.root), 200, headers, EVENTS)
    found = await following.records(wait)
    state = {"Segment-Offset": str(found.offset), "Next-Offset": str(found.next_offset)}
    state["Segment-State"] = "sealed" if found.is_end else "open"
    return Response(found.data, 200 if found.data else 204, state, OCTETS if found.data else None)


# -- what there is ---------------------------------------------------------------------------------------------


@operation("GET", "segments", "info")
async def info(call: Call) -> Any:
    """What is known of a segment or plain file: its state, offsets, version, dates and attributes."""
    call.place()
    return call.store.info(await call.store.look(call.path))


@operation("POST", "segments", "info", has_path=False, changes=False)
async def infos(call: Call, paths: Paths) -> Any:
    """The same of many segments; those that cannot be read have a problem in their place."""
    for path in paths:
        call.place(path)

    async def one(path: str) -> Any:
        return call.store.info(await call.store.look(path.strip("/")))

    return {"infos": await each_or_problem(call, {path: partial(one, path) for path in paths})}


async def each_or_problem(call: Call, calls: dict[str, Any], at_once: int = 16) -> dict[str, Any]:
    """The results of several calls by path, some at once; what fails has a problem in its place."""
    turns = asyncio.Semaphore(at_once)

    async def one(path: str) -> Any:
        try:
            async with turns:
                return await calls[path]()
        except OSError as error:
            return {"problem": problem_fields(error, call.store.root, changes=call.changes)}

    return dict(zip(calls, await asyncio.gather(*map(one, calls)), strict=True))


@operation("GET", "segments", has_path=False)
async def list_folder(
    call: Call, folder: str | None = None, after: str | None = None, limit: Count = PAGE_DEFAULT
) -> Any:
    """List a folder, page by page: segments, plain files and folders, sorted by path.

    Parameters
    ----------
    folder
        What to list; by default the root, or the folder that the token is confined to.
    after
        Begin behind this path: the `next` of the page before.
    limit
        Maximum entries of a page.
    """
    folder = (folder or call.access.prefix).strip("/")
    found = call.store.shown(await call.store.listed(call.place(folder)))
    entries = sorted(({"path": one.pop("name"), **one} for one in found), key=lambda one: str(one["path"]))
    left = [one for one in entries if after is None or one["path"] > after.strip("/")]
    return {"folder": folder, "entries": left[:limit], "next": left[limit - 1]["path"] if len(left) > limit else None}


@operation("GET", "segments", "status")
async def status(call: Call, after_bytes: Amount | None = None, after_age: Amount | None = None) -> Any:
    """The upkeep of the segments at or below a path: what lies in which store, and what waits for an offload.

    Parameters
    ----------
    after_bytes
        What an offload would leave in the hot store; it says what counts as lag.
    """
    return {"states": await call.store.fs._states(call.place(), None, after_bytes, after_age)}


# -- the life of a segment -------------------------------------------------------------------------------------


@operation("PUT", "segments", answers={201: JSON})
async def create(
    call: Call, max_bytes: Amount | None = None, max_age: Amount | None = None, inline_bytes: Amount | None = None
) -> Any:
    """Make an empty segment; 409 if something has the name. The fields are those of its policy."""
    place, given = call.place(), {"max_bytes": max_bytes, "max_age": max_age, "inline_bytes": inline_bytes}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    await call.store.fs._create(place, RollingPolicy(**chosen) if chosen else None)
    return JSONResponse(call.store.info(await call.store.look(call.path)), 201)


@operation("DELETE", "segments")
async def delete(call: Call) -> None:
    """Delete a segment or plain file."""
    await call.store.fs._rm_file(call.place())


@operation("POST", "segments", "seal")
async def seal(call: Call) -> Any:
    """Let a segment take no more bytes."""
    return {"length": await call.store.fs._seal(call.place())}


@operation("POST", "segments", "truncate")
async def truncate(call: Call, offset: Offset, erase: bool = False) -> Any:
    """Drop the bytes before an offset; `waiting` counts those that wait for collection.

    Parameters
    ----------
    offset
        The first byte that stays.
    erase
        Leave none of the dropped bytes in a file of the segment.
    """
    did = await call.store.fs._truncate(call.place(), offset, erase=erase)
    return {"waiting": did} if isinstance(did, int) else {"erased": did}


@operation("POST", "segments", "concat")
async def concat(call: Call, sources: Paths, as_bytes: bool = False, as_format: str | None = None) -> Any:
    """Append sealed segments without moving bytes; they are gone afterwards.

    Parameters
    ----------
    as_bytes
        Also join formats that do not join, like Parquet.
    as_format
        `parquet` makes one Parquet file of the target and the sources.
    """
    places = [call.place(path) for path in sources]
    return {"offset": await call.store.fs._concat(call.place(), places, as_bytes=as_bytes, as_format=as_format)}


@operation("POST", "segments", "rename")
async def rename(call: Call, to: str, overwrite: bool = False) -> Any:
    """Give a segment another name; no bytes are moved. Without `overwrite`, 409 if something has the name."""
    source, target = call.place(), call.place(to)
    await call.store.look(call.path)
    if not overwrite and await call.store.fs._exists(target):
        raise FileExistsError(17, "something has this name; nothing was changed", target)
    await call.store.fs._mv_file(source, target)
    return {"path": target}


@operation("POST", "segments", "offload")
async def offload(
    call: Call,
    tier: str = "cold",
    after_bytes: Amount | None = None,
    after_age: Amount | None = None,
    deletion_lag: Amount = "4h",
) -> Any:
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
        How long the old files stay.
    """
    return await call.store.fs._offload(call.place(), tier, None, after_bytes, after_age, deletion_lag)


@operation("POST", "segments", "consolidate")
async def consolidate(call: Call, grace: Amount = "10min") -> Any:
    """Join small neighbouring chunks; the old files stay for readers as long as `grace`."""
    return await (await call.store.fs._segment(call.place()))._consolidate(grace)
