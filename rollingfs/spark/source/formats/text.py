"""Lines of text: cut anywhere, read as they are, or as JSON by Arrow's own reader, whole blocks at once.

Format ``json`` is fast and strict: a line that Arrow refuses ends the query, and the error has the place. Spark's
parser, with its modes and all of its types, reads text: see `rollingfs.spark.text_records`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from rollingfs.spark.source import segments
from rollingfs.spark.source.formats import JSON, TEXT, Format, Located, lines
from rollingfs.spark.source.formats.lines import FEED, Block, Read
from rollingfs.spark.source.segments import Extent, Range, SegmentReader, is_remote

COLUMN = "value"


class Text(Format):
    """Text: a row for each line."""

    has_lines: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    columns: ClassVar[pa.Schema | None] = pa.schema({COLUMN: pa.string()})

    def check_read(self, schema: pa.Schema) -> None:
        """Refuse all except a single column of strings."""
        _check_schema(schema, "format 'text'")

    def check_write(self, schema: pa.Schema) -> None:
        """Refuse all except a single column of strings."""
        _check_schema(schema, "writing text")

    def cut(self, opened: SegmentReader, extent: Extent, size_max: int, codec: str | None) -> Iterable[Range]:
        """Yield equal ranges; a compressed segment is a single range."""
        if codec is None:
            return segments.split(extent, size_max)
        if extent.size != opened.view.size:
            raise lines.refused_part(extent.path, f"and not bytes {extent.start} to {extent.end} of it")
        return [Range(extent, extent.start, extent.end)]

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

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, codec: str | None) -> Iterator[Block]:
        """Yield blocks of lines that begin in a range."""
        size = lines.BLOCK_BYTES if is_remote(opened.fs) else lines.LOCAL_BLOCK_BYTES
        if codec is not None:
            return lines.decompressed_blocks(opened.file(), codec, size)
        return lines.raw_blocks(opened.read, one.extent.start, one.start, one.end, one.extent.end, size)

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


def to_lines(found: memoryview) -> pa.Array:
    """Return the lines of a block, without their ends."""
    # without decoding: bytes that are not UTF-8 pass, as in Spark's reader
    offsets = pa.array([0, len(found) - (found[-1:] == FEED)], pa.int32()).buffers()[1]
    return pc.split_pattern(pa.StringArray.from_buffers(1, offsets, pa.py_buffer(found)), "\n").flatten()


def _check_schema(schema: pa.Schema, what: str) -> None:
    if len(schema) != 1 or not pa.types.is_string(schema.field(0).type):
        raise ValueError(f"{what} needs one column of strings, not ({', '.join(map(str, schema))})")


INSTEAD = (
    "rollingfs.spark.stream_json(spark, url, schema), or read_json for a batch, reads it by Spark's own parser, with "
    "all of its types, modes and options"
)
_KNOWN = (pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_string)
_FILLED = r"[^ \t]"
_OBJECT = r"^[ \t]*(?:\{.*\}[ \t]*)?$"
"""A blank line, or a line that begins and ends as an object does."""
SHOWN_BYTES_MAX = 200
"""Bytes of a refused line that its error shows."""


class Json(Text):
    """A row for each line, which is an object."""

    columns: ClassVar[pa.Schema | None] = None

    def infer(self, opened: SegmentReader) -> pa.Schema | None:
        """Refuse: a strict read needs a schema."""
        raise ValueError(f"format 'json' needs .schema(...) and infers nothing; {INSTEAD}")

    def check_read(self, schema: pa.Schema) -> None:
        """Refuse types that Arrow's reader lacks, or reads otherwise than Spark: dates, times, decimals, maps."""
        for field in schema:
            if not _is_known(field.type):
                raise ValueError(
                    f"column {field.name!r} is of type {field.type}, and format 'json' has only truths, whole numbers, "
                    f"floats, strings, and structs and lists of them; {INSTEAD}"
                )

    def check_write(self, schema: pa.Schema) -> None:
        """Refuse to write: Spark writes JSON."""
        raise ValueError(
            "rows are written as JSON by Spark, and as text to the segment: rollingfs.spark.to_json(rows).write"
            ".format('rolling'), without option format; nothing was written"
        )

    def rows(self, piece: Block, one: Range, schema: pa.Schema) -> Iterator[Located]:
        """Yield the rows of a block; blank lines give no row.

        Raises
        ------
        ValueError
            Arrow refuses a line; the message has the details.
        """
        data = bytes(piece.lines())
        data = data if data.endswith(FEED) else data + FEED
        try:
            batch = _parsed(data, schema)
        except pa.ArrowInvalid as error:
            raise _refused(piece, data, schema, one, error) from error
        if batch.num_rows:
            yield batch, lambda: _filled_starts(piece, data)


def _is_known(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return all(_is_known(field.type) for field in kind)
    return _is_known(kind.value_type) if pt.is_list(kind) else any(test(kind) for test in _KNOWN)


def _parsed(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of whole lines.

    Raises
    ------
    pyarrow.ArrowInvalid
        A line is not a single object, not UTF-8, or has a value of another type than its column.
    """
    if not data.isascii():
        try:
            str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid("it is not UTF-8") from error
    texts = to_lines(memoryview(data))
    # a line break after `}` and before `{` is never within a value; and Arrow crashes the process at some lines of null
    count = len(texts)
    if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
        if not pc.all(pc.match_substring_regex(texts, _OBJECT)).as_py():
            raise pa.ArrowInvalid("it is not one object in one line")
        count = pc.sum(pc.match_substring_regex(texts, _FILLED)).as_py()
        if not count:
            return pa.RecordBatch.from_pylist([], schema=schema)
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    table = pj.read_json(
        pa.BufferReader(pa.py_buffer(data)),
        pj.ReadOptions(use_threads=False, block_size=len(data)),
        pj.ParseOptions(explicit_schema=nullable, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != count:
        raise pa.ArrowInvalid("a line has several values, or a value has several lines")
    [batch] = table.combine_chunks().to_batches()
    return batch


def _filled_starts(piece: Block, data: bytes) -> Sequence[int]:
    filled = pc.match_substring_regex(to_lines(memoryview(data)), _FILLED).to_pylist()
    return list(compress(piece.starts(), filled))


def _refused(piece: Block, data: bytes, schema: pa.Schema, one: Range, error: Exception) -> ValueError:
    """Return the error for the first line that Arrow refuses."""
    texts = data.split(FEED)[:-1]

    def is_refused(count: int) -> bool:
        try:
            _parsed(b"".join(text + FEED for text in texts[:count]), schema)
        except pa.ArrowInvalid:
            return True
        return False

    nth = bisect_left(range(len(texts)), True, lo=1, key=is_refused) - 1
    where = "a compressed line" if piece.position is None else f"the line at offset {piece.starts()[nth]}"
    shown = texts[nth][:SHOWN_BYTES_MAX].decode(errors="replace")
    reason = str(error).partition(" in row ")[0]
    return ValueError(
        f"{one.extent.path}: {where} is refused ({reason}), and format 'json' is strict: {shown!r}. {INSTEAD}"
    )


FORMATS = {TEXT: Text(), JSON: Json()}
