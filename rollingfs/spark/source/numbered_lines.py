"""The lines of a block by their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from rollingfs.spark.source.lines import FEED, Lines
from rollingfs.spark.source.text import to_lines

EMPTY = b"{}"
"""An object without fields: Arrow reads a row of nulls."""


class NumberedLines:
    """Whole lines, each with its line feed; where they begin is found when it is first asked for.

    Parameters
    ----------
    data
        The lines; at least one.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self.texts)

    @cached_property
    def texts(self) -> pa.Array:
        """The lines without their ends."""
        return to_lines(Lines(self.data, 0, len(self.data)))

    def matching(self, pattern: str) -> list[int]:
        """The numbers of the lines that have a place which matches a pattern of RE2, of single bytes."""
        found: list[int] = pc.indices_nonzero(
            pc.match_substring_regex(self.texts.view(pa.binary()), pattern)
        ).to_pylist()
        return found

    def line(self, number: int) -> bytes:
        """One line without its end."""
        return self.data[self._start(number) : self._start(number + 1) - 1]

    def part(self, first: int, last: int) -> memoryview:
        """The lines from a number to another, with their ends."""
        view = memoryview(self.data)
        return view if (first, last) == (0, self.count) else view[self._start(first) : self._start(last)]

    def blanked(self, numbers: Iterable[int]) -> bytes:
        """All lines; those of some numbers are objects without fields."""
        data = bytearray(self.data)
        short = []
        for number in numbers:
            start, end = self._start(number), self._start(number + 1) - 1
            if end - start < len(EMPTY):
                short.append(start)
            else:
                data[start:end] = EMPTY.ljust(end - start)
        parts: list[bytes | bytearray] = []
        at = 0
        for start in sorted(short):
            parts += [data[at:start], EMPTY]
            at = data.index(FEED, start)
        return b"".join([*parts, data[at:]])

    @cached_property
    def _offsets(self) -> memoryview:
        """Where each line begins, if the ends of the lines do not count."""
        texts = self.texts
        return memoryview(texts.buffers()[1]).cast("i")[texts.offset :]

    def _start(self, number: int) -> int:
        return self._offsets[number] - self._offsets[0] + number
