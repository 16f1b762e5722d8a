"""Lines of text: cut anywhere, read as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rollingfs.spark.source import partitions
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.formats.lines import FEED, Lines, Read
from rollingfs.spark.source.formats.row_format import Format, Located, ReadOptions
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.segments import SegmentReader, is_remote

COLUMN = "value"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Byte order mark, which Spark leaves out at the begin of a segment."""


class Block(NamedTuple):
    """Bytes of whole lines."""

    data: bytes
    size: int
    """Of the lines in the data."""
    position: int | None
    """The offset of the first byte; None if the segment is compressed."""

    def lines(self) -> Lines:
        """Return the lines, each ended by a line feed."""
        found = lines.normalized(self.data, self.size)
        marked = self.position == 0 and self.data.startswith(BYTE_ORDER_MARK)
        return Lines(found.data, len(BYTE_ORDER_MARK), found.end) if marked else found

    def starts(self) -> Sequence[int]:
        """Return the offset of each line."""
        assert self.position is not None
        return lines.starts(self.data, self.size, self.position)


class Text(Format):
    """Text: a row for each line."""

    has_lines: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    has_offsets: ClassVar[bool] = True
    columns: ClassVar[pa.Schema | None] = pa.schema({COLUMN: pa.string()})

    def check_read(self, schema: pa.Schema) -> None:
        """Refuse all except a single column of strings."""
        _check_schema(schema, "format 'text'")

    def check_write(self, schema: pa.Schema) -> None:
        """Refuse all except a single column of strings."""
        _check_schema(schema, "writing text")

    def cut(self, opened: SegmentReader, extent: Extent, options: ReadOptions) -> Iterable[Range]:
        """Yield equal ranges; a compressed segment is a single range."""
        if options.codec(extent.path) is None:
            return partitions.split(extent, options.partition_bytes)
        if options.has_metadata:
            raise ValueError(f"{extent.path} is compressed, so its rows have no offsets: includeMetadata is not for it")
        if extent.size != opened.view.size:
            raise lines.refused_part(extent.path, f"and not bytes {extent.start} to {extent.end} of it")
        return partitions.whole(extent)

    def end_behind(self, read: Read, extent: Extent, upto: int, *, is_last: bool) -> int:
        """Return the offset after a line feed, or the end of a sealed segment."""
        if is_last and upto == extent.end:
            return upto
        end = lines.last_line_end(read, extent.start, upto)
        if end > extent.start:
            return end
        found = lines.next_line_end(read, upto, extent.end)
        if found is not None:
            return found
        return extent.end if is_last else extent.start

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, options: ReadOptions) -> Iterator[Block]:
        """Blocks of lines that begin in a range."""
        size = lines.BLOCK_BYTES if is_remote(opened.fs) else lines.LOCAL_BLOCK_BYTES
        codec = options.codec(one.extent.path)
        if codec is not None:
            for block in lines.decompressed_blocks(opened.file(), codec, size):
                yield Block(block.data, block.end, None)
            return
        for position, data, end in lines.raw_blocks(
            opened.read, one.extent.start, one.start, one.end, one.extent.end, size
        ):
            yield Block(data, end, position)

    def rows(self, piece: Block, one: Range, schema: pa.Schema) -> Iterator[Located]:
        """Yield a row for each line."""
        yield pa.record_batch([to_lines(piece.lines())], schema=schema), piece.starts

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """Yield a line for each row; a null is an empty line, as Spark writes it."""
        for batch in batches:
            if batch.num_rows:
                texts = pc.fill_null(batch.column(0), "")
                joined = pc.binary_join(pa.LargeListArray.from_arrays([0, len(texts)], texts), "\n")
                yield joined[0].as_buffer().to_pybytes() + FEED


def to_lines(block: Lines) -> pa.Array:
    """Return the lines of a block, without their ends."""
    # without decoding: bytes that are not UTF-8 pass, as in Spark's reader
    offsets = pa.array([block.start, block.end - block.ends], pa.int32()).buffers()[1]
    text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(block.data))
    return pc.split_pattern(text, "\n").flatten()


def _check_schema(schema: pa.Schema, what: str) -> None:
    if len(schema) != 1 or not pa.types.is_string(schema.field(0).type):
        raise ValueError(f"{what} needs one column of strings, not ({', '.join(map(str, schema))})")


FORMAT = Text()
