"""Other ways in which writers could take turns, to compare `Turns` with."""

from rollingfs.format.header import Header
from rollingfs.segment.commit.turns import Turns
from tests.support.simulation import NoTurns

__all__ = ["EarlierTurns", "NoTurns"]


class EarlierTurns(Turns):
    """Release 0.1: a writer that has paused waits as long as one that has not, and tries on whatever it saw last."""

    def begin(self) -> None:
        pass

    def is_stale(self, header: Header | None) -> bool:
        return False
