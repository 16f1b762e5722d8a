"""The operations of REST on streams: cuts, trimming, retention, and upkeep by hand."""

from __future__ import annotations

import json
from typing import Any

from rollingfs.fs.stream_handle import Stream
from rollingfs.server.operations import OFFLOAD, RETENTION, Age, Call, Fields, Seconds, Text, operation
from rollingfs.server.segment_routes import each_or_problem
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import RetentionPolicy


def _stream(call: Call) -> Stream:
    return call.store.fs.stream(call.place())


def _cut(call: Call, fields: Fields) -> StreamCut:
    cut = StreamCut.parse(json.dumps(fields))
    for path in cut:
        call.place(path)
    return cut.renamed(call.store.place)


@operation("GET", "/v1/streams")
async def list_streams(call: Call, folder: Text | None = None) -> Any:
    """Return the folders at or below a path that have a memory of a stream."""
    return {"streams": await call.store.fs._streams(call.place((folder or call.access.prefix).strip("/")))}


@operation("GET", "/v1/streams/{path}")
async def info(call: Call) -> Any:
    """Return a stream: its segments, its size, its retention and its subscribers."""
    stream = _stream(call)
    infos, kept = await stream._infos(), await call.store.retention(call.place())
    size = sum(one["size"] or 0 for one in infos.values())
    return {"size": size, "segments": infos, **kept, "subscribers": await stream._subscribers()}


@operation("DELETE", "/v1/streams/{path}")
async def delete(call: Call) -> None:
    """Delete all segments of a stream, and its memory; may be repeated."""
    await _stream(call)._delete()


@operation("GET", "/v1/streams/{path}:cut")
async def cut(call: Call, at: Seconds | None = None, align: Text | None = None) -> Any:
    """Return a position in a stream: by default its end now.

    Parameters
    ----------
    at
        Before everything that may have been written after this time (seconds since 1970).
    align
        Cut after the last of these delimiters.
    """
    return {"cut": await _stream(call)._cut(at, None if align is None else align.encode())}


@operation("GET", "/v1/streams/{path}:cuts")
async def cuts(call: Call) -> Any:
    """Return the cuts that retention has kept, oldest first."""
    return {"cuts": await _stream(call)._cuts()}


@operation("POST", "/v1/streams/{path}:trim")
async def trim(call: Call, cut: Fields, dry_run: bool = False) -> Any:
    """Trim a stream to a cut. It is recorded first, so that the next call finishes a broken-off trim.

    A repeat drops no further byte. The answer counts the bytes that this call dropped, by segment.

    Parameters
    ----------
    cut
        As the operation `cut` answers it.
    dry_run
        Only report the work.
    """
    return await _stream(call)._trim(_cut(call, cut), dry_run)


@operation("GET", "/v1/streams/{path}:retention")
async def retention(call: Call) -> Any:
    """Return the retention of a stream, null for everything, and the folder of each field."""
    return await call.store.retention(call.place())


@operation("PUT", "/v1/streams/{path}:retention", fields={**RETENTION, "retention": Fields, "sources": Fields})
async def set_retention(call: Call, **given: Any) -> Any:
    """Store the retention of a stream; folders above give missing fields.

    `min_age` and `min_bytes` stay in any case; read bytes go as soon as `keep_age` or `keep_bytes` asks for it, and
    unread bytes by `max_age` and `max_bytes`. `every` is the time between two cuts, `align` the delimiter before a cut.

    It takes the answer of GET as well: then fields with the values of folders above stay theirs.
    """
    place, fields = call.place(), given
    if "retention" in given:
        if given.keys() - {"retention", "sources"}:
            raise ValueError("give the fields, or `retention` as GET answers it; nothing was changed")
        now = await call.store.retention(place)
        theirs = {name: now["retention"][name] for name, where in now["sources"].items() if where != place}
        asked = RetentionPolicy.from_fields(given["retention"] or {}).as_fields()
        fields = {name: value for name, value in asked.items() if theirs.get(name) != value}
    await _stream(call)._set_retention(RetentionPolicy.from_fields(fields))
    return await retention(call)


@operation("PATCH", "/v1/streams/{path}:retention", fields=RETENTION)
async def change_retention(call: Call, **given: Any) -> Any:
    """Change the fields that are given, in a single commit, and leave the others as they are; null removes a field."""

    def change(found: RetentionPolicy | None) -> RetentionPolicy:
        fields = {**(found.as_fields() if found else {}), **given}
        return RetentionPolicy.from_fields({name: value for name, value in fields.items() if value is not None})

    await _stream(call)._change_retention(change)
    return await retention(call)


@operation("POST", "/v1/streams/{path}:retain")
async def retain(call: Call, dry_run: bool = False) -> Any:
    """Run retention once: finish a trim, take a cut if it is time, trim."""
    return await _stream(call)._retain(dry_run)


@operation("POST", "/v1/streams/{path}:publish")
async def publish(call: Call, subscriber: Text, cut: Fields) -> Any:
    """Record that a subscriber has read all bytes before a cut."""
    await _stream(call)._publish(subscriber, _cut(call, cut))
    return {"subscriber": subscriber}


@operation("POST", "/v1/streams/{path}:offload", fields={"tier": Text} | OFFLOAD)
async def offload(call: Call, **given: Any) -> Any:
    """Move chunks of all segments of a stream to a tier, now; without any field the policies decide."""
    return await _stream(call)._offload(**given)


@operation("POST", "/v1/streams/{path}:consolidate")
async def consolidate(call: Call, grace: Age = "10min") -> Any:
    """Join small neighbouring chunks of all segments; what fails is named, and the others go on."""

    async def one(path: str) -> Any:
        return await (await call.store.fs._segment(path))._consolidate(grace)

    return {"segments": await each_or_problem(call, await _stream(call)._segments(), one, at_once=2)}
