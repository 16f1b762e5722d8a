"""The commit lines of a header: which stay in its successor, and what they prove of lost commits. Pure.

A writer recognises its operation by its line, whoever committed it. Rules P5.4, P5.5, P14.14 to P14.19 of the
protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rollingfs.format.header import AGE_S_MAX, CARRIED_LINES_MAX, COMMITS_MAX, VERSION, WRITER, Commit, Header
from rollingfs.runtime.values import value_class


def following(before: Sequence[Commit], evicted: int, own: Commit) -> tuple[tuple[Commit, ...], int]:
    """Return the commit lines of the next header, and the newest version that had to go.

    Parameters
    ----------
    before, evicted
        The lines and the version of the header that is replaced.
    own
        The line of the writer that commits.
    """
    stay = [line for line in before if line.writer != own.writer]
    excess = len(stay) + 1 - COMMITS_MAX
    old = sum(line.version <= own.version - COMMITS_MAX for line in stay) if excess > 0 else 0
    count = max(0, excess - CARRIED_LINES_MAX, min(old, excess))
    kept, gone = without_oldest(stay, count) if count else (stay, 0)
    return (*kept, own), max(evicted, gone)


def without_oldest(lines: Sequence[Commit], count: int) -> tuple[list[Commit], int]:
    """Return the lines without the oldest, and the newest version among the oldest."""
    if not count:
        return list(lines), 0
    gone = sorted(lines, key=VERSION)[:count]
    writers = set(map(WRITER, gone))
    return [line for line in lines if line.writer not in writers], gone[-1].version


# -- lost commits ---------------------------------------------------------------------------------------------


@value_class
class Acknowledged:
    """The last commit of a client to a segment that the store has acknowledged."""

    segment: str
    """The incarnation."""
    base: str
    """The incarnation of the header which was replaced; another if the commit was an overwrite."""
    writer: str
    number: int
    version: int
    before: Commit | None
    """The writer's commit line in the header that was replaced."""
    start: int
    """The segment's length before the commit."""
    end: int
    at_s: float
    """When it was acknowledged, by the client's monotonic clock."""

    @classmethod
    def of(cls, base: Header | None, header: Header, writer: str, number: int, at_s: float) -> Acknowledged:
        """Return the commit that replaced `base` by `header`."""
        before = base.commit_of(writer) if base is not None else None
        replaced = base.segment if base is not None else header.segment
        start = base.length if base is not None and replaced == header.segment else header.start
        return cls(header.segment, replaced, writer, number, header.version, before, start, header.length, at_s)


class Trace(Enum):
    """Evidence of a later header on an acknowledged commit."""

    KEPT = "its line is there, or may have gone as lines do"
    LOST = "another commit has taken its place"
    BACK = "an older header is back, or what is there cannot be told from that"


def trace(own: Acknowledged, seen: Header, found: Header, now_s: float) -> Trace:
    """Return the evidence of `found` on a commit.

    Parameters
    ----------
    seen
        The newest header that had the commit.
    found
        A header that was read later.
    now_s
        The time, by the client's monotonic clock.
    """
    line = found.commit_of(own.writer)
    if line is not None and line.number >= own.number:
        return Trace.KEPT
    if line is None and found.evicted >= own.version:
        return Trace.KEPT
    older = [one for one in seen.commits if one.version < own.version]
    if found.segment not in (own.segment, own.base) and line is None and not any(one in found.commits for one in older):
        # it was made anew after a deletion was collected, which takes longer than D; or two writers have created it
        return Trace.KEPT if now_s - own.at_s > AGE_S_MAX else Trace.BACK
    if found.version < own.version or not _is_of_base(own, line, found):
        return Trace.BACK
    others = {one.writer: one.number for one in found.commits}
    kept = all(others.get(one.writer, 0) >= one.number for one in older if one.version > found.evicted)
    return Trace.LOST if kept else Trace.BACK


def are_two(seen: Header, found: Header) -> bool:
    """Return whether a header that was read later does not follow the one that was seen, although it is no older."""
    if found.segment != seen.segment or not found.evicted < seen.version <= found.version:
        return False
    newest = next((one for one in seen.commits if one.version == seen.version), None)
    line = found.commit_of(newest.writer) if newest is not None else None
    return newest is not None and (line is None or line.number < newest.number)


def _is_of_base(own: Acknowledged, line: Commit | None, found: Header) -> bool:
    """Return whether the writer's line is from the header which the commit replaced."""
    if line is None and own.before is not None:
        return found.evicted >= own.before.version
    return line == own.before
