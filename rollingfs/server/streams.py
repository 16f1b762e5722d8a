"""The operations of REST on streams: cuts, trimming, retention, and upkeep by hand."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from rollingfs.fs.stream_handle import Stream
from rollingfs.server.operations import Amount, Call, Fields, Seconds, operation
from rollingfs.server.segments import each_or_problem
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import RetentionPolicy


def _stream(call: Call) -> Stream:
    return call.store.fs.stream(call.place())


def _cut(call: Call, fields: Fields) -> StreamCut:
    cut = StreamCut.parse(json.dumps(fields))
    for path in cut:
        call.place(path)
    return cut.renamed(call.store.place)


@operation("GET", "streams", has_path=False)
async def list_streams(call: Call, folder: str | None = None) -> Any:
    """The folders at or below one that have a retention, cuts or subscribers."""
    return {"streams": await call.store.fs._streams(call.place((folder or call.access.prefix).strip("/")))}


@operation("GET", "streams")
async def info(call: Call) -> Any:
    """A stream: its segments, its size, its retention and its subscribers."""
    stream = _stream(call)
    infos, policy = await stream._infos(), await stream._get_retention()
    size = sum(one["size"] or 0 for one in infos.values())
    kept = None if policy is None else policy.as_fields()
    return {"size": size, "segments": infos, "retention": kept, "subscribers": await stream._subscribers()}


@operation("DELETE", "streams")
async def delete(call: Call) -> None:
    """Delete all segments of a stream, and its memory; may be repeated."""
    await _stream(call)._delete()


@operation("GET", "streams", "cut")
async def cut(call: Call, at: Seconds | None = None, align: str | None = None) -> Any:
    """A position in a stream: by default its end now.

    Parameters
    ----------
    at
        Before everything that may have been written after this time (seconds since 1970).
    align
        Cut behind the last of these delimiters.
    """
    return {"cut": await _stream(call)._cut(at, None if align is None else align.encode())}


@operation("GET", "streams", "cuts")
async def cuts(call: Call) -> Any:
    """The cuts that retention has kept, oldest first."""
    return {"cuts": await _stream(call)._cuts()}


@operation("POST", "streams", "trim")
async def trim(call: Call, cut: Fields, dry_run: bool = False) -> Any:
    """Trim a stream to a cut. It is recorded first, so that the next call finishes what was broken off.

    A repeat drops nothing more. The answer says what this call dropped, of which segments.

    Parameters
    ----------
    cut
        As the operation `cut` answers it.
    dry_run
        Change nothing; say what would be done.
    """
    return await _stream(call)._trim(_cut(call, cut), dry_run)


@operation("GET", "streams", "retention")
async def retention(call: Call) -> Any:
    """How much of a stream is kept; null for everything."""
    found = await _stream(call)._get_retention()
    return {"retention": None if found is None else found.as_fields()}


@operation("PUT", "streams", "retention")
async def set_retention(
    call: Call,
    min_age: Amount | None = None,
    min_bytes: Amount | None = None,
    keep_age: Amount | None = None,
    keep_bytes: Amount | None = None,
    max_age: Amount | None = None,
    max_bytes: Amount | None = None,
    every: Amount | None = None,
) -> Any:
    """Store how much of a stream is kept; without a field, that everything is.

    Parameters
    ----------
    min_age, min_bytes
        Seconds and bytes that stay in any case.
    keep_age, keep_bytes
        What has been read goes as soon as one of them asks for it.
    max_age, max_bytes
        The same, for what has not been read.
    every
        Time between two cuts.
    """
    limits: dict[str, Any] = {
        "min_age": min_age,
        "min_bytes": min_bytes,
        "keep_age": keep_age,
        "keep_bytes": keep_bytes,
    }
    policy = RetentionPolicy(**limits, max_age=max_age, max_bytes=max_bytes, every=every)
    await _stream(call)._set_retention(policy if policy.as_fields() else None)
    return await retention(call)


@operation("POST", "streams", "retain")
async def retain(call: Call, dry_run: bool = False) -> Any:
    """Run retention once: finish a trim, take a cut if it is time, trim."""
    return await _stream(call)._retain(dry_run)


@operation("POST", "streams", "publish")
async def publish(call: Call, subscriber: str, cut: Fields) -> Any:
    """Record that a subscriber has read all that lies before a cut."""
    await _stream(call)._publish(subscriber, _cut(call, cut))
    return {"subscriber": subscriber}


@operation("POST", "streams", "offload")
async def offload(
    call: Call,
    tier: str | None = None,
    after_bytes: Amount | None = None,
    after_age: Amount | None = None,
    deletion_lag: Amount | None = None,
) -> Any:
    """Move chunks of all segments of a stream to a tier, now; without any field the policies decide."""
    return await _stream(call)._offload(tier, after_bytes, after_age, deletion_lag)


@operation("POST", "streams", "consolidate")
async def consolidate(call: Call, grace: Amount = "10min") -> Any:
    """Join small neighbouring chunks of all segments; what fails is named, and the others go on."""

    async def one(path: str) -> Any:
        return await (await call.store.fs._segment(path))._consolidate(grace)

    paths = await _stream(call)._segments()
    return {"segments": await each_or_problem(call, {path: partial(one, path) for path in paths}, at_once=2)}
