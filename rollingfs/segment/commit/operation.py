"""The operation of a writer, its requests, its result, and the verdict of a header on it. Pure."""

from __future__ import annotations

from enum import Enum

from rollingfs.format.header import COMMITS_MAX, Header
from rollingfs.runtime.system import Moment
from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import Segment


class Verdict(Enum):
    """Verdict of the present header on an attempt to replace its predecessor."""

    MINE = "it took place"
    SAME = "it has not taken place, but still may"
    NOT_MINE = "it did not take place and never will"
    UNKNOWN = "nothing can be said"


def judge(base: Header | Segment | None, same: bool, current: Header | None, writer: str, number: int) -> Verdict:
    """Return whether operation `number` of `writer`, conditioned on `base`, took place.

    Parameters
    ----------
    base
        The header that the attempt would have replaced; or None.
    same
        Whether the file still has the token of the attempt's condition.
    current
        The header that is there now; None without a file (or for an empty file).
    """
    if same:
        return Verdict.SAME
    if current is None:
        return Verdict.UNKNOWN
    base_version = base.version if base else 0
    mine = current.commit_of(writer)
    if mine is not None and mine.number == number:
        return Verdict.MINE
    if current.version <= base_version or (mine is not None and mine.number > number):
        return Verdict.UNKNOWN
    if mine is None and current.evicted > base_version:
        return Verdict.UNKNOWN  # with a line of mine, it has not gone: it says what it said before
    return Verdict.NOT_MINE


def is_crowded(base: Header | None) -> bool:
    """Return whether the line of a commit after `base` may soon be evicted."""
    if base is None:
        return False
    return sum(line.version > base.version - COMMITS_MAX for line in base.commits) > COMMITS_MAX // 2


@value_class
class Committed:
    """The segment before and after a commit; the same value if no commit was needed."""

    before: Segment
    after: Segment

    @property
    def base(self) -> Header | None:
        """Return the header before the commit."""
        return self.before.header

    @property
    def header(self) -> Header | None:
        """Return the header after the commit."""
        return self.after.header

    @property
    def made(self) -> Header:
        """Return the header that is there, of a commit whose step always leaves a header."""
        assert self.header is not None
        return self.header


@value_class
class Operation(Moment):
    """A change of a segment, as its commit line names it, and the moment when it began."""

    path: str
    """The segment."""
    writer: str
    """The id of the client that commits."""
    number: int
    """By this writer's count."""
    deadline_s: float
    """When the commit gives up, by the monotonic clock."""


@value_class
class Sent:
    """Requests of an operation, and the headers seen since."""

    base: Segment | None = None
    """The header that the newest attempt is based on."""
    wanted: Header | None = None
    """The header that the newest attempt would make; None if that sends a record."""
    is_open: bool = False
    """Whether an attempt was sent that took place, or that may still take place."""

    def judge(self, operation: Operation, current: Segment, *, may_be_gone: bool) -> Verdict:
        """Return the verdict of a look at the header on the newest attempt.

        Parameters
        ----------
        may_be_gone
            Whether the attempt may have made a header that was moved or deleted whole since.
        """
        base = self.base
        assert base is not None
        is_same = current.token == base.token
        verdict = judge(base, is_same, None if is_same else current.header, operation.writer, operation.number)
        if verdict is Verdict.NOT_MINE and may_be_gone and self._is_another(current.header):
            return Verdict.UNKNOWN  # the segment of the attempt may have been moved, or deleted, with the commit's line
        return verdict

    def _is_another(self, found: Header | None) -> bool:
        """Whether a header is of another segment than the attempt replaces, and than the attempt makes."""
        assert self.base is not None
        ours = {header.segment for header in (self.base.text, self.wanted) if header is not None}
        return found is not None and found.segment not in ours


NOTHING_SENT = Sent()
