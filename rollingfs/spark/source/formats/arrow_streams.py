"""Arrow IPC streams in order, or an IPC file: places of their messages.

Each task appends a stream of its own. A stream that is larger than a partition is cut between its record batches; a
task that reads a part reads the schema of the stream first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import ClassVar

import pyarrow as pa

from rollingfs.format.arrow_stream import (
    CONTINUATION,
    DICTIONARY,
    END,
    PREFIX_BYTES,
    SCHEMA,
    MalformedStreamError,
    Message,
    parse,
)
from rollingfs.parquet.files import OutputBuffer, gathered
from rollingfs.spark.source.formats import ARROW, Format, Located
from rollingfs.spark.source.formats.lines import Read, ReadWindow
from rollingfs.spark.source.segments import Extent, Range, SegmentReader, extent_of

WINDOW_BYTES = 64 * 1024
"""Size of a read in the search for messages: small messages share it; of a large message only the beginning is read."""
BATCH_BYTES = 8 * 1024 * 1024
"""Size of the record batches into which rows are gathered before they are written."""

_FILE_HEAD = b"ARROW1\0\0"
_FILE_TAIL = b"ARROW1"
_FILE_TAIL_BYTES = 4 + len(_FILE_TAIL)


Stream = list[Message]
"""The messages of a stream that an extent holds, its schema first."""


def streams(read: Read, extent: Extent) -> Iterator[tuple[Stream, bool]]:
    """Yield the streams of an extent, in order, without a message at its end that is not whole.

    Each comes with a mark whether it is complete: its end mark, or another stream, follows.

    Raises
    ------
    MalformedStreamError
        The extent does not begin with a schema, or bytes in between are no message.
    """
    current: Stream = []
    for message in messages(read, extent):
        if message.kind == SCHEMA and current:
            yield current, True
            current = []
        if not current and message.kind != SCHEMA:
            raise _malformed(extent, message.start, "it does not begin with a schema; truncate only between streams")
        current.append(message)
        if message.kind == END:
            yield current, True
            current = []
    if current:
        yield current, False


def messages(read: Read, extent: Extent) -> Iterator[Message]:
    """Yield the messages of an extent, found by reading the beginning of each."""
    window = ReadWindow(read, extent.end, WINDOW_BYTES)
    position = extent.start
    is_file = window(position, position + len(_FILE_HEAD)) == _FILE_HEAD
    position += len(_FILE_HEAD) if is_file else 0
    while position + PREFIX_BYTES <= extent.end:
        prefix = window(position, position + PREFIX_BYTES)
        if prefix[:4] != CONTINUATION:
            raise _malformed(extent, position, "no message begins there")
        [size] = struct.unpack("<i", prefix[4:])
        if size == 0:
            yield Message(END, position, position + PREFIX_BYTES)
            position += PREFIX_BYTES
            if is_file and _is_footer(window, position, extent.end):
                return
            continue
        body = position + PREFIX_BYTES + size
        if size < 0 or body > extent.end:
            return
        kind, length = parse(window(position + PREFIX_BYTES, body))
        if body + length > extent.end:
            return
        yield Message(kind, position, body + length)
        position = body + length


def _is_footer(window: ReadWindow, position: int, end: int) -> bool:
    """Return whether the bytes left are the footer of an IPC file."""
    if end - position < _FILE_TAIL_BYTES:
        return False
    tail = window(end - _FILE_TAIL_BYTES, end)
    [size] = struct.unpack("<i", tail[:4])
    return bool(tail[4:] == _FILE_TAIL and position + size + _FILE_TAIL_BYTES == end)


def _malformed(extent: Extent, position: int, why: str) -> MalformedStreamError:
    return MalformedStreamError(f"{extent.path}: there is no Arrow IPC stream at offset {position}: {why}")


# -- cutting -----------------------------------------------------------------------------------------------------


def cut(read: Read, extent: Extent, size_max: int) -> Iterator[Range]:
    """Cut an extent into ranges of about `size_max` bytes: several whole streams, or part of a large one."""
    start = end = extent.start
    is_marked = True  # only behind an end mark does a reader go on with the next stream
    for stream, _ in streams(read, extent):
        first, last = stream[0], stream[-1]
        if end > start and (last.end - start > size_max or not is_marked):
            yield Range(extent, start, end)
            start = end
        is_large = last.end - first.start > size_max and len(stream) > 1
        if is_large and not any(found.kind == DICTIONARY for found in stream):
            yield from _cut(extent, stream, size_max)
            start = last.end
        elif end == start:
            start = first.start
        end, is_marked = last.end, last.kind == END
    if end > start:
        yield Range(extent, start, end)


def _cut(extent: Extent, stream: Stream, size_max: int) -> Iterator[Range]:
    schema, *batches = stream
    start = schema.end
    for message in batches:
        if message.end - start > size_max and message.start > start:
            yield Range(extent, start, message.start, (schema.start, schema.end))
            start = message.start
    yield Range(extent, start, stream[-1].end, (schema.start, schema.end))


# -- rows --------------------------------------------------------------------------------------------------------


def batches(read: Read, one: Range) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a range: of a part of a stream, or of whole streams."""
    source = pa.BufferReader(read(one.start, one.end))
    if one.head != (0, 0):
        schema = pa.ipc.read_schema(pa.py_buffer(read(*one.head)))
        for message in pa.ipc.MessageReader.open_stream(source):
            yield pa.ipc.read_record_batch(message, schema)
        return
    while source.tell() < source.size():
        if source.read_at(len(_FILE_HEAD), source.tell()) == _FILE_HEAD:
            source.seek(source.tell() + len(_FILE_HEAD))
        yield from pa.ipc.open_stream(source)


