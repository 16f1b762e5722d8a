"""Arrow IPC streams, one behind the other, or one IPC file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import pyarrow as pa

from rollingfs.spark.source.formats import arrow_streams
from rollingfs.spark.source.formats.arrow_streams import MalformedStreamError
from rollingfs.spark.source.formats.contract import Located, ReadOptions
from rollingfs.spark.source.formats.lines import Read
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.segments import SegmentReader, extent_of, is_remote


class Arrow:
    """The rows of record batches; the offset of each is that of its batch."""

    has_lines: ClassVar[bool] = False
    grows: ClassVar[bool] = True
    has_offsets: ClassVar[bool] = True
    columns: ClassVar[str | None] = None

    def infer(self, opened: SegmentReader) -> pa.Schema | None:
        """The columns of the first stream."""
        return arrow_streams.schema(opened.read, extent_of(opened.view))

    def check_read(self, schema: pa.Schema) -> None:
        """Any columns."""

    def check_write(self, schema: pa.Schema) -> None:
        """Any columns."""

    def cut(self, opened: SegmentReader, extent: Extent, options: ReadOptions) -> Iterable[Range]:
        """Whole streams, or parts of a large one."""
        return arrow_streams.cut(opened.read, extent, options.partition_bytes)

    def torn(self, read: Read, extent: Extent, end: int) -> ValueError | None:
        """The error for a message that is cut off."""
        if not arrow_streams.is_torn(read, extent, end):
            return None
        return MalformedStreamError(f"{extent.path}: bytes {end} to {extent.end} are not a whole Arrow IPC message")

    def end_behind(self, read: Read, extent: Extent, upto: int, *, is_last: bool) -> int:
        """Behind a whole stream."""
        return arrow_streams.whole_end(read, extent, upto, is_last=is_last)

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, options: ReadOptions) -> Iterator[Located]:
        """The record batches of a range."""
        found = arrow_streams.batches(opened.read, one, at_once=is_remote(opened.fs))
        if not options.has_metadata:
            return ((batch, None) for batch in found)
        starts = arrow_streams.batch_starts(opened.read, one)
        return (_located(batch, start) for batch, start in zip(found, starts, strict=True))

    def rows(self, piece: Located, one: Range, schema: pa.Schema) -> Iterator[Located]:
        """The batch."""
        yield piece

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """One stream; without rows, no bytes."""
        return arrow_streams.encode(batches)


def _located(batch: pa.RecordBatch, start: int) -> Located:
    return batch, lambda: [start] * batch.num_rows


FORMAT = Arrow()
