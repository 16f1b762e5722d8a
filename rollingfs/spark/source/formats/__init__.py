"""The formats of ``format("rolling")``: what each makes of bytes, and of rows.

In: a range of a segment, or rows. Out: Arrow record batches, or bytes. A new format is a `Format`, and a line in
`MODULES`. Must not be here: streams, commits, and where segments are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from rollingfs.errors import CorruptChunkError, CorruptHeaderError
from rollingfs.spark.source.formats.lines import Read
from rollingfs.spark.source.segments import Extent, Range, SegmentReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CORRUPT", "MODULES", "Format", "of"]

TEXT, JSON, ARROW, PARQUET, BINARY = "text", "json", "arrow", "parquet", "binary"
MODULES = {TEXT: "text", JSON: "text", ARROW: "arrow_streams", PARQUET: "whole_files", BINARY: "whole_files"}
"""The module of each format. It is imported when the format is used, because maintenance has no Arrow."""
CORRUPT = (CorruptHeaderError, CorruptChunkError)
"""Errors of damaged bytes, which ``onCorrupt=skip`` leaves out."""

Starts = Callable[[], Sequence[int]]
"""Gives the offset of each row of a batch; it is asked only where a query wants to know."""
Located = tuple["pa.RecordBatch", Starts | None]
"""A batch, and where its rows are; None if its format has no offsets."""


@cache
def of(name: str) -> Format:
    """Return the format of a name."""
    found: Format = import_module(f"{__name__}.{MODULES[name]}").FORMATS[name]
    return found


class Format:
    """Conversion between bytes and rows. It has no state: an object serves all queries.

    The defaults are for formats whose segments are a record or a file. Formats of lines or records override them.
    """

    has_lines: ClassVar[bool] = False
    """Whether its records are lines: a segment may be cut, compressed and counted as lines are."""
    grows: ClassVar[bool] = False
    """Whether a segment grows by whole records with offsets, so that a stream can follow it."""
    columns: ClassVar[pa.Schema | None] = None
    """The columns, if they are the same everywhere."""

    def infer(self, opened: SegmentReader) -> pa.Schema | None:
        """Return the columns of a segment, or None.

        Only a format whose segments differ in columns has them.

        Raises
        ------
        ValueError
            This format never has them.
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

    def cut(self, opened: SegmentReader, extent: Extent, size_max: int, codec: str | None) -> Iterable[Range]:
        """Return the ranges of an extent, each for a task; by default the whole, also if it is empty.

        Parameters
        ----------
        size_max
            About the bytes of a task.
        codec
            The compression with which the segment is read; None: as it is.
        """
        return [Range(extent, extent.start, extent.end)]

    def torn(self, read: Read, extent: Extent, end: int) -> ValueError | None:
        """Return the error for bytes after the last whole record, or None.

        The record ends at `end`. None: the bytes belong to no record.
        """
        return None

    def end_behind(self, read: Read, extent: Extent, upto: int, *, is_last: bool) -> int:
        """Return the end of the last whole record at or before `upto`.

        Without it, that is the end of the first record, else the extent's start.

        Parameters
        ----------
        is_last
            No bytes can come after the extent.
        """
        raise NotImplementedError

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, codec: str | None) -> Iterator[Any]:
        """Return what is read of a range, a piece at a time; `rows` makes rows of each.

        Parameters
        ----------
        schema
            The columns that are wanted.
        """
        raise NotImplementedError

    def rows(self, piece: Any, one: Range, schema: pa.Schema) -> Iterator[Located]:
        """Yield the rows of a piece, in columns that `rows.conform` takes; by default the piece is rows already."""
        yield piece

    def nothing(self, schema: pa.Schema) -> bytes:
        """Return the bytes of zero rows with their columns, if the format can."""
        return b""

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """Return the bytes of some rows, in pieces."""
        raise NotImplementedError
