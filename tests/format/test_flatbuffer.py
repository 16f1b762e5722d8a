"""Flatbuffers from strangers."""

import base64
import struct

import pytest

from rollingfs.format.arrow_stream import duration_units


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
