"""The limit of a stream's batch, in bytes or in records: the oldest of what waits in all segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows

from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import Segment
from rollingfs.spark.source.stream import budget
from rollingfs.spark.source.stream.budget import Run
from rollingfs.spark.source.stream.record_ends import End, RecordEnds

RECORD_BYTES = 256
"""First guess at the size of a record, for a limit of records."""
GUESSES_MAX = 8
"""Maximum number of guesses; then the oldest records are counted off."""


@value_class
class Backlog:
    """The bytes of a segment that a batch may read."""

    view: Segment
    begin: int
    limit: int

    @property
    def size(self) -> int:
        """Return bytes."""
        return self.limit - self.begin


class BatchLimit:
    """Finds where a batch ends in each segment."""

    def __init__(self, fs: RollingFileSystem, records: RecordEnds) -> None:
        self._fs = fs
        self._records = records

    def ends(self, backlogs: Sequence[Backlog], limit: ReadLimit) -> dict[str, End]:
        """Return the ends of a batch, by path, for the segments that it reads."""
        by_path = {one.view.path: one for one in backlogs}
        if isinstance(limit, ReadMaxBytes) and sum(one.size for one in backlogs) > limit.max_bytes:
            return self._ends(by_path, budget.share(self._runs(by_path), limit.max_bytes))
        if isinstance(limit, ReadMaxRows) and backlogs:
            return self._of_records(by_path, limit.max_rows)
        return self._ends(by_path, {path: one.size for path, one in by_path.items()})

    def _ends(self, backlogs: Mapping[str, Backlog], shares: Mapping[str, int]) -> dict[str, End]:
        found = {}
        for path, size in shares.items():
            if size:
                one = backlogs[path]
                found[path] = self._records.end(one.view, one.begin, one.begin + size, one.limit)
        return found

    def _of_records(self, backlogs: Mapping[str, Backlog], most: int) -> dict[str, End]:
        """Return the ends of at most this number of lines: a guess at their bytes, if it is good, else counted off."""
        runs = self._runs(backlogs)
        size = most * RECORD_BYTES
        ends: dict[str, End] = {}
        for _ in range(GUESSES_MAX):
            ends = self._ends(backlogs, budget.share(runs, size))
            total = sum(self._count(backlogs[path], end, most + 1)[0] for path, end in ends.items())
            is_all = size >= sum(one.size for one in backlogs.values())
            if total <= most and (is_all or 2 * total > most):
                return ends
            read = sum(end.offset - backlogs[path].begin for path, end in ends.items())
            size = max(1, min(size, read) * most // total) if total > most else 2 * size
        return self._counted_off(backlogs, ends, runs, most)

    def _counted_off(
        self, backlogs: Mapping[str, Backlog], ends: Mapping[str, End], runs: Mapping[str, Sequence[Run]], most: int
    ) -> dict[str, End]:
        found = {}
        for path in sorted(ends, key=lambda path: (runs[path][0].since_ms, path)):
            if most:
                one = backlogs[path]
                count, offset = self._count(one, ends[path], most)
                found[path] = self._records.end(one.view, one.begin, offset, one.limit)
                most -= count
        return found

    def _count(self, one: Backlog, end: End, most: int) -> tuple[int, int]:
        return self._records.count(one.view, one.begin, end.offset, most)

    def _runs(self, backlogs: Mapping[str, Backlog]) -> dict[str, list[Run]]:
        """When what waits was committed, by path."""
        client = core(self._fs).client
        calls = [partial(budget.runs, client, one.view, one.begin, one.limit) for one in backlogs.values()]
        found = core(self._fs).run(client.runtime.gather(calls, client.backend.capability.requests_max))
        return dict(zip(backlogs, found, strict=True))
