"""Bytes of a limited batch of a stream: the oldest, of all segments up to the same commit time.

A query with a watermark drops rows that are older than its newest row. So a batch must not read the newest
bytes of a segment with the oldest bytes of another segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment
from rollingfs.spark.source.metadata import commit_times


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


async def runs(client: At, view: Segment, begin: int, end: int) -> list[Run]:
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
