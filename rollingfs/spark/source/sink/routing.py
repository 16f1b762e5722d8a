"""Rows by the segment that a column names, and the check of its values. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from rollingfs.errors import RollingError
from rollingfs.format import names
from rollingfs.spark.source.places import BEING_COPIED, is_skipped_file

NAME_BYTES_MAX = 255 - len(names.CHUNKS_SUFFIX)
"""Maximum bytes of a name: disks take 255, and the files of a segment have a longer name than the segment."""
_NAMING = (pt.is_string, pt.is_large_string, pt.is_integer, pt.is_date)


class BadSegmentNameError(RollingError, ValueError):
    """A value of the column cannot name a segment; no byte was written."""


def without(schema: pa.Schema, column: str) -> pa.Schema:
    """Return the columns that are written where `column` names the segment of a row.

    Raises
    ------
    ValueError
        There is no such column, or no other, or its type cannot name segments.
    """
    index, why = schema.get_field_index(column), None
    if index < 0:
        why = f": no column, or several, of {', '.join(schema.names)}"
    elif not any(is_one(kind := schema.field(index).type) for is_one in _NAMING):
        why = f", a column of {kind}: strings, integers and dates name segments"
    elif len(schema) == 1:
        why = ", the only column: it names segments and is not written into them"
    if why is not None:
        raise ValueError(f"option segmentBy is {column!r}{why}; nothing was written")
    return schema.remove(index)


def split(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of a batch by segment, in their order, without the column that names the segment.

    Raises
    ------
    BadSegmentNameError
        A value can name no segment.
    """
    if not batch.num_rows:
        return
    index = batch.schema.get_field_index(column)
    values = batch.column(index).cast(pa.string()).dictionary_encode()
    if values.null_count:
        raise BadSegmentNameError(
            f"{values.null_count} rows are null in column {column!r}, which names their segment; nothing was written"
        )
    rest = batch.remove_column(index)
    found = values.dictionary.to_pylist()
    for name in found:
        check_name(name, column)
    if len(found) == 1:
        yield found[0], rest
        return
    order = pc.sort_indices(values.indices)  # it keeps the order of equal values
    ordered, codes = rest.take(order), values.indices.take(order)
    counts = {row["values"]: row["counts"] for row in pc.value_counts(codes).to_pylist()}
    start = 0
    for code, name in enumerate(found):
        yield name, ordered.slice(start, counts[code])
        start += counts[code]


def check_name(name: str, column: str) -> str:
    """Return a value, if it can name a segment in a folder.

    Raises
    ------
    BadSegmentNameError
        It cannot; the message has the details.
    """
    why = _objection(name)
    if why is not None:
        what = f"value {name!r} of column {column!r} can name no segment"
        raise BadSegmentNameError(f"{what}: {why}; nothing was written")
    return name


def _objection(name: str) -> str | None:
    if not name:
        return "it is empty"
    if "/" in name:
        return "it has a slash, and each row goes to a segment directly in the folder"
    if is_skipped_file(name):
        return f"reads of the folder skip names that begin with '_' or '.', or end with '{BEING_COPIED}'"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"it has {len(name.encode())} bytes, and a name has at most {NAME_BYTES_MAX}"
    if names.is_hidden_segment(name):
        return "what rollingfs keeps in a folder has this name"
    try:
        names.check_segment_name(name)
    except ValueError as error:
        return str(error).partition(": ")[2]
    return None
