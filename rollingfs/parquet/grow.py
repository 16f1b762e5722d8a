"""Appends to a Parquet file, repeated after a lost race, and the bound on old footers."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from rollingfs.errors import (
    COMMITTED,
    NOT_COMMITTED,
    UNKNOWN,
    AppendInterrupted,
    BadOffsetError,
    SegmentTruncatedError,
    interrupted,
)
from rollingfs.format import names
from rollingfs.format.transitions import Guard, missing
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.fs.read_file import ReadFile
from rollingfs.parquet import files
from rollingfs.parquet.files import ParquetEncoder, RowsFile, as_table, empty, encoded, of_file, refused
from rollingfs.parquet_footer.chunks import live_bytes
from rollingfs.parquet_footer.footer import MAGIC, columns, compressions, group_rows
from rollingfs.parquet_footer.thrift import MalformedFooterError
from rollingfs.segment.read import ends
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.append import Written, append as append_segment
from rollingfs.segment.verbs.truncate import cut_groups, renew

T = TypeVar("T")

logger = logging.getLogger("rollingfs")

GROWTHS_MAX = 64
"""Maximum tries to append to a Parquet file while other writers append; each try makes a new footer."""
GROWTH_PAUSE_S = 0.02
"""Maximum pause before the second try; it doubles with each try. It is random, so that writers do not meet again."""
GROWTH_PAUSE_S_MAX = 1.0
REWRITTEN_BYTES_MAX = 256 * 1024 * 1024
"""Size of a file above which an append leaves that to upkeep and `rewrite`, because it takes long."""
BATCH_ROWS = 64 * 1024
LOST_MAX = 1024
"""Maximum number of files that are remembered because they could not be rewritten."""

_lost: dict[str, int] = {}
"""Wasted bytes of the files that could not be rewritten; a next try waits for twice as many."""


def append(fs: RollingFileSystem, path: str, table: Any, **options: Any) -> int:
    """Append rows to a Parquet file, or make it, in a single commit.

    Any number of processes may append to a file; an append that loses a race is repeated on the new file.
    Old footers and small row groups stay. If they are more than a tenth of a file of up to 256 MiB, the
    append calls `rewrite`; larger files are left to ``rollingfs run``.

    Parameters
    ----------
    path
        A segment that is missing or empty, or holds a Parquet file.
    table
        A `pyarrow.Table`, or a value that `pyarrow.table` takes: a DataFrame of pandas or polars, a mapping of columns.
        Columns are matched by their names. A column that the file lacks is null in its old rows.
    **options
        Options of `pyarrow.parquet.write_table`, for the new row groups.

    Returns
    -------
    int
        The segment offset at which the new bytes begin.

    Raises
    ------
    rollingfs.parquet.MalformedFooterError
        The file is not Parquet, or a column of it is missing in the table, has another type, or cannot be written as
        Parquet; the message names it, and no byte was written.
    BadOffsetError
        Other writers were faster in each of many tries; no byte was written.
    OSError
        The errors of `append` of the filesystem.
    """
    path = names.check_new_name(core(fs).strip(path))
    with judged(path) as verdict:
        with of_file(path):
            rows = as_table(table)
        return repeated(path, verdict, lambda: _append_once(fs, path, rows, options, verdict))


def _append_once(fs: RollingFileSystem, path: str, rows: pa.Table, options: dict[str, Any], verdict: Settled) -> int:
    view = look(fs, path)
    with changed(path, view):
        data = _grown(fs, path, view, rows, options)
        if not data:
            return 0 if view is None else view.length
        offset = commit(fs, path, view, data, verdict).offset
    keep_bounded(fs, path, view, data)
    return offset


@dataclass
class Settled:
    """Known outcome of the commit of an append or a rewrite, for Ctrl-C."""

    outcome: str = NOT_COMMITTED


@contextmanager
def judged(path: str) -> Iterator[Settled]:
    """Report the outcome of the commit with Ctrl-C; during the commit, the core does."""
    verdict = Settled()
    try:
        yield verdict
    except KeyboardInterrupt as interrupt:
        if isinstance(interrupt, AppendInterrupted) and verdict.outcome == UNKNOWN:
            raise
        raise interrupted(path, verdict.outcome) from interrupt


def look(fs: RollingFileSystem, path: str) -> Segment | None:
    """Return the segment as it is now, or None."""
    try:
        return core(fs).run(core(fs).client.headers.view(path, fresh=True))
    except FileNotFoundError:
        return None


@contextmanager
def changed(path: str, view: Segment | None) -> Iterator[None]:
    """Tell that a segment is gone, or that its old bytes are, as a lost race: it is to be looked at again."""
    try:
        yield
    except (FileNotFoundError, SegmentTruncatedError) as error:
        if view is None:
            raise
        raise BadOffsetError(f"{path}: it was deleted or written anew; nothing was written") from error


def commit(
    fs: RollingFileSystem,
    path: str,
    view: Segment | None,
    data: Sequence[Any],
    verdict: Settled,
    attrs: Mapping[str, str] | None = None,
    guard: Guard | None = None,
) -> Written:
    """Append to a segment as it was seen, or make a missing segment.

    Parameters
    ----------
    guard
        The condition; by default, that the segment is unchanged.

    Raises
    ------
    BadOffsetError, FileNotFoundError
        It was changed since; no byte was written.
    """
    guard = guard_of(view) if guard is None else guard
    call = append_segment(core(fs).client, path, list(data), attrs=attrs, guard=guard, create=view is None)
    verdict.outcome = UNKNOWN
    written = core(fs).run(call, commits=path)
    verdict.outcome = COMMITTED
    return written


def guard_of(view: Segment | None, expected_attrs: Mapping[str, str | None] | None = None) -> Guard:
    """Return the condition that a segment has the very bytes that were seen: its incarnation, start and length."""
    segment = view.incarnations[0] if view is not None and view.incarnations else None
    start = None if view is None else view.start
    return Guard(segment, None, 0 if view is None else view.length, expected_attrs or {}, start)


def footer_of(fs: RollingFileSystem, view: Segment) -> bytes:
    """Return the footer of the file that a segment is.

    Raises
    ------
    MalformedFooterError
        It is not Parquet.
    """
    try:
        return core(fs).run(ends.footer_of(core(fs).client.fetcher, view))
    except MalformedFooterError as error:
        raise refused(view.path, str(error)) from error


def _footer_to_grow(fs: RollingFileSystem, view: Segment) -> bytes:
    """Return the footer, if the whole segment is its file."""
    footer = footer_of(fs, view)
    with of_file(view.path):
        if ends.is_last_of_several(footer, view.size):
            raise MalformedFooterError("it holds several whole Parquet files, and a reader finds only one of them")
    return footer


def grown(
    fs: RollingFileSystem, path: str, view: Segment | None, pieces: Sequence[RowsFile], schema: pa.Schema
) -> list[Any]:
    """Return the data that appends Parquet files to a segment as it was seen; None if it is missing."""
    return _growth(path, view, pieces, None if view is None or not view.size else _footer_to_grow(fs, view), schema)


def _growth(
    path: str, view: Segment | None, pieces: Sequence[RowsFile], old: bytes | None, schema: pa.Schema
) -> list[Any]:
    with of_file(path):
        return files.growth(pieces, old, 0 if view is None else view.size, schema)


def _grown(
    fs: RollingFileSystem, path: str, view: Segment | None, rows: pa.Table, options: dict[str, Any]
) -> list[Any]:
    """Return the bytes that append the rows to a segment as it was seen; None if it is missing."""
    schema, old = _nullable(rows.schema), None
    if view is not None and view.size:
        old = _footer_to_grow(fs, view)
        with of_file(path):
            rows = _typed(rows, files.schema_of(old))
            schema = files.aligned(old, _nullable(rows.schema))
    if not rows.num_rows:
        return _growth(path, view, [], old, schema)
    rows = rows.select(schema.names).cast(schema)
    try:
        file = encoded(rows, options)
    except MalformedFooterError as error:
        raise refused(path, str(error)) from error
    return _growth(path, view, [file], old, schema)


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which all columns may have nulls later."""
    return pa.schema([field.with_nullable(True) for field in schema], schema.metadata)


