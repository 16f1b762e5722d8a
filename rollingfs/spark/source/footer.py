"""The footer of a Parquet file: taken apart and put together again, so that files can be joined or grow. Pure.

A Parquet footer names its row groups by their offsets in the file, and nothing else does. So a file may be followed
by more row groups and a new footer that names the old ones and the new: to readers it is one file, and the old
footers in between are bytes that nobody names. The footer is Thrift in its compact protocol; of it, only numbers of
offsets are changed, whatever else a writer put there is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollingfs.errors import RollingError

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""Behind the footer: its length, 4 bytes little endian, and the magic."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4
_COLUMNS, _ROW_GROUP_OFFSET, _ORDINAL = 1, 5, 7
_META, _COLUMN_OFFSETS = 3, (2, 4, 6)
"""Of a column chunk: its metadata; and its own offset, those of its offset index and its column index."""
_META_OFFSETS = (9, 10, 11, 14)
"""Of the metadata: offsets of data page, index page, dictionary page and bloom filter."""
ORDINAL_MAX = 32767

Fields = dict[int, tuple[int, Any]]
"""A struct: field number to type and value."""


class MalformedFooterError(RollingError, ValueError):
    """What should be a Parquet file has no footer that can be read."""


@dataclass(frozen=True, slots=True)
class Part:
    """A whole Parquet file, and where it is put."""

    footer: bytes
    shift: int
    """Where its first byte lies in the joined file."""


def body_size(tail: bytes, size: int) -> tuple[int, int]:
    """Where the footer of a file of that size begins and ends, of its last `TAIL_BYTES`.

    Raises
    ------
    MalformedFooterError
        It is no Parquet file.
    """
    length = int.from_bytes(tail[:4], "little")
    if len(tail) != TAIL_BYTES or tail[4:] != MAGIC or length > size - TAIL_BYTES - len(MAGIC):
        raise MalformedFooterError("it does not end as a Parquet file does")
    return size - TAIL_BYTES - length, size - TAIL_BYTES


def join(parts: Sequence[Part]) -> bytes:
    """The footer (without its length and the magic) of a file that holds all parts.

    Raises
    ------
    MalformedFooterError
        Their columns differ.
    """
    tables = [(Decoder(part.footer).struct(), part.shift) for part in parts]
    first = tables[0][0]
    groups: list[Any] = []
    for table, shift in tables:
        if table[_SCHEMA] != first[_SCHEMA]:
            raise MalformedFooterError("its columns are not those of what is there already")
        groups += [_moved(group, shift) for group in table[_ROW_GROUPS][1][1]]
    for nth, group in enumerate(groups):
        if nth <= ORDINAL_MAX and _ORDINAL in group:
            group[_ORDINAL] = (I16, nth)
        else:
            group.pop(_ORDINAL, None)
    count = sum(table[_NUM_ROWS][1] for table, _ in tables)
    whole = {**first, _NUM_ROWS: (I64, count), _ROW_GROUPS: (LIST, (STRUCT, groups))}
    return Encoder().struct(whole)


def _moved(group: Fields, shift: int) -> Fields:
    moved = dict(group)
    _move(moved, _ROW_GROUP_OFFSET, shift)
    moved[_COLUMNS] = (LIST, (STRUCT, [_moved_column(column, shift) for column in group[_COLUMNS][1][1]]))
    return moved


def _moved_column(column: Fields, shift: int) -> Fields:
    moved = dict(column)
    for field in _COLUMN_OFFSETS:
        _move(moved, field, shift)
    if _META in moved:
        meta = dict(moved[_META][1])
        for field in _META_OFFSETS:
            _move(meta, field, shift)
        moved[_META] = (STRUCT, meta)
    return moved


def _move(fields: Fields, field: int, shift: int) -> None:
    if field in fields and fields[field][1]:  # 0 says that there is none
        fields[field] = (I64, fields[field][1] + shift)


class Decoder:
    """Reads Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Fields:
        """A struct.

        Raises
        ------
        MalformedFooterError
            The bytes are no struct.
        """
        fields: Fields = {}
        number = 0
        while (head := self._byte()) != 0:
            kind, delta = head & 0x0F, head >> 4
            number = number + delta if delta else self._zigzag()
            fields[number] = (kind, self._value(kind))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == BINARY:
            return self._take(self._varint())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            head = self._byte()
            size, inner = head >> 4, head & 0x0F
            size = self._varint() if size == 15 else size
            return inner, [self._element(inner) for _ in range(size)]
        if kind == MAP:
            size = self._varint()
            kinds = self._byte() if size else 0
            pairs = [(self._element(kinds >> 4), self._element(kinds & 0x0F)) for _ in range(size)]
            return kinds, pairs
        if kind in (BYTE, DOUBLE, UUID):
            return self._take({BYTE: 1, DOUBLE: 8, UUID: 16}[kind])
        raise MalformedFooterError(f"its footer has a value of type {kind}")

    def _element(self, kind: int) -> Any:
        # in a list, a truth has a byte of its own
        return self._take(1) if kind in (TRUE, FALSE) else self._value(kind)

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise MalformedFooterError("its footer is cut off")
        self._at += size
        return data

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


class Encoder:
    """Writes Thrift's compact protocol."""

    def struct(self, fields: Fields) -> bytes:
        """A struct, its fields by number."""
        out = bytearray()
        last = 0
        for number in sorted(fields):
            kind, value = fields[number]
            if kind in (TRUE, FALSE):
                kind = TRUE if value else FALSE
            delta = number - last
            out += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + _zigzag(number)
            out += self._value(kind, value)
            last = number
        return bytes(out) + b"\0"

    def _value(self, kind: int, value: Any) -> bytes:
        if kind in (TRUE, FALSE):
            return b""
        if kind in (I16, I32, I64):
            return _zigzag(value)
        if kind == BINARY:
            return _varint(len(value)) + bytes(value)
        if kind == STRUCT:
            return self.struct(value)
        if kind in (LIST, SET):
            inner, items = value
            head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
            return head + b"".join([self._element(inner, item) for item in items])
        if kind == MAP:
            kinds, pairs = value
            if not pairs:
                return b"\0"
            inner = [self._element(kinds >> 4, k) + self._element(kinds & 0x0F, v) for k, v in pairs]
            return _varint(len(pairs)) + bytes([kinds]) + b"".join(inner)
        return bytes(value)

    def _element(self, kind: int, value: Any) -> bytes:
        return bytes(value) if kind in (TRUE, FALSE) else self._value(kind, value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
