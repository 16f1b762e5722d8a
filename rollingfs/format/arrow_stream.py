"""Places of the messages of Arrow IPC streams. Pure.

A stream is a schema, record batches and dictionaries, and an end mark, which may be missing. A segment may hold several
streams. Their metadata are flatbuffers, which are read here without Arrow.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterable, Iterator

from rollingfs.errors import RollingError
from rollingfs.runtime.values import value_class

SCHEMA, DICTIONARY = 1, 2
END = 0
"""Kinds of messages. The end mark is no message, but is taken for one."""
CONTINUATION, PREFIX_BYTES = b"\xff\xff\xff\xff", 8
"""Each message begins with this mark, and the size of its metadata."""
END_MARK = CONTINUATION + bytes(4)
_OFFSET_BYTES = 4
_HEADER, _BODY_BYTES = 2, 3
"""Fields of a message."""
_ENDIANNESS, _FIELDS = 0, 1
"""Fields of a schema."""
_NAME, _KIND, _TYPE, _DICTIONARY, _CHILDREN, _METADATA = 0, 2, 3, 4, 5, 6
"""Fields of a field: its name, the number of its type, the type, its dictionary, the fields inside, and its pairs."""
_DURATION = 18
_UNITS = ("s", "ms", "us", "ns")
_MILLISECONDS = 1
"""The unit that is not written."""


@value_class
class Table:
    """A table of a flatbuffer, at its place in some bytes."""

    data: bytes | memoryview
    at: int

    @classmethod
    def root(cls, data: bytes | memoryview) -> Table:
        """Return the table of a whole flatbuffer."""
        return cls(data, 0)._at(0)

    def number(self, nth: int, form: str, default: int = 0) -> int:
        """Return the number in a field, in a form of `struct`."""
        place = self._place(nth)
        return int(struct.unpack_from(form, self.data, place)[0]) if place else default

    def has(self, nth: int) -> bool:
        """Return whether a field is there."""
        return bool(self._place(nth))

    def table(self, nth: int) -> Table:
        """Return the table in a field that is there."""
        return self._at(self._place(nth))

    def tables(self, nth: int) -> list[Table]:
        """Return the tables in a field, if it is there."""
        if not (place := self._place(nth)):
            return []
        first = self._at(place).at + 4
        return [self._at(first + 4 * one) for one in range(struct.unpack_from("<I", self.data, first - 4)[0])]

    def text(self, nth: int) -> bytes:
        """Return the bytes of the string in a field, if it is there."""
        if not (place := self._place(nth)):
            return b""
        first = self._at(place).at + 4
        return bytes(self.data[first : first + struct.unpack_from("<I", self.data, first - 4)[0]])

    def _at(self, place: int) -> Table:
        return Table(self.data, place + struct.unpack_from("<I", self.data, place)[0])

    def _place(self, nth: int) -> int:
        fields = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        [size] = struct.unpack_from("<H", self.data, fields)
        offset = struct.unpack_from("<H", self.data, fields + 4 + 2 * nth)[0] if 4 + 2 * nth < size else 0
        return self.at + offset if offset else 0


def duration_units(schema: bytes) -> list[str | None]:
    """Yield the units of the durations in the Arrow schema of a Parquet file, for each leaf of its columns; else None.

    Raises
    ------
    ValueError, IndexError, struct.error
        The schema is damaged.
    """
    data = b64decode(schema)[PREFIX_BYTES:]
    message = Table.root(data)
    left = len(data) // _OFFSET_BYTES

    def leaves(field: Table) -> Iterator[str | None]:
        nonlocal left
        left -= 1
        if left < 0:  # each field has an offset of its own; fields that share some could be 2^1000
            raise ValueError("it has more fields than room for them")
        children = field.tables(_CHILDREN)
        for child in children:
            yield from leaves(child)
        if not children:
            is_duration = field.number(_KIND, "<B") == _DURATION
            yield _UNITS[field.table(_TYPE).number(0, "<h", _MILLISECONDS)] if is_duration else None

    return [unit for field in message.table(_HEADER).tables(_FIELDS) for unit in leaves(field)]


def column_metadata(schema: bytes) -> dict[str, dict[bytes, bytes]]:
    """Return the metadata of each column in the Arrow schema of a Parquet file, by keys.

    Raises
    ------
    ValueError, IndexError, struct.error
        The schema is damaged.
    """
    data = b64decode(schema)[PREFIX_BYTES:]
    found: dict[str, dict[bytes, bytes]] = {}
    left = len(data)
    for field in Table.root(data).table(_HEADER).tables(_FIELDS):
        pairs = found[field.text(_NAME).decode()] = {}
        for pair in field.tables(_METADATA):
            key, pairs[key] = pair.text(0), pair.text(1)
            if (
                left := left - len(key) - len(pairs[key]) - _OFFSET_BYTES
            ) < 0:  # each pair has bytes of its own; fields that share some could be 2^30
                raise ValueError("it has more metadata than room for them")
    return found


class MalformedStreamError(RollingError, ValueError):
    """The bytes are no Arrow IPC stream, or of another schema; the message has the details."""


Range = tuple[int, int]
"""Start and end, in segment offsets."""


@value_class
class Message:
    """A whole message."""

    kind: int
    start: int
    end: int


Layout = tuple[tuple[Range, ...], tuple[Range, ...]]
"""Places of the streams of a segment: of schemas, and of runs of record batches and dictionaries."""


def parse(metadata: bytes | memoryview) -> tuple[int, int]:
    """Return the kind of a message and the length of its body, by its flatbuffer."""
    message = Table.root(metadata)
    return message.number(1, "<B"), message.number(_BODY_BYTES, "<q")


def messages_in(block: bytes, start: int, end: int) -> tuple[list[Message], int]:
    """Return the messages whose metadata is in a block, and the bytes that the next block must have.

    Parameters
    ----------
    start
        The offset of the block, at which a message begins.
    end
        The end of all bytes.

    Raises
    ------
    MalformedStreamError
        No message begins there, or a message is not whole.
    """
    found: list[Message] = []
    at = 0
    while at < len(block):
        place, prefix = start + at, block[at : at + PREFIX_BYTES]
        if place + PREFIX_BYTES > end or not CONTINUATION.startswith(prefix[:4]):
            raise MalformedStreamError(f"no Arrow message begins at offset {place}")
        if len(prefix) < PREFIX_BYTES:
            return found, PREFIX_BYTES
        [size] = struct.unpack("<i", prefix[4:])
        metadata = block[at + PREFIX_BYTES : at + PREFIX_BYTES + size] if size > 0 else b""
        if len(metadata) < size and place + PREFIX_BYTES + size <= end:
            return found, PREFIX_BYTES + size
        try:
            kind, body_bytes = parse(metadata) if size else (END, 0)
        except (struct.error, IndexError) as error:
            raise MalformedStreamError(f"the Arrow message at offset {place} is damaged") from error
        message = Message(kind, place, place + PREFIX_BYTES + size + body_bytes)
        if size < 0 or body_bytes < 0 or message.end > end:
            raise MalformedStreamError(f"the Arrow message at offset {place} is not whole")
        found.append(message)
        at = message.end - start
    return found, PREFIX_BYTES


def layout(messages: Iterable[Message]) -> Layout:
    """Return the places of the streams that messages make.

    Raises
    ------
    MalformedStreamError
        A stream begins without a schema.
    """
    schemas: list[Range] = []
    rows: list[Range] = []
    last = END
    for message in messages:
        if message.kind == SCHEMA:
            schemas.append((message.start, message.end))
        elif message.kind != END and last == END:
            raise MalformedStreamError(f"the Arrow stream at offset {message.start} begins without a schema")
        elif message.kind != END:
            rows.append((message.start, message.end))
        last = message.kind
    return (*schemas,), joined(rows)


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return ranges, of which neighbours are one."""
    found: list[Range] = []
    for start, end in ranges:
        start = found.pop()[0] if found and found[-1][1] == start else start
        found.append((start, end))
    return (*found,)


def is_same_schema(first: bytes, other: bytes) -> bool:
    """Return whether rows of two streams can be rows of one, by the messages of their schemas.

    Arrow decides if the bytes differ, as where two programs wrote them; without pyarrow they count as different.
    """
    if first == other:
        return True
    try:
        import pyarrow as pa
    except ImportError:
        return False
    known, found = (pa.ipc.read_schema(pa.py_buffer(message)) for message in (first, other))
    return bool(known.equals(found)) and dictionary_ids(first) == dictionary_ids(other)


def dictionary_ids(message: bytes) -> list[int]:
    """Return the ids by which dictionaries name their columns, after the order of bytes; of a schema's message."""
    schema = Table.root(message[PREFIX_BYTES:]).table(_HEADER)

    def ids(fields: list[Table]) -> Iterator[int]:
        for field in fields:
            if field.has(_DICTIONARY):
                yield field.table(_DICTIONARY).number(0, "<q")
            yield from ids(field.tables(_CHILDREN))

    return [schema.number(_ENDIANNESS, "<h"), *ids(schema.tables(_FIELDS))]
