"""Rows of a batch replaced by others. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt


def replaced(
    batch: pa.RecordBatch, numbers: Sequence[int], counts: Sequence[int], instead: pa.RecordBatch
) -> pa.RecordBatch:
    """A batch in which each of some rows gives place to others.

    Parameters
    ----------
    numbers
        The rows, ascending.
    counts
        How many rows stand in the place of each.
    instead
        These rows, one behind the other.
    """
    if all(count == 1 for count in counts):
        mask, at = _mask(numbers, batch.num_rows), pa.array(numbers, pa.int64())
        columns = [_overwritten(*pair, mask, at) for pair in zip(batch.columns, instead.columns, strict=True)]
        return pa.record_batch(columns, schema=batch.schema)
    if not any(counts):
        return batch.filter(pc.invert(_mask(numbers, batch.num_rows)))
    order = _order(batch.num_rows, numbers, counts)
    both = pa.Table.from_batches([batch, instead]).take(order).combine_chunks()
    return both.to_batches()[0] if both.num_rows else instead.slice(0, 0)


def _overwritten(column: pa.Array, values: pa.Array, mask: pa.Array, at: pa.Array) -> pa.Array:
    """A column with other values in the rows of a mask, which are the rows `at`."""
    if values.null_count == len(values) == column.take(at).null_count:
        return column
    if pt.is_nested(column.type):  # Arrow has no faster way
        order = _order(len(column), at.to_pylist(), [1] * len(at))
        return pa.concat_arrays([column, values]).take(order)
    return pc.replace_with_mask(column, mask, values)


def _mask(numbers: Sequence[int], size: int) -> pa.Array:
    """Which of so many rows have some numbers."""
    bits = bytearray(size // 8 + 1)
    for nth in numbers:
        bits[nth >> 3] |= 1 << (nth & 7)
    return pa.BooleanArray.from_buffers(pa.bool_(), size, [None, pa.py_buffer(bits)])


def _order(size: int, numbers: Sequence[int], counts: Sequence[int]) -> pa.Array:
    """The places of the rows, if the new ones stand behind the old."""
    order: list[int] = []
    at, done = size, 0
    for nth, count in zip(numbers, counts, strict=True):
        order += range(done, nth)
        order += range(at, at + count)
        at, done = at + count, nth + 1
    return pa.array([*order, *range(done, size)], pa.int64())
