"""What a format is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from rollingfs.errors import CorruptChunkError, CorruptHeaderError
from rollingfs.spark.source.formats.lines import Read
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.segments import SegmentReader

CORRUPT = (CorruptHeaderError, CorruptChunkError)
"""Errors of damaged bytes, which ``onCorrupt=skip`` leaves out."""

Starts = Callable[[], Sequence[int]]
"""Gives the offset of each row of a batch; it is asked only where a query wants to know."""
Located = tuple[pa.RecordBatch, Starts | None]
"""A batch, and where its rows lie; None if its format has no offsets."""


class ReadOptions(Protocol):
    """What a format asks of the options of a read."""

    @property
    def partition_bytes(self) -> int:
        """Bytes of a task."""

    @property
    def has_metadata(self) -> bool:
        """Whether rows have the columns `_offset`, `_segment` and `_commit_time`."""

    @property
    def target_protocol(self) -> str:
        """The protocol of the backend."""

    def codec(self, path: str) -> str | None:
        """The compression with which the segment at a path is read; None: as it is."""


class Format:
    """What a format makes of bytes and rows. It has no state: one object serves all queries.

    Here stands what a format does whose segments are one record each, or one file. A format of lines or of records says
    otherwise.
    """

    has_lines: ClassVar[bool] = False
    """Whether its records are lines: a segment may be cut, compressed and counted as lines are."""
    grows: ClassVar[bool] = False
    """Whether a segment grows by whole records, so that a stream can follow it."""
    has_offsets: ClassVar[bool] = False
    """Whether its rows have offsets."""
    columns: ClassVar[pa.Schema | None] = None
    """The columns, if they are the same everywhere."""

    def infer(self, opened: SegmentReader) -> pa.Schema | None:
        """The columns of a segment, where they are not the same everywhere; None if it does not tell them.

        Raises
        ------
        ValueError
            This format never tells them.
        """
        raise NotImplementedError

    def check_read(self, schema: pa.Schema) -> None:
        """Refuse to read columns of a schema, before any task begins.

        Raises
        ------
        ValueError
            The format has no such columns.
        """

    def check_write(self, schema: pa.Schema) -> None:
        """Refuse to write columns of a schema, before any task begins.

        Raises
        ------
        ValueError
            The format has no such columns, or is not written.
        """

    def cut(self, opened: SegmentReader, extent: Extent, options: ReadOptions) -> Iterable[Range]:
        """The ranges of an extent, each for one task."""
        raise NotImplementedError

    def torn(self, read: Read, extent: Extent, end: int) -> ValueError | None:
        """The error for bytes behind the last whole record, which ends at `end`; None if they are none of a record."""
        return None

    def end_behind(self, read: Read, extent: Extent, upto: int, *, is_last: bool) -> int:
        """The end of the last whole record at or before `upto`; else that of the first one; else the extent's start.

        Parameters
        ----------
        is_last
            No bytes can come behind the extent.
        """
        raise NotImplementedError

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, options: ReadOptions) -> Iterator[Any]:
        """What is read of a range, a piece at a time; `rows` makes rows of each.

        Parameters
        ----------
        schema
            The columns that are wanted.
        """
        raise NotImplementedError

    def rows(self, piece: Any, one: Range, schema: pa.Schema) -> Iterator[Located]:
        """The rows of a piece, in columns that `rows.conform` takes; by default the piece is rows already."""
        yield piece

    def nothing(self, schema: pa.Schema) -> bytes:
        """The bytes of no rows, which tell their columns; none if the format cannot tell them."""
        return b""

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """The bytes of some rows, in pieces."""
        raise NotImplementedError
