"""One operation of one writer, what was sent for it, and its result: frozen values, and what a header says of them."""

from __future__ import annotations

from dataclasses import replace

from rollingfs.commit.header_cache import Loaded
from rollingfs.format.asks import Ask, is_void
from rollingfs.format.header import Header
from rollingfs.format.verdict import Verdict, judge
from rollingfs.runtime.clock import Moment
from rollingfs.runtime.values import value_class


@value_class
class Committed:
    """What a commit found and left."""

    base: Header | None
    header: Header | None
    offset: int | None = None
    """Where the data begins, if another writer's commit has carried it."""


@value_class
class Operation:
    """A change of one segment, as its commit line names it."""

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
    """What was sent for an operation, and what headers have shown of it since."""

    base: Loaded | None = None
    """The header that the newest attempt is based on."""
    wanted: Header | None = None
    """The header that the newest attempt would make."""
    is_open: bool = False
    """Whether an attempt was sent that took place, or that may still take place."""
    asked: Ask | None = None
    """The ask for the operation, from before it is sent until nobody can carry it any more."""
    seen: Loaded | None = None
    """The newest header that shows that the operation has not taken place so far; None: `base` is."""

    def asking(self, seen: Loaded, ask: Ask) -> Sent:
        """With an ask, which is about to be sent, and the header that shows that the operation has not taken place."""
        return replace(self, asked=ask, seen=seen)

    def cleaned(self, current: Loaded) -> Sent:
        """With a header that shows that the operation has not taken place so far."""
        is_void_now = self.asked is not None and current.header is not None and is_void(self.asked, current.header)
        return replace(
            self,
            is_open=self.is_open and (self.base is None or current.token == self.base.token),
            asked=None if is_void_now else self.asked,
            seen=current,
        )

    def judge(self, operation: Operation, current: Loaded, *, may_be_gone: bool) -> Verdict:
        """What a look at the header says of the newest attempt, and of an ask.

        Parameters
        ----------
        may_be_gone
            Whether the attempt may have made a header that was moved or deleted whole since.
        """
        since = self.seen or self.base
        assert since is not None
        writer, number, is_asked = operation.writer, operation.number, self.asked is not None
        verdict = judge(since.header, current.token == since.token, current.header, writer, number, asked=is_asked)
        if verdict is Verdict.NOT_MINE and may_be_gone and self._is_another(current.header):
            return Verdict.UNKNOWN  # the segment of the attempt may have been moved, or deleted, with the commit's line
        return verdict

    def _is_another(self, found: Header | None) -> bool:
        """Whether a header is of another segment than the attempt replaces, and than the attempt makes."""
        assert self.base is not None  # a store where segments move takes no asks
        ours = {header.segment for header in (self.base.header, self.wanted) if header is not None}
        return found is not None and found.segment not in ours


NOTHING_SENT = Sent()
