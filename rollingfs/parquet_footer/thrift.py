"""Thrift's compact protocol, in which the footers of Parquet files are written. Pure."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from rollingfs.errors import RollingError

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

Fields = dict[int, tuple[int, Any]]
"""A struct: field number to type and value."""


VARINT_BITS = 64
FOOTER_BYTES_MAX = 2**32
"""The length of a footer is written in 4 bytes."""
_BYTES = {BYTE: 1, DOUBLE: 8, UUID: 16}


class MalformedFooterError(RollingError, ValueError):
    """A file has no Parquet footer that can be read, or its footer does not fit."""


def decode(data: bytes) -> Fields:
    """Return the struct that bytes begin with.

    Raises
    ------
    MalformedFooterError
        The bytes are not a struct.
    """
    return _read_struct(BytesIO(data))


def _read_struct(data: BytesIO) -> Fields:
    fields: Fields = {}
    number = 0
    while (head := _take(data, 1)[0]) != 0:
        kind, delta = head & 0x0F, head >> 4
        number = number + delta if delta else _read_zigzag(data)
        fields[number] = (kind, _read(data, kind))
    return fields


def _read(data: BytesIO, kind: int) -> Any:
    if kind in (TRUE, FALSE):
        return kind == TRUE
    if kind in (I16, I32, I64):
        return _read_zigzag(data)
    if kind == BINARY:
        return _take(data, _read_varint(data))
    if kind == STRUCT:
        return _read_struct(data)
    if kind in (LIST, SET):
        head = _take(data, 1)[0]
        size, inner = head >> 4, head & 0x0F
        size = _read_varint(data) if size == 15 else size
        return inner, [_read_element(data, inner) for _ in range(size)]
    if kind == MAP:
        size = _read_varint(data)
        kinds = _take(data, 1)[0] if size else 0
        return kinds, [(_read_element(data, kinds >> 4), _read_element(data, kinds & 0x0F)) for _ in range(size)]
    if kind in _BYTES:
        return _take(data, _BYTES[kind])
    raise MalformedFooterError(f"the footer has a value of the unknown type {kind}")


def _read_element(data: BytesIO, kind: int) -> Any:
    # in a list, a boolean has a byte of its own
    return _take(data, 1) if kind in (TRUE, FALSE) else _read(data, kind)


def _take(data: BytesIO, size: int) -> bytes:
    if len(found := data.read(min(size, FOOTER_BYTES_MAX))) != size:
        raise MalformedFooterError("the footer is cut off")
    return found


def _read_varint(data: BytesIO) -> int:
    value = byte = _take(data, 1)[0]
    shift = 0
    while byte >= 0x80:
        value -= 0x80 << shift
        shift += 7
        byte = _take(data, 1)[0]
        value |= byte << shift
        if shift > VARINT_BITS:  # a longer number would take time that grows with its square
            raise MalformedFooterError("the footer has a number of more than 64 bits")
    return value


def _read_zigzag(data: BytesIO) -> int:
    value = _read_varint(data)
    return (value >> 1) ^ -(value & 1)


def encode(fields: Fields) -> bytes:
    """Return the bytes of a struct, its fields by number."""
    out = bytearray()
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        delta = number - last
        out += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + _zigzag(number)
        out += b"" if kind in (TRUE, FALSE) else _encoded(kind, value)
        last = number
    return bytes(out) + b"\0"


def _encoded(kind: int, value: Any) -> bytes:
    if kind in (I16, I32, I64):
        return _zigzag(value)
    if kind == BINARY:
        return _varint(len(value)) + bytes(value)
    if kind == STRUCT:
        return encode(value)
    if kind in (LIST, SET):
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
        return head + b"".join([_encoded(inner, item) for item in items])
    if kind == MAP:
        kinds, pairs = value
        inner = [_encoded(kinds >> 4, key) + _encoded(kinds & 0x0F, one) for key, one in pairs]
        return _varint(len(pairs)) + bytes([kinds] if pairs else []) + b"".join(inner)
    return bytes(value)  # also a boolean in a list


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
