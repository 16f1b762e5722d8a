"""Other ways in which writers could take turns, to compare `Turns` with."""

from rollingfs.commit.fairness import Turns
from rollingfs.format.header import Header
from rollingfs.runtime.concurrency import backoff_s


class NoTurns(Turns):
    """Plain compare-and-swap: after a lost race a random pause that grows, then another try."""

    def turn_wait_s(self, header: Header | None, *, fresh: bool, prompt: bool = False) -> float | None:
        return None

    def pause_s(self, header: Header | None, losses: int) -> float:
        return backoff_s(losses)


class EarlierTurns(Turns):
    """Release 0.1: a writer that has paused waits as long as one that has not, and tries on whatever it saw last."""

    def begin(self) -> None:
        pass

    def is_stale(self, header: Header | None) -> bool:
        return False
