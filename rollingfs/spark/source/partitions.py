"""Partitions of tasks: byte ranges of segments, cut and gathered to about the same size. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollingfs.runtime.values import value_class

OPEN_BYTES = 256 * 1024
"""Cost of opening a segment, in bytes read. It lets thousands of small segments share a task."""
RANGES_MAX = 1000
"""Maximum number of ranges of a task."""


@value_class
class Extent:
    """Bytes of a segment to read, by segment offsets. A record begins at the first of them."""

    path: str
    """Path on the backend."""
    identity: str
    """Identity of the incarnation: another segment that gets the name has other offsets."""
    start: int
    end: int

    @property
    def size(self) -> int:
        """Return bytes."""
        return self.end - self.start


@value_class
class Range:
    """A part of an extent: the records whose first byte is in ``[start, end)``."""

    extent: Extent
    start: int
    end: int
    head: tuple[int, int] = (0, 0)
    """Bytes of the same segment that a task must read first: the schema of an Arrow stream."""

    @property
    def size(self) -> int:
        """Return bytes, without the head."""
        return self.end - self.start


def split(extent: Extent, size_max: int) -> Iterator[Range]:
    """Cut an extent into equal ranges of at most `size_max` bytes; an empty extent gives no range."""
    count = -(-extent.size // size_max)
    for nth in range(count):
        start = extent.start + extent.size * nth // count
        yield Range(extent, start, extent.start + extent.size * (nth + 1) // count)


def whole(extent: Extent) -> Iterator[Range]:
    """Yield an extent as a range, also if it is empty."""
    yield Range(extent, extent.start, extent.end)


def gather(ranges: Iterable[Range], size_max: int) -> list[tuple[Range, ...]]:
    """Put neighbours together while their bytes and the cost of opening them stay below `size_max`.

    They keep their order, so that rows come in the order of the segments' names and offsets.
    """
    groups: list[tuple[Range, ...]] = []
    group: list[Range] = []
    cost = 0
    for one in ranges:
        own = one.size + OPEN_BYTES
        if group and (cost + own > size_max + OPEN_BYTES or len(group) == RANGES_MAX):
            groups.append(tuple(group))
            group, cost = [], 0
        group.append(one)
        cost += own
    return [*groups, tuple(group)] if group else groups
