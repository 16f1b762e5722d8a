"""Parts of Arrow's flatbuffers, read without Arrow: kinds and sizes of messages, units of durations. Pure."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterator

from rollingfs.runtime.values import value_class

_PREFIX_BYTES = 8
"""Before a message: a mark of 4 bytes, and its size."""
_OFFSET_BYTES = 4
_MESSAGE_HEADER = 2
_SCHEMA_FIELDS = 1
_KIND, _TYPE, _CHILDREN = 2, 3, 5
"""Fields of a field: the number of its type, the type, and the fields inside."""
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
    data = b64decode(schema)[_PREFIX_BYTES:]
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

    return [unit for field in message.table(_MESSAGE_HEADER).tables(_SCHEMA_FIELDS) for unit in leaves(field)]
