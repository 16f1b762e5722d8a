"""The operation of a writer, its requests and its result: frozen values, and their verdicts by a header."""

from __future__ import annotations

from rollingfs.format.header import Header
from rollingfs.format.verdict import Verdict, judge
from rollingfs.runtime.clock import Moment
from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import Segment


@value_class
class Committed:
    """The headers before and after a commit."""

    base: Header | None
    header: Header | None

    @property
    def made(self) -> Header:
        """Return the header that is there, of a commit whose step always leaves a header."""
        assert self.header is not None
        return self.header


@value_class
class Operation:
    """A change of a segment, as its commit line names it."""

    path: str
    """The segment."""
    writer: str
    """The id of the client that commits."""
    number: int
    """By this writer's count."""
    deadline_s: float
    """When the commit gives up, by the monotonic clock."""
    began: Moment


@value_class
class Sent:
    """Requests of an operation, and the headers seen since."""

    base: Segment | None = None
    """The header that the newest attempt is based on."""
    wanted: Header | None = None
    """The header that the newest attempt would make."""
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
        verdict = judge(base.header, is_same, current.header, operation.writer, operation.number)
        if verdict is Verdict.NOT_MINE and may_be_gone and self._is_another(current.header):
            return Verdict.UNKNOWN  # the segment of the attempt may have been moved, or deleted, with the commit's line
        return verdict

    def _is_another(self, found: Header | None) -> bool:
        """Whether a header is of another segment than the attempt replaces, and than the attempt makes."""
        assert self.base is not None
        ours = {header.segment for header in (self.base.header, self.wanted) if header is not None}
        return found is not None and found.segment not in ours


NOTHING_SENT = Sent()
