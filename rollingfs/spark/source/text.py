"""Text lines as Arrow batches, and back."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rollingfs.spark.source.lines import FEED, Lines

COLUMN = "value"


def check_schema(schema: pa.Schema, what: str) -> None:
    """Refuse a schema that is not a single column of text.

    Raises
    ------
    ValueError
        It has other columns.
    """
    if len(schema) != 1 or not pa.types.is_string(schema.field(0).type):
        raise ValueError(f"{what} needs one column of strings, not ({', '.join(map(str, schema))})")


def to_lines(block: Lines) -> pa.Array:
    """The lines of a block, without their ends."""
    # without decoding: bytes that are not UTF-8 pass, as in Spark's reader
    offsets = pa.array([block.start, block.end - block.ends], pa.int32()).buffers()[1]
    text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(block.data))
    return pc.split_pattern(text, "\n").flatten()


def to_batch(block: Lines, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a block."""
    return pa.record_batch([to_lines(block)], schema=schema)


def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Rows as lines; a null is an empty line, as Spark writes it."""
    for batch in batches:
        if batch.num_rows:
            lines = pc.fill_null(batch.column(0), "")
            joined = pc.binary_join(pa.LargeListArray.from_arrays([0, len(lines)], lines), "\n")
            yield joined[0].as_buffer().to_pybytes() + FEED
