"""The operations of maintenance on a segment, and the row with their result."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from rollingfs import Collected, parquet
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.fs.segment_handle import SegmentHandle
from rollingfs.fs.target import open_export_target
from rollingfs.policy import READERS_GRACE_S
from rollingfs.runtime.values import value_class
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.verbs.export import export, is_exported
from rollingfs.segment.verbs.verify import damaged
from rollingfs.spark.source import places
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.options import Options
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.upkeep import COLLECT, OFFLOAD, STEPS, Upkeep, Upkept, with_rewritten

EXPORT = "export"
UPKEEP = "upkeep"
NOT_OF_HIDDEN = frozenset({"truncate", "rewrite", "seal", OFFLOAD})
"""Operations that the memory of a stream does not get, because retention needs it."""
ROW_SCHEMA = (
    "path string, operation string, done boolean, bytes bigint, details string, error string, seconds double, "
    "start bigint, length bigint, chunks bigint, sealed boolean, version bigint"
)


@value_class
class Chores:
    """Operations to do, and their arguments."""

    operations: tuple[str, ...]
    keep: int | None = None
    """Number of bytes that truncation leaves at the end of each segment."""
    align: str | None = None
    """The only delimiter after which a segment is cut; it may keep more bytes for that."""
    grace: float | None = None
    readers_grace: float = READERS_GRACE_S
    dry_run: bool = False
    asked: Asked | None = None
    """Arguments of an offload; None: by the policies."""
    cut: StreamCut | None = None
    into: str | None = None
    """The name of the segment in each folder that the others join."""
    target: str | None = None
    """The URL of the folder to which segments are exported."""
    roots: tuple[str, ...] = ()
    """The folders in which the segments are; an exported segment keeps its path below the deepest."""
    target_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """They may hold secrets."""
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.keep is not None and (self.keep < 0 or self.align == ""):
            raise ValueError(f"cannot keep {self.keep} bytes aligned by {self.align!r}; no segment was changed")
        if self.into is not None and (not self.into or "/" in self.into):
            raise ValueError(f"into={self.into!r}: it must be the name of a segment in each folder; nothing was done")

    def exported(self, path: str) -> str:
        """Return the URL of the file that a segment becomes."""
        assert self.target is not None
        root = max((root for root in self.roots if path.startswith(f"{root}/")), key=len)
        return f"{self.target.rstrip('/')}{path[len(root) :]}"


def check_exports(settings: Chores, paths: Sequence[str]) -> None:
    """Refuse an export in which two segments have the same target."""
    files: dict[str, str] = {}
    for path in paths:
        if (other := files.setdefault(url := settings.exported(path), path)) != path:
            raise ValueError(f"{other} and {path} would both be exported to {url}; nothing was done")


@value_class
class OutcomeRow:
    """The result of the operations on a segment."""

    path: str
    operation: str
    """The last operation that was tried; if there is an error, this operation failed."""
    done: bool
    """Whether all operations succeeded, and verification found no damage."""
    bytes: int
    """Sum of the bytes that truncation, trim, retention, rewriting and collection freed, consolidation joined or
    copied, offload moved, export wrote, verification read."""
    details: str
    """JSON: the result of each operation, by its name."""
    error: str | None
    seconds: float
    start: int | None = None
    length: int | None = None
    chunks: int | None = None
    sealed: bool | None = None
    version: int | None = None


@value_class
class Outcome:
    """The result of an operation: bytes, details for the row, and the damage that it found."""

    bytes: int
    details: Mapping[str, Any] | None
    error: str | None = None


def maintain_one(
    options: Options, settings: Chores, before: Mapping[str, Mapping[str, Outcome]], path: str
) -> dict[str, Any]:
    """Do the operations to a segment, up to the first damage.

    A segment that is gone gives no values, unless an operation on its stream has an outcome for it.

    Parameters
    ----------
    before
        Outcomes of the operations on streams, by path, then by operation. After an error the segment stays as it is.

    Returns
    -------
    dict
        The values of an `OutcomeRow`, which has the failure.
    """
    began_s = time.monotonic()
    of_segments = [one for one in OPERATIONS if one in settings.operations]
    did = dict(before.get(path, {}))
    tried = [*reversed(did), *of_segments, *settings.operations][0]
    error = next((one.error for one in did.values() if one.error is not None), None)
    segment: SegmentHandle | None = None
    try:
        fs = places.filesystem(options)
        if error is not None:
            of_segments = []
        else:
            try:
                segment = fs.segment(path)
            except FileNotFoundError:
                of_segments = [COLLECT] if {COLLECT, UPKEEP} & {*of_segments} else []
                if not of_segments and not did:
                    return {}
        for one in of_segments:
            if one in NOT_OF_HIDDEN and names.is_hidden_segment(path):
                continue
            tried = one
            did[one] = _collect(fs, path, settings) if segment is None else _DOES[one](fs, segment, settings)
            error = did[one].error
            if error is not None:
                break
    except Exception as failure:  # noqa: BLE001 - one segment's failure is its row, never the job's
        error = said(failure)
    state: dict[str, Any] = {}
    if segment is not None:
        state = {name: getattr(segment, name) for name in ("start", "length", "sealed", "version")}
        try:
            state["chunks"] = len(segment.chunks)  # may have to read an index page
        except OSError as failure:
            error = error or said(failure)
    size = sum(one.bytes for one in did.values())
    details = json.dumps({name: one.details for name, one in did.items() if one.details is not None})
    return asdict(OutcomeRow(path, tried, error is None, size, details, error, time.monotonic() - began_s, **state))


def said(failure: Exception) -> str:
    """Return the words of a row for a failure."""
    return f"{type(failure).__name__}: {failure}"


def _info(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    return Outcome(0, {"size": segment.size, "state": segment.state, "attrs": segment.attrs, "owner": segment.owner})


def _verify(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    rows = segment.verify()
    bad = damaged(rows)
    size = sum(row.found_size or 0 for row in rows)
    error = f"{bad[0].file} is {bad[0].state}" + (f", and {len(bad) - 1} more" if bad[1:] else "") if bad else None
    return Outcome(size, {"chunks": len(rows), "damaged": [row.file for row in bad]}, error)


def _truncate(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    assert settings.keep is not None
    offset = max(segment.start, segment.length - settings.keep)  # never less than the bytes asked for stay
    if settings.align is not None:
        offset = lines.last_line_end(segment.read, segment.start, offset, settings.align.encode())
    freed = offset - segment.start
    waiting = segment.truncate(offset) if freed and not settings.dry_run else 0
    return Outcome(freed, {"offset": offset, "waiting_for_collection": waiting})


def _seal(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    was_sealed = segment.sealed
    if not was_sealed and not settings.dry_run:
        segment.seal()
    return Outcome(0, {"sealed_now": not was_sealed})


def _consolidate(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    if settings.dry_run:
        return Outcome(0, {})
    result = segment.consolidate(settings.readers_grace)
    return Outcome(result.joined_bytes + result.copied_bytes, asdict(result))


def _rewrite(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    freed = 0 if settings.dry_run else parquet.rewrite(fs, segment.path)
    segment.refresh()
    return Outcome(freed, {"freed": freed})


def _export(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    """Write a segment as a plain file, unless a file as long is there that is not older than its last change.

    Raises
    ------
    ValueError
        The file could be outside of the folder, or belong to another segment: a key on S3 may have such parts.
    """
    url, below, size = settings.exported(segment.path), core(fs), 0
    if not {"", ".", ".."}.isdisjoint(url.removeprefix(str(settings.target).rstrip("/")).split("/")[1:]):
        what = "a part of its name is '.', '..' or empty, so it was not exported; export it alone"
        raise ValueError(f"{segment.path}: {what}")
    target, name = open_export_target(below.backend, url, None, settings.target_options)
    view = below.run(below.client.headers.view(segment.path, fresh=True))
    if not settings.dry_run and not below.run(is_exported(below.client, view, target, name)):
        size = below.run(export(below.client, view, target, name, overwrite=settings.overwrite)).size
    return Outcome(size, {"target": url, "size": size})


def _offload(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    """Offload as the caller asks, or by the policies; without a policy, do not."""
    if settings.dry_run:
        return Outcome(0, {})
    if (asked := settings.asked) is None:
        did = _kept(fs, segment, settings, (OFFLOAD,))
        return Outcome(did.offloaded.bytes, asdict(did.offloaded) if did.has_policy else {}, _reasons(did))
    of = asked.chosen
    moved = segment.offload(
        asked.tier, None, of.after_bytes, of.after_age_s, deletion_lag=asked.lag_s, block_bytes=asked.block_bytes
    )
    return Outcome(moved.bytes, asdict(moved))


def _upkeep(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores) -> Outcome:
    """Do what a round of ``rollingfs run`` does to a segment; of the memory of a stream it does the collection."""
    if settings.dry_run:
        return _collect(fs, segment, settings)
    did = _kept(fs, segment, settings, (COLLECT,) if names.is_hidden_segment(segment.path) else STEPS)
    freed = did.consolidated.bytes + did.offloaded.bytes + did.collected_bytes + did.rewritten_bytes
    return Outcome(freed, did.as_fields(), _reasons(did))


def _kept(fs: RollingFileSystem, segment: SegmentHandle, settings: Chores, steps: Sequence[str]) -> Upkept:
    below, path = core(fs), segment.path
    upkeep = Upkeep(below.client, steps, grace_s=settings.grace, readers_grace_s=settings.readers_grace)
    ledger = below.run(Ledgers(below.client).resolved(names.parent(path)))
    [did] = below.run(upkeep.segments([path], ledger))
    did = with_rewritten(did, lambda path: parquet.rewrite(fs, path))
    segment.refresh()
    return did


def _reasons(did: Upkept) -> str | None:
    return "; ".join(did.failed.values()) or None


def _collect(fs: RollingFileSystem, segment: SegmentHandle | str, settings: Chores) -> Outcome:
    """Collect the files of a segment's folder, also of a deleted segment."""
    result = Collected()
    with contextlib.suppress(FileNotFoundError):  # another client has collected a former segment
        path = segment if isinstance(segment, str) else segment.path
        result = fs.collect(path, settings.grace, settings.dry_run)
    return Outcome(result.bytes, {"files": len(result.files), "young": result.young})


_DOES: Mapping[str, Callable[[RollingFileSystem, SegmentHandle, Chores], Outcome]] = {
    "info": _info,
    "verify": _verify,
    "truncate": _truncate,
    "rewrite": _rewrite,
    "seal": _seal,
    UPKEEP: _upkeep,
    "consolidate": _consolidate,
    OFFLOAD: _offload,
    EXPORT: _export,
    COLLECT: _collect,
}
OPERATIONS = tuple(_DOES)
"""In the order in which they are done to a segment."""
