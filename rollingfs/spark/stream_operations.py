"""The operations of maintenance on whole streams, ``retain`` and ``trim``, and what they did to each segment.

A stream is one piece of work: its ledger records what is to be trimmed before anything is. The results are by segment,
as those of the other operations are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollingfs.format import names
from rollingfs.spark.operations import Row, said
from rollingfs.spark.source import places
from rollingfs.spark.source.options import Options
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention_run import Retained
from rollingfs.stream.trim import Trimmed

RETAIN = "retain"
TRIM = "trim"
STREAM_OPERATIONS = (RETAIN, TRIM)
"""In the order in which they are done, before the operations on segments."""
RESULTS_SCHEMA = "path string, results string"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Which operations to do to streams, and their arguments."""

    operations: tuple[str, ...]
    cut: StreamCut | None = None
    dry_run: bool = False
    must_be: bool = True
    """Whether it is an error that there is no stream."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the operations on its stream did to a segment."""

    operation: str
    """The last one that was tried."""
    bytes: int
    details: Mapping[str, Any]
    """By operation."""
    error: str | None = None

    def then(self, other: Result) -> Result:
        """The result of both, of which this came first."""
        details = {**self.details, **other.details}
        return Result(other.operation, self.bytes + other.bytes, details, self.error or other.error)


def streams_of(paths: Iterable[str]) -> list[str]:
    """The folders among whose segments there is the memory of a stream, sorted."""
    return sorted({names.parent(path) for path in paths if names.is_ledger(path)})


def check_cut(cut: StreamCut, paths: Sequence[str]) -> list[str]:
    """The streams that a cut is of, sorted.

    Raises
    ------
    ValueError
        It names segments that are not at the URLs.
    """
    elsewhere = sorted(set(cut) - set(paths))
    if elsewhere:
        more = f" and {len(elsewhere) - 1} more" if elsewhere[1:] else ""
        raise ValueError(f"the cut names {elsewhere[0]}{more}, which is not at the URLs; nothing was trimmed")
    return sorted({names.parent(path) for path in cut})


def keep_stream(options: Options, settings: StreamSettings, folder: str) -> dict[str, Any]:
    """Do the operations to a stream; its results are JSON, by segment. An error of the stream is by its folder."""
    results: dict[str, Result] = {}
    operation = settings.operations[0]
    try:
        stream = places.filesystem(options).stream(folder)
        for operation in settings.operations:
            did: Retained | Trimmed
            if operation == TRIM:
                assert settings.cut is not None
                cut = settings.cut.only(path for path in settings.cut if names.parent(path) == folder)
                did = stream.trim(cut, settings.dry_run)
            elif stream.retention is None:
                continue
            else:
                did = stream.retain(settings.dry_run)
            for path, result in _results(operation, did).items():
                results[path] = results[path].then(result) if path in results else result
    except Exception as failure:  # noqa: BLE001 - one stream's failure is in its rows, never the job's
        results[folder] = Result(operation, 0, {}, said(failure))
    found = {path: [one.operation, one.bytes, dict(one.details), one.error] for path, one in results.items()}
    return {"path": folder, "results": json.dumps(found)}


def _results(operation: str, did: Retained | Trimmed) -> dict[str, Result]:
    found = {}
    for path in {*did.dropped, *did.deleted, *did.failed}:
        size = did.dropped.get(path, 0)
        details = {operation: {"bytes": size, "deleted": path in did.deleted}}
        found[path] = Result(operation, size, details, did.failed.get(path))
    return found


def parse_results(rows: Iterable[Mapping[str, Any]]) -> dict[str, Result]:
    """The results of all streams, by the path of a segment or, for the error of a stream, of its folder."""
    return {path: Result(*values) for row in rows for path, values in json.loads(row["results"]).items()}


def result_of(results: Mapping[str, Result], path: str) -> Result | None:
    """The result for a segment: its own, or the error of its stream."""
    return results.get(path) or results.get(names.parent(path))


def merged(path: str, result: Result | None, row: Row | None) -> Row | None:
    """The row of a segment after all operations; those on its stream came first.

    Parameters
    ----------
    row
        Of the operations on the segment; None if nothing of it is left, or if none were done.
    """
    if result is None:
        return row
    if row is None:
        details = json.dumps(result.details)
        return Row(path, result.operation, result.error is None, result.bytes, details, result.error, 0.0)
    error = result.error or row.error
    details = json.dumps({**result.details, **json.loads(row.details)})
    operation = row.operation if json.loads(row.details) else result.operation
    return replace(
        row, operation=operation, done=error is None, bytes=result.bytes + row.bytes, details=details, error=error
    )
