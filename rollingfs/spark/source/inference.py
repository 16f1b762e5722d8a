"""The columns of segments, if the user names no columns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rollingfs.errors import CorruptHeaderError
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import folder_columns, places, rows
from rollingfs.spark.source.formats.contract import CORRUPT
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.segments import SegmentReader

logger = logging.getLogger("pyspark_rollingfs")
NOT_SEEN = "%d other segments, and what lies behind, were not looked at. If they have other columns, give .schema(...)"


def infer_schema(options: Options) -> Any:
    """Return the columns of the segments.

    Raises
    ------
    ValueError
        No segment has its columns.
    """
    found = _found(options)
    schema = _inferred(options, [view for view in found.views.values() if view.size])
    if options.has_folder_columns:
        columns = folder_columns.columns_of([*found.views, *found.corrupt], places.bases(options))
        schema = with_folder_columns(schema, columns)
    return rows.added_to(schema) if options.has_metadata else schema


def _found(options: Options) -> places.FoundSegments:
    """Return the segments that have the columns, by a single look.

    It is empty if the format has the same columns everywhere.
    """
    is_known = options.form.columns is not None
    if is_known and not options.has_folder_columns:
        return places.FoundSegments({}, {})
    try:
        return places.find(places.filesystem(options), options)
    except (FileNotFoundError, CorruptHeaderError):
        if not is_known:
            raise
        return places.FoundSegments({}, {})  # the read that follows names it


def with_folder_columns(schema: Any, columns: dict[str, pa.DataType]) -> Any:
    """Return a Spark schema with the columns of folders.

    They come at its end, or in place of a column of the same name in any case.
    """
    added = {one.name.lower(): one for one in rows.spark_schema(pa.schema(list(columns.items())))}
    fields = [added.get(one.name.lower(), one) for one in schema]
    there = {one.name.lower() for one in schema}
    return type(schema)(fields + [one for name, one in added.items() if name not in there])


def _inferred(options: Options, found: Sequence[Segment]) -> Any:
    """Return the columns of the format, or of the first segment with columns."""
    form = options.form
    if form.columns is not None:
        return rows.spark_schema(form.columns)
    fs = places.filesystem(options)
    for view in found:
        try:
            schema = form.infer(SegmentReader(fs, view))
        except CORRUPT:
            if not options.skips_corrupt:
                raise
            continue  # the read that follows names it
        except pa.ArrowInvalid as error:
            raise ValueError(f"{view.path}: its bytes are no {options.format}: {error}") from error
        if schema is not None:
            if len(found) > 1 or form.grows:
                logger.warning("%s: the columns are those of its beginning; %s", view.path, NOT_SEEN % (len(found) - 1))
            return rows.spark_schema(schema)
    raise ValueError(f"there is no {options.format} to infer the columns from: give .schema(...)")