def _typed(rows: pa.Table, known: pa.Schema) -> pa.Table:
    """Return the rows; a column of nulls gets the type of a known schema."""
    for nth, field in enumerate(rows.schema):
        if pa.types.is_null(field.type) and field.name in known.names:
            found = known.field(field.name)
            rows = rows.set_column(nth, found, pa.nulls(rows.num_rows, found.type))
    return rows


def repeated(path: str, verdict: Settled, attempt: Callable[[], T]) -> T:
    """Repeat an attempt to append until no other writer was faster.

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
            verdict.outcome = NOT_COMMITTED
            time.sleep(random.uniform(0, min(GROWTH_PAUSE_S * 2**nth, GROWTH_PAUSE_S_MAX)))
    raise BadOffsetError(
        f"{path}: other writers appended before each of {GROWTHS_MAX} tries; nothing was written. Try again"
    )


# -- what appends leave behind ---------------------------------------------------------------------------------------


def rewrite(fs: RollingFileSystem, path: str, **options: Any) -> int:
    """Rewrite a Parquet file in large row groups with one footer.

    The single commit puts the rows after the old bytes and moves the start there: a reader in the middle of the old
    file must open it again. Attributes and policies stay.

    Parameters
    ----------
    **options
        Options of `pyarrow.parquet.write_table`; by default the compression of each column stays.

    Returns
    -------
    int
        Number of freed bytes; 0 without a rewrite: no bytes were wasted, or bytes other than old footers are between
        the rows and the footer, for instance whole files.

    Raises
    ------
    BadOffsetError
        Another writer changed the file; no byte was written. Call it again.
    rollingfs.parquet.MalformedFooterError
        It is not Parquet, or its columns cannot be written as they are; no byte was written.
    OSError
        The file is missing, sealed, held by an owner, or cannot be read; no byte was written.
    """
    path = core(fs).strip(path)
    with judged(path) as verdict:
        view = look(fs, path)
        if view is None:
            raise missing(path)
        try:
            with changed(path, view):
                return _rewritten(fs, path, view, options, verdict)
        except pa.ArrowException as error:
            why = f"its rows cannot be written anew: {error}; nothing was written"
            raise MalformedFooterError(f"{path}: {why}") from error


def _rewritten(fs: RollingFileSystem, path: str, view: Segment, options: dict[str, Any], verdict: Settled) -> int:
    old = footer_of(fs, view)
    with of_file(path):
        magics = len(MAGIC) * len(group_rows(old))  # before each row group stands one
        if view.size <= live_bytes(old) + magics or not ends.is_one_file(old, view.size):
            return 0
        options = {"compression": compressions(old) or "snappy", **options}
    with pq.ParquetFile(ReadFile(core(fs), path, view)) as file:
        schema = file.schema_arrow
        none = empty(schema, **options)
        with of_file(path):
            if columns(files.footer_in(none)) != columns(old):
                raise MalformedFooterError("its columns would have other types")
        data = ParquetEncoder(file.iter_batches(BATCH_ROWS), **options) if file.metadata.num_rows else [none]
        verdict.outcome = UNKNOWN
        renewed = core(fs).run(renew(core(fs).client, path, data, guard_of(view)), commits=path)
        verdict.outcome = COMMITTED
        return view.size - renewed.size


def truncate(fs: RollingFileSystem, path: str, before: int) -> int:
    """Drop the row groups that are wholly before a segment offset.

    A single commit moves the start and appends a footer of the other row groups. No row is written again; where
    another program wrote several row groups in a row, the rest is copied.

    Parameters
    ----------
    before
        As `Stream.cut` and `append` give it: the rows of appends that end before it go.

    Returns
    -------
    int
        Number of bytes that went from the head; 0 if no row group is before.

    Raises
    ------
    WholeFileError
        It is not a single Parquet file, or sealed; no row was dropped.
    BadOffsetError
        Other writers were faster in each of many tries; no row was dropped.
    OSError
        The file is missing, held by an owner, or cannot be read; no row was dropped.
    """
    path = core(fs).to_write(path)
    return core(fs).run(cut_groups(core(fs).client, path, before), commits=path)


def keep_bounded(fs: RollingFileSystem, path: str, view: Segment | None, data: Sequence[Any]) -> None:
    """Rewrite a file after an append if old footers are too large a part of it; any error is logged.

    Parameters
    ----------
    view, data
        The file before the append, and what was appended, with the new footer at its end.
    """
    wasted = 0
    try:
        size = (0 if view is None else view.size) + sum(one.size if hasattr(one, "size") else len(one) for one in data)
        if not data or not isinstance(data[-1], bytes) or size > REWRITTEN_BYTES_MAX:
            return
        wasted = size - live_bytes(files.footer_in(data[-1]))
        if ends.is_much(wasted, size) and wasted >= 2 * _lost.get(path, 0):
            rewrite(fs, path)
            _lost.pop(path, None)
    except Exception as error:  # noqa: BLE001 - the rows are appended, which the caller must know
        if len(_lost) >= LOST_MAX:
            _lost.clear()
        _lost[path] = wasted  # others append meanwhile: each append would write the whole file in vain
        logger.info("%s: %d bytes of old footers stay in it until the next append: %s", path, wasted, error)
