"""The columns `_offset`, `_segment` and `_commit_time`: where a row is, and when its bytes were committed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from rollingfs.format.header import Chunk
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import rows

OFFSET, SEGMENT, COMMIT_TIME = "_offset", "_segment", "_commit_time"
_TYPES = {OFFSET: pa.int64(), SEGMENT: pa.string(), COMMIT_TIME: pa.timestamp("us", "UTC")}


def data_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that come from the bytes.

    Raises
    ------
    ValueError
        A column has the name of our column, and another type.
    """
    for field in schema:
        kind = _TYPES.get(field.name.lower(), field.type)
        if field.type != kind:
            raise ValueError(f"column {field.name} is {field.type}, but with includeMetadata it is {kind}")
    return pa.schema([field for field in schema if field.name.lower() not in _TYPES], schema.metadata)


def added_to(schema: Any) -> Any:
    """Return an inferred Spark schema, with our columns.

    Raises
    ------
    ValueError
        The data has a column of such a name.
    """
    if taken := sorted(name for name in schema.names if name.lower() in _TYPES):
        raise ValueError(f"the data has a column {taken[0]}, which includeMetadata adds: read without includeMetadata")
    return type(schema)([*schema, *rows.spark_schema(pa.schema(_TYPES))])


async def commit_times(client: At, view: Segment, start: int, end: int) -> CommitTimes:
    """Return the commit times of the bytes ``[start, end)``, as far as the segment's map has them."""
    header = view.header
    if header is None:
        return CommitTimes([], [round(view.modified.timestamp() * 1000)])
    ends: list[int] = []
    at_ms: list[int] = []
    for entry in header.entries:
        if entry.end > start and entry.start < end:
            chunks = [entry] if isinstance(entry, Chunk) else await client.pages.chunks(view.path, entry)
            ends += [chunk.end for chunk in chunks]
            at_ms += [chunk.at_ms for chunk in chunks]
    return CommitTimes(ends, [*at_ms, header.modified_ms])


@value_class
class CommitTimes:
    """Commit times by segment offset: of a chunk, of its newest byte; of the tail, of the last commit."""

    ends: Sequence[int]
    """Ends of the chunks, by segment offset, ascending."""
    at_ms: Sequence[int]
    """Their times, in milliseconds since 1970, and the time of all later bytes."""

    def of(self, offsets: Sequence[int]) -> pa.Array:
        """Return the times of some offsets."""
        found = [1000 * self.at_ms[bisect_right(self.ends, offset)] for offset in offsets]
        return pa.array(found, pa.int64()).cast(_TYPES[COMMIT_TIME])


def with_columns(
    batch: pa.RecordBatch, offsets: Sequence[int], path: str, times: CommitTimes, schema: pa.Schema
) -> pa.RecordBatch:
    """Return rows with our columns, as far as a schema has them.

    Parameters
    ----------
    offsets
        The offset of each row.
    """
    made: dict[str, Callable[[], pa.Array]] = {
        OFFSET: lambda: pa.array(offsets, pa.int64()),
        SEGMENT: lambda: pa.repeat(pa.scalar(path), batch.num_rows),
        COMMIT_TIME: lambda: times.of(offsets),
    }
    ours = {name: made[name.lower()]() for name in schema.names if name.lower() in made}
    return rows.arranged(batch, ours, schema)
