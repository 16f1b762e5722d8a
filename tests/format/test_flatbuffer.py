"""Flatbuffers from strangers."""

import base64
import struct

import pytest

from rollingfs.format.arrow_stream import column_metadata, duration_units


def schema_of_shared_fields(depth: int) -> bytes:
    """A schema in which each field has the same field inside twice: 28 bytes a level, twice as many leaves."""
    data = bytearray(4)
    shapes = {}
    for kind, nth in (("message", 2), ("schema", 1), ("field", 5)):
        shapes[kind] = len(data)
        data += struct.pack("<HH", 4 + 2 * (nth + 1), 8) + bytes(2 * nth) + struct.pack("<H", 4)

    def table(kind: str) -> None:
        data.extend(struct.pack("<iI", len(data) - shapes[kind], 4))

    struct.pack_into("<I", data, 0, len(data))
    table("message")
    table("schema")
    data.extend(struct.pack("<II", 1, 4))
    for _ in range(depth):
        table("field")
        data.extend(struct.pack("<III", 2, 8, 4))
    data.extend(struct.pack("<iHH", -4, 4, 4))
    return base64.b64encode(bytes(8) + data)


def test_fields_with_shared_insides_are_refused_before_counting():
    assert duration_units(schema_of_shared_fields(2)) == [None] * 4
    with pytest.raises(ValueError, match="more fields than room"):
        duration_units(schema_of_shared_fields(60))


def schema_of_shared_pairs(fields: int, pairs: int) -> bytes:
    """A schema whose fields share their pairs of key and value."""
    data = bytearray(4)
    shapes = {}
    for kind, nth in (("message", 2), ("schema", 1), ("field", 6), ("pair", 0)):
        shapes[kind] = len(data)
        data += struct.pack("<HH", 4 + 2 * (nth + 1), 8) + bytes(2 * nth) + struct.pack("<H", 4)
    struct.pack_into("<I", data, 0, len(data))
    for kind in ("message", "schema"):
        data += struct.pack("<iI", len(data) - shapes[kind], 4)
    first = len(data) + 4 + 4 * fields
    data += struct.pack("<I", fields)
    for nth in range(fields):
        data += struct.pack("<I", first + 8 * nth - len(data))
    for _ in range(fields):
        data += struct.pack("<iI", len(data) - shapes["field"], first + 8 * fields - len(data) - 4)
    data += struct.pack("<I", pairs)
    end = len(data) + 4 * pairs
    for _ in range(pairs):
        data += struct.pack("<I", end - len(data))
    data += struct.pack("<iIIc", len(data) - shapes["pair"], 4, 1, b"k")
    return base64.b64encode(bytes(8) + data)


def test_fields_that_share_their_metadata_are_refused():
    assert column_metadata(schema_of_shared_pairs(1, 1)) == {"": {b"k": b""}}
    with pytest.raises(ValueError, match="more metadata than room"):
        column_metadata(schema_of_shared_pairs(1000, 1000))
