"""What formats have in common whose segments are one record each, or one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from rollingfs.spark.source.formats.contract import Located
from rollingfs.spark.source.formats.lines import Read
from rollingfs.spark.source.partitions import Extent, Range


class Whole:
    """A format that cannot be followed within a segment."""

    has_lines: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    has_offsets: ClassVar[bool] = False

    def torn(self, read: Read, extent: Extent, end: int) -> ValueError | None:
        """None: all of it is read."""
        return None

    def end_behind(self, read: Read, extent: Extent, upto: int, *, is_last: bool) -> int:
        """Not asked: no stream follows it, and no position lies within it."""
        raise NotImplementedError

    def rows(self, piece: Located, one: Range, schema: pa.Schema) -> Iterator[Located]:
        """The piece is rows already."""
        yield piece
