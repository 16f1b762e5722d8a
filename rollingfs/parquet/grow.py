"""An append to a Parquet file, repeated where another writer was faster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from rollingfs.errors import BadOffsetError
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.fs.segment_handle import Segment
from rollingfs.parquet import files
from rollingfs.parquet.encoding import Encoder
from rollingfs.parquet.files import of_file, refused
from rollingfs.parquet.footer import MalformedFooterError

T = TypeVar("T")

FOOTER_READ_BYTES = 512 * 1024
"""Maximum bytes of the first read for the footer of a Parquet file. A second request takes longer than these bytes."""
GROWTHS_MAX = 64
"""Maximum tries to append to a Parquet file while other writers append; each try makes a new footer."""
GROWTH_PAUSE_S = 0.02
"""Maximum pause before the second try; it doubles with each try. It is random, so that writers do not meet again."""
GROWTH_PAUSE_S_MAX = 1.0


@dataclass(frozen=True, slots=True)
class _File:
    """Rows as a Parquet file."""

    data: bytes
    footer: bytes | None

    @property
    def size(self) -> int:
        return len(self.data)


def append(fs: RollingFileSystem, path: str, table: Any, **options: Any) -> int:
    """Append rows to a Parquet file, or make it, in one commit: readers see all of the rows or none.

    Any number of processes may append to one file; each append that loses a race is repeated on what is there then.

    Parameters
    ----------
    path
        A segment that is missing or empty, or that holds one Parquet file.
    table
        A `pyarrow.Table`, or what `pyarrow.table` takes: a DataFrame of pandas or polars, a mapping of columns.
        Columns are told by their names. A column that the file lacks is null in its old rows.
    **options
        Those of `pyarrow.parquet.write_table`, for the new row groups.

    Returns
    -------
    int
        The segment offset at which the new bytes begin.

    Raises
    ------
    rollingfs.parquet.footer.MalformedFooterError, pyarrow.ArrowInvalid
        The file is not Parquet, or a column of it is missing in the table, or has another type; nothing was written.
    BadOffsetError
        Other writers were faster in each of many tries; nothing was written.
    OSError
        The errors of `append` of the filesystem.
    """
    rows = pa.table(table)
    return repeated(path, lambda: _append_once(fs, path, rows, options))


def _append_once(fs: RollingFileSystem, path: str, rows: pa.Table, options: dict[str, Any]) -> int:
    try:
        segment = fs.segment(path)
    except FileNotFoundError:
        return _create(fs, path, _grown(None, path, rows, options))
    length = segment.length  # of the snapshot whose footer is read: what comes meanwhile must refuse this append
    try:
        data = _grown(segment, path, rows, options)
        return int(segment.append(data, expected_offset=length)) if data else length
    except FileNotFoundError as error:
        raise BadOffsetError(f"{path}: it was deleted or replaced; nothing was written") from error


def _create(fs: RollingFileSystem, path: str, data: list[Any]) -> int:
    try:
        fs.pipe_file(path, b"".join(data), mode="create")
    except FileExistsError as error:
        raise BadOffsetError(f"{path}: another writer made it; nothing was written") from error
    return 0


def _grown(segment: Segment | None, path: str, rows: pa.Table, options: dict[str, Any]) -> list[Any]:
    """The bytes that append the rows to a segment as it is; None if it is missing."""
    schema, old = _nullable(rows.schema), None
    if segment is not None and segment.size:
        near = segment.length - FOOTER_READ_BYTES
        try:
            old = files.footer_of(segment.read, segment.start, segment.length, near)
        except MalformedFooterError as error:
            raise refused(path, str(error)) from error
        with of_file(path):
            rows = _typed(rows, files.schema_of(old))
            schema = files.aligned(old, _nullable(rows.schema))
    encoder = Encoder(iter(rows.select(schema.names).cast(schema).to_batches()), **options)
    data = b"".join(encoder)
    with of_file(path):
        pieces = [_File(data, encoder.footer)] if data else []
        return files.growth(pieces, old, 0 if segment is None else segment.size, schema)


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The schema in which all columns may have nulls later."""
    return pa.schema([field.with_nullable(True) for field in schema], schema.metadata)


def _typed(rows: pa.Table, known: pa.Schema) -> pa.Table:
    """The rows; a column of nulls alone, which tell no type, has that of a known schema."""
    for nth, field in enumerate(rows.schema):
        if pa.types.is_null(field.type) and field.name in known.names:
            found = known.field(field.name)
            rows = rows.set_column(nth, found, pa.nulls(rows.num_rows, found.type))
    return rows


def repeated(path: str, attempt: Callable[[], T]) -> T:
    """What an attempt to append gives, which is tried again if another writer was faster.

    Raises
    ------
    BadOffsetError
        Other writers were faster each time.
    """
    for nth in range(GROWTHS_MAX):
        try:
            return attempt()
        except BadOffsetError:
            # another writer appended after we looked
            time.sleep(random.uniform(0, min(GROWTH_PAUSE_S * 2**nth, GROWTH_PAUSE_S_MAX)))
    raise BadOffsetError(
        f"{path}: other writers appended before each of {GROWTHS_MAX} tries; nothing was written. Try again"
    )
