"""The rows of a folder: facts of its headers, as the text of the segment `$listing`. Pure.

A row is bound to the token of its header. It replaces the header, if a store shows this very token.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import astuple, fields
from itertools import accumulate

from rollingfs.format.header import OFFSET_MAX, Header
from rollingfs.format.tokens import read_json
from rollingfs.runtime.interpreter import collected_later
from rollingfs.runtime.values import value_class

VERSION = 1
MARK = ("rollingfs.listing", "1")
"""The attribute, with its value, by which `$listing` is not a user's segment."""
OPEN, SEALED, DELETED = "open", "sealed", "deleted"
VERSION_KEY = "rollingfs-listing"
ROWS_MAX = 200_000
TEXT_BYTES_MAX = 64 * 1024 * 1024
PACKED_MAX = 64
"""The most bytes of text for each compressed byte. A row has 20 bytes that cannot be compressed."""
VALUES_MAX = 16 * ROWS_MAX
"""The most values in a text: a parser takes far more memory for a small value than the text has bytes."""
_LEVEL = 1  # of zlib: tokens and uuids are random, so more effort gains little


@value_class
class Row:
    """Facts of a header that a listing needs."""

    name: str
    """The segment's name within the folder."""
    token: str
    """The token of the header with these facts."""
    segment: str
    """The incarnation."""
    version: int
    state: str
    """`OPEN`, `SEALED` or `DELETED`."""
    start: int
    length: int
    chunk_count: int
    created_ms: int
    modified_ms: int
    others: tuple[str, ...] = ()
    """Further incarnations by which the segment is known, as `Header.incarnations` has them."""

    @property
    def live(self) -> bool:
        """Return whether the segment exists."""
        return self.state != DELETED

    @property
    def sealed(self) -> bool:
        return self.state == SEALED

    @property
    def size(self) -> int:
        return self.length - self.start

    @property
    def incarnations(self) -> tuple[str, ...]:
        return (self.segment, *self.others)


_TYPES = tuple({"str": str, "int": int}[str(field.type)] for field in fields(Row)[:-1])
_STATES = (OPEN, SEALED, DELETED)
OTHERS_MAX = 2
"""Before renames, and the plain file."""
_SHAPES = tuple((*_TYPES, *[str] * others) for others in range(OTHERS_MAX + 1))


def row_of(name: str, header: Header, token: str) -> Row | None:
    """Return the row of a header; None where a listing must look at the header itself."""
    if header.cut_pages or header.merge is not None or (header.deleted and header.adopted is not None):
        return None
    return Row(
        name,
        token,
        header.segment,
        header.version,
        DELETED if header.deleted else SEALED if header.sealed else OPEN,
        header.start,
        header.length,
        header.chunk_count,
        header.created_ms,
        header.modified_ms,
        header.incarnations[1:],
    )


def format_rows(rows: Iterable[Row]) -> bytes:
    """Return the content of `$listing`: at most `ROWS_MAX` rows, the first by name."""
    listed = [_dump([*astuple(row)[:-1], *row.others]) for row in sorted(rows, key=lambda row: row.name)[:ROWS_MAX]]
    sizes = accumulate(len(row) + 1 for row in listed)
    listed = [row for row, size in zip(listed, sizes, strict=True) if size <= TEXT_BYTES_MAX // 2]
    text = f'{{"{VERSION_KEY}":{VERSION},"rows":[{",".join(listed)}]}}'
    return zlib.compress(text.encode(), _LEVEL)


_dump = json.JSONEncoder(separators=(",", ":")).encode


@collected_later()
def parse_rows(data: bytes) -> dict[str, Row]:
    """Return the rows by name.

    Raises
    ------
    ValueError
        This is not a text of rows, or a text of another version; the message is the rest of a sentence.
    """
    unpacked = zlib.decompressobj()
    try:
        text = unpacked.decompress(data, min(TEXT_BYTES_MAX, PACKED_MAX * (len(data) + 1)))
    except zlib.error as error:
        raise ValueError("it is not a list of rows: it is not compressed as rows are") from error
    if not unpacked.eof or unpacked.unused_data:
        raise ValueError("it is cut off, too long, or followed by other bytes")
    if text.count(b",") > VALUES_MAX:
        raise ValueError("it has more values than rows may have")
    try:
        found = read_json(text)
    except ValueError as error:
        raise ValueError(f"it is not a list of rows: {error}") from error
    if not isinstance(found, dict) or found.get(VERSION_KEY) != VERSION or not isinstance(found.get("rows"), list):
        raise ValueError("it is not a list of rows that this release reads")
    rows = [_row(values) for values in found["rows"]]
    return {row.name: row for row in rows}


def _row(values: object) -> Row:
    if not isinstance(values, list) or tuple(map(type, values)) not in _SHAPES:
        raise ValueError(f"a row is malformed: {str(values)[:80]}")
    row = Row(*(*values[: len(_TYPES)], tuple(values[len(_TYPES) :])))
    numbers = (row.version, row.start, row.length, row.chunk_count, row.created_ms, row.modified_ms)
    if row.state not in _STATES or row.start > row.length or min(numbers) < 0 or max(numbers) > OFFSET_MAX:
        raise ValueError(f"a row is malformed: {str(values)[:80]}")
    return row
