"""Thrift's compact protocol, in which the footers of Parquet files are written. Pure."""

from __future__ import annotations

from typing import Any

from rollingfs.errors import RollingError

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

Fields = dict[int, tuple[int, Any]]
"""A struct: field number to type and value."""


VARINT_BITS = 64


class MalformedFooterError(RollingError, ValueError):
    """A file has no Parquet footer that can be read, or its footer does not fit."""


class Decoder:
    """Reads Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Fields:
        """Return a struct.

        Raises
        ------
        MalformedFooterError
            The bytes are not a struct.
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
        raise MalformedFooterError(f"the footer has a value of the unknown type {kind}")

    def _element(self, kind: int) -> Any:
        # in a list, a boolean has a byte of its own
        return self._take(1) if kind in (TRUE, FALSE) else self._value(kind)

    def _byte(self) -> int:
        try:
            byte = self._data[self._at]
        except IndexError:
            raise MalformedFooterError("the footer is cut off") from None
        self._at += 1
        return byte

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise MalformedFooterError("the footer is cut off")
        self._at += size
        return data

    def _varint(self) -> int:
        value = byte = self._byte()
        shift = 0
        while byte >= 0x80:
            value -= 0x80 << shift
            shift += 7
            byte = self._byte()
            value |= byte << shift
            if shift > VARINT_BITS:  # a longer number would take time that grows with its square
                raise MalformedFooterError("the footer has a number of more than 64 bits")
        return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


class Encoder:
    """Writes Thrift's compact protocol."""

    def struct(self, fields: Fields) -> bytes:
        """Return a struct, its fields by number."""
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