# -- the format --------------------------------------------------------------------------------------------------


class Arrow(Format):
    """The rows of record batches; the offset of each row is the offset of its batch."""

    grows: ClassVar[bool] = True

    def infer(self, opened: SegmentReader) -> pa.Schema | None:
        """Return the columns of the first stream."""
        for (first, *_), _ in streams(opened.read, extent_of(opened.view)):
            return pa.ipc.read_schema(pa.py_buffer(opened.read(first.start, first.end)))
        return None

    def cut(self, opened: SegmentReader, extent: Extent, size_max: int, codec: str | None) -> Iterable[Range]:
        """Yield whole streams, or parts of a large stream."""
        return cut(opened.read, extent, size_max)

    def torn(self, read: Read, extent: Extent, end: int) -> ValueError | None:
        """Return the error for a message that is cut off."""
        tail = bytes(read(max(end, extent.end - len(_FILE_TAIL)), extent.end))
        if tail in (b"", _FILE_TAIL):  # the footer of a file is no message
            return None
        return MalformedStreamError(f"{extent.path}: bytes {end} to {extent.end} are not a whole Arrow IPC message")

    def end_behind(self, read: Read, extent: Extent, upto: int, *, is_last: bool) -> int:
        """Return the end of the last complete stream up to an offset, as `Format.end_behind`.

        The footer of a file belongs to its stream.
        """
        found = extent.start
        for stream, is_ended in streams(read, extent):
            if not (is_ended or is_last) or (stream[-1].end > upto and found > extent.start):
                break
            found = stream[-1].end
        else:
            if found > extent.start and _is_footer(ReadWindow(read, extent.end, WINDOW_BYTES), found, extent.end):
                return extent.end
        return found

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, codec: str | None) -> Iterator[Located]:
        """Yield the record batches of a range."""
        extent = replace(one.extent, start=one.start, end=one.end)

        @cache
        def places() -> list[int]:
            found = messages(opened.read, extent)
            return [message.start for message in found if message.kind not in (SCHEMA, DICTIONARY, END)]

        def starts(nth: int, count: int) -> list[int]:
            return [places()[nth]] * count

        for nth, batch in enumerate(batches(opened.read, one)):
            yield batch, partial(starts, nth, batch.num_rows)

    def nothing(self, schema: pa.Schema) -> bytes:
        """Return a stream without batches."""
        sink = OutputBuffer()
        pa.ipc.new_stream(sink, schema).close()
        return sink.drain()

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        """Yield a stream; without rows, no bytes."""
        writer, sink = None, OutputBuffer()
        for group in gathered(batches, BATCH_BYTES):
            table = pa.Table.from_batches(group).combine_chunks()  # pyarrow 18 cannot join batches
            writer = writer or pa.ipc.new_stream(sink, table.schema)
            writer.write_table(table)
            yield sink.drain()
        if writer is not None:
            writer.close()
            yield sink.drain()


FORMATS = {ARROW: Arrow()}
