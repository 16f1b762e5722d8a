"""Maps as Arrow arrays, made of one column for each key. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_INDEX = "i"


def of_columns(
    keys: Sequence[str],
    columns: Sequence[pa.Array],
    present: Sequence[pa.Array] | None,
    is_null: pa.Array,
    kind: pa.DataType,
) -> pa.Array:
    """Maps whose entries have the order of `keys`.

    Parameters
    ----------
    keys, columns
        All keys, and the values of each in all rows.
    present
        Which rows have the key, for each key; None if all have all.
    is_null
        The rows that are null instead of a map.
    kind
        The type of the maps.
    """
    rows, width = len(is_null), len(keys)
    if not width:
        offsets = _indices(array(_INDEX, bytes(4 * (rows + 1))))
        return pa.MapArray.from_arrays(
            offsets, pa.array([], kind.key_type), pa.array([], kind.item_type), kind, None, is_null
        )
    base = _numbers(1 << (width * rows).bit_length())
    places = array(_INDEX, bytes(4 * width * rows))
    for nth in range(width):
        places[nth::width] = base[nth * rows : (nth + 1) * rows]
    order, numbers = _indices(places), _indices(array(_INDEX, range(width)) * rows)
    if present is None:
        offsets = _indices(base[0 : width * rows + 1 : width])
    else:
        there = pa.concat_arrays(present).take(order)
        order, numbers = order.filter(there), numbers.filter(there)
        sizes = present[0].cast(pa.int32())
        for more in present[1:]:
            sizes = pc.add(sizes, more.cast(pa.int32()))
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(sizes)])
    names = pa.array(keys, kind.key_type).take(numbers)
    return pa.MapArray.from_arrays(offsets, names, pa.concat_arrays(columns).take(order), kind, None, is_null)


@lru_cache(maxsize=1)
def _numbers(size: int) -> array[int]:
    """The numbers from 0; kept, because making them takes longer than using them."""
    return array(_INDEX, range(size))


def _indices(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
