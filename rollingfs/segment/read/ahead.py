"""Bytes that are fetched ahead of the reader of a file: the next bytes, or column chunks."""

from __future__ import annotations

from collections.abc import Hashable

from rollingfs.segment.read.column_ahead import ColumnAhead
from rollingfs.segment.read.prefetch import Bounds, Prefetch


class Ahead:
    """The bytes that are fetched ahead of the reader of a file, in a row or by columns.

    Parameters
    ----------
    footers, key
        Parameters of `ColumnAhead`.
    """

    def __init__(self, bounds: Bounds, footers: dict[Hashable, bytes], key: Hashable | None) -> None:
        self._row = Prefetch(bounds)
        self._columns = ColumnAhead(bounds, footers, key)
        self._is_by_columns = False
        """Whether the same columns of two row groups were read. The bytes after them are then not fetched ahead."""

    def take(self, start: int, end: int) -> tuple[int, bytes] | None:
        """Return bytes that were fetched ahead, with their begin, or None.

        The byte at `start` is always among them. An error of what was fetched ahead is older than this read, and the
        store may have recovered since: so the caller fetches the bytes itself.
        """
        try:
            return self._taken(start, end)
        except OSError:
            return None

    def _taken(self, start: int, end: int) -> tuple[int, bytes] | None:
        row, columns = self._row, self._columns
        is_apart, is_here = start != row.row_end, row.has(start)
        if not self._is_by_columns and (is_apart or not is_here) and columns.knows(start, end):
            self._is_by_columns = True
            row.close()
        if self._is_by_columns:
            chunk = columns.take(start, end)
            return None if chunk is None else (start, chunk)
        if is_here or not is_apart:
            columns.close()  # one of the two holds all the memory
        found = row.take(start, end)
        if found is None and row.is_idle:
            columns.take(start, end)  # none of its bytes are here: else they would be known
        else:
            columns.note(start, end)
        return found

    def read(self, start: int, data: bytes) -> None:
        """Note that the reader got bytes that were not fetched ahead."""
        self._row.read(start, start + len(data))
        self._columns.read(start, data)

    def close(self) -> None:
        """Give up all ranges."""
        self._row.close()
        self._columns.close()
