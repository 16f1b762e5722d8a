"""Turns among several writers of one segment, without a word between them: by pauses whose length is drawn.

Left alone, the writer that has just committed commits again: the others must load the header before they try, and when
their attempts arrive it has been replaced once more. So who was last waits a little, if there are others; and who
lost waits about as long as all others need for a commit each, and less with every time that it loses again. Who the
others are is read off the commit lines; how long a commit takes is measured. Pauses are for fairness and for fewer
vain requests only: what is committed never depends on them.
"""

from __future__ import annotations

import random

from rollingfs.header import Header
from rollingfs.runtime import BACKOFF_S_MAX, BACKOFF_S_MIN, backoff_s

RIVAL_VERSIONS = 16
"""Who has committed among so many versions is believed to go on."""
WAY_SHARE = 1.0
"""Of a commit's time: the longest pause that gives way to others."""


def rivals(header: Header | None, writer: str) -> int:
    """How many others commit to a segment just now."""
    if header is None:
        return 0
    since = header.version - RIVAL_VERSIONS
    return sum(line.writer != writer and line.version > since for line in header.commits)


class Turns:
    """One writer's turns at one segment."""

    def __init__(self) -> None:
        self._commit_s = 0.0

    def took(self, seconds: float) -> None:
        """Note how long a request took that replaced the header."""
        self._commit_s = (self._commit_s + seconds) / 2 if self._commit_s else seconds

    def way_s(self, header: Header | None, writer: str) -> float:
        """A pause before the first attempt: for who was last, if there are others."""
        if header is None or not rivals(header, writer):
            return 0.0
        mine = header.commit_of(writer)
        is_last = mine is not None and mine.version == header.version
        return random.uniform(0, min(BACKOFF_S_MAX, self._commit_s * WAY_SHARE)) if is_last else 0.0

    def pause_s(self, header: Header | None, writer: str, losses: int) -> float:
        """A pause before the look after loss 1, 2, … against a commit based on `header`."""
        others = rivals(header, writer)
        if not others or not self._commit_s:
            return backoff_s(losses)
        return random.uniform(0, min(BACKOFF_S_MAX, max(BACKOFF_S_MIN, self._commit_s * others / losses)))
