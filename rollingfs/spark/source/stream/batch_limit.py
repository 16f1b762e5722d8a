"""The limit of a stream's batch, in bytes or in records: the oldest of what waits in all segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows

from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment
from rollingfs.spark.source.rows import commit_times
from rollingfs.spark.source.segments import Extent
from rollingfs.spark.source.stream.offsets import ReadMark
from rollingfs.spark.source.stream.record_ends import RecordEnds


@value_class
class Run:
    """Bytes of a segment that were committed between two times, as if at an even rate."""

    size: int
    since_ms: float
    until_ms: float

    def before(self, at_ms: float, *, inclusive: bool) -> float:
        """Return the number of bytes that are older than a time.

        With `inclusive`, bytes of the time itself count.
        """
        if at_ms >= self.until_ms:
            return self.size if inclusive or at_ms > self.until_ms else 0 if self.is_at_once else self.size
        if at_ms <= self.since_ms:
            return 0
        return self.size * (at_ms - self.since_ms) / (self.until_ms - self.since_ms)

    @property
    def is_at_once(self) -> bool:
        """Return whether all of them have the same time."""
        return self.since_ms >= self.until_ms


async def runs_of(client: At, view: Segment, begin: int, end: int) -> list[Run]:
    """Return the bytes ``[begin, end)`` of a segment by their commit times, which never go back."""
    times = await commit_times(client, view, max(view.start, begin - 1), end)
    last_ms = view.created.timestamp() * 1000
    found = []
    at = begin
    for upto, until_ms in zip([*times.ends, end], times.at_ms, strict=True):
        if upto > at:
            found.append(Run(min(upto, end) - at, last_ms, max(last_ms, until_ms)))
            at = min(upto, end)
        last_ms = max(last_ms, until_ms)
    if found and end == view.length and (header := view.header) is not None:
        last = found[-1]  # its bytes may be those of the inline tail
        since_ms = max(last.since_ms, header.tail_at_ms) if header.tail else last.since_ms
        found[-1] = Run(last.size, since_ms, max(last.until_ms, since_ms, header.written_ms or 0))
    return found


def share(backlogs: Mapping[str, Sequence[Run]], budget: int) -> dict[str, int]:
    """Share out a budget of bytes: older bytes first, of all segments.

    Segments that grew at the same time are read together. Bytes of the same time are read by the names of the segments.

    Parameters
    ----------
    backlogs
        Waiting bytes, by segment, in the order of offsets.
    """
    times = sorted({at for of_one in backlogs.values() for run in of_one for at in (run.since_ms, run.until_ms)})

    def total(at_ms: float, *, inclusive: bool) -> float:
        return sum(run.before(at_ms, inclusive=inclusive) for of_one in backlogs.values() for run in of_one)

    totals = [total(at_ms, inclusive=True) for at_ms in times]
    whole = bisect_right(totals, budget)
    if whole == len(times):
        return {name: sum(run.size for run in of_one) for name, of_one in backlogs.items()}
    at_ms = times[whole]
    if (most := total(at_ms, inclusive=False)) > budget:  # the limit lies between two times
        before_ms = times[whole - 1]
        least = total(before_ms, inclusive=True)
        at_ms = before_ms + (at_ms - before_ms) * (budget - least) / (most - least)
    shares = {name: int(sum(run.before(at_ms, inclusive=False) for run in of_one)) for name, of_one in backlogs.items()}
    left = budget - sum(shares.values())
    for name, of_one in sorted(backlogs.items()):
        size = sum(run.size for run in of_one if run.is_at_once and run.until_ms == at_ms)
        taken = min(size, left)
        shares[name] += taken
        left -= taken
    if not any(shares.values()):  # a byte of each is more than the budget
        shares[min(backlogs, key=lambda name: (backlogs[name][0].since_ms, name))] = budget
    return shares


RECORD_BYTES = 256
"""First guess at the size of a record, for a limit of records."""
GUESSES_MAX = 8
"""Maximum number of guesses; then the oldest records are counted off."""


class BatchLimit:
    """Finds where a batch ends in each segment."""

    def __init__(self, fs: RollingFileSystem, records: RecordEnds, views: Mapping[str, Segment]) -> None:
        self._fs, self._records, self._views = fs, records, views

    def ends(self, backlogs: Mapping[str, Extent], limit: ReadLimit) -> dict[str, ReadMark]:
        """Return the ends of a batch, by path, for the segments that it reads."""
        if isinstance(limit, ReadMaxBytes) and sum(one.size for one in backlogs.values()) > limit.max_bytes:
            return self._ends(backlogs, share(self._runs(backlogs), limit.max_bytes))
        if isinstance(limit, ReadMaxRows) and backlogs:
            return self._of_records(backlogs, limit.max_rows)
        return self._ends(backlogs, {path: one.size for path, one in backlogs.items()})

    def _ends(self, backlogs: Mapping[str, Extent], shares: Mapping[str, int]) -> dict[str, ReadMark]:
        return {path: self._end(backlogs[path], backlogs[path].start + size) for path, size in shares.items() if size}

    def _end(self, one: Extent, upto: int) -> ReadMark:
        return self._records.end(self._views[one.path], one.start, upto, one.end)

    def _of_records(self, backlogs: Mapping[str, Extent], most: int) -> dict[str, ReadMark]:
        """Return the ends of at most this number of lines: a guess at their bytes, if it is good, else counted off."""
        runs = self._runs(backlogs)
        size = most * RECORD_BYTES
        ends: dict[str, ReadMark] = {}
        for _ in range(GUESSES_MAX):
            ends = self._ends(backlogs, share(runs, size))
            total = sum(self._count(backlogs[path], end, most + 1)[0] for path, end in ends.items())
            is_all = size >= sum(one.size for one in backlogs.values())
            if total <= most and (is_all or 2 * total > most):
                return ends
            read = sum(end.offset - backlogs[path].start for path, end in ends.items())
            size = max(1, min(size, read) * most // total) if total > most else 2 * size
        found = {}
        for path in sorted(ends, key=lambda path: (runs[path][0].since_ms, path)):
            if most:
                count, offset = self._count(backlogs[path], ends[path], most)
                found[path] = self._end(backlogs[path], offset)
                most -= count
        return found

    def _count(self, one: Extent, end: ReadMark, most: int) -> tuple[int, int]:
        return self._records.count(self._views[one.path], one.start, end.offset, most)

    def _runs(self, backlogs: Mapping[str, Extent]) -> dict[str, list[Run]]:
        """When what waits was committed, by path."""
        client = core(self._fs).client
        calls = [partial(runs_of, client, self._views[one.path], one.start, one.end) for one in backlogs.values()]
        found = core(self._fs).run(client.runtime.gather(calls, client.backend.capability.requests_max))
        return dict(zip(backlogs, found, strict=True))
