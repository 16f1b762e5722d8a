"""One segment, opened in a task: it must still be the one that the driver planned for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rollingfs.errors import SegmentTruncatedError
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.fs.read_file import ReadFile
from rollingfs.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import places
from rollingfs.spark.source.partitions import Extent

T = TypeVar("T")


class Opened:
    """The bytes of one snapshot of a segment, by segment offset."""

    def __init__(self, fs: RollingFileSystem, view: Snapshot) -> None:
        self.fs = fs
        self.view = view
        self._checks = PieceChecks(RUNS_MAX)

    @classmethod
    def of(cls, fs: RollingFileSystem, extent: Extent) -> Opened:
        """The segment of an extent.

        Raises
        ------
        FileNotFoundError
            It is gone, or another has its name.
        SegmentTruncatedError
            Its head was truncated into the extent.
        """
        view = places.view_now(fs, extent.path)
        if view is None or not places.is_same(view, extent.identity):
            raise FileNotFoundError(2, "The segment was deleted or replaced since this query was planned", extent.path)
        if view.start > extent.start:
            raise SegmentTruncatedError(
                f"{extent.path}: bytes {extent.start} to {extent.end} are to be read, but it was truncated since this "
                f"query was planned and holds {view.start} to {view.length}"
            )
        return cls(fs, view)

    def read(self, start: int, end: int) -> bytes:
        """The bytes ``[start, end)``, all of them."""
        if start == end:
            return b""
        return self.fs._bridge.run(self.fs._client.fetcher.read(self.view, start, end, checks=self._checks))

    def file(self) -> ReadFile:
        """As a file, whose position 0 is the first retained byte."""
        return ReadFile(self.fs, self.fs._client, self.fs._bridge, self.view.path, self.view)


def is_remote(fs: RollingFileSystem) -> bool:
    """Whether a request takes long, however small it is."""
    return fs._bridge.is_async


def ahead(fs: RollingFileSystem, items: Iterator[T]) -> Iterator[T]:
    """The same items; from a store that is far away, the next is fetched while one is worked on."""
    if not is_remote(fs):
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(1, "rollingfs-spark") as pool:
        waiting = pool.submit(next, items, end)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(next, items, end)
            yield item  # type: ignore[misc]
