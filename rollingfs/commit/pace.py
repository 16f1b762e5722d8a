"""The pace of commits to one segment, on a store that limits the writes of one file in a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SEGMENTS_MAX = 1024
"""Number of segments from which a client forgets those whose time has passed."""


class Pace:
    """When this client may commit to each segment again.

    Parameters
    ----------
    interval_s
        `Backend.commit_interval_s`.
    clock
        The monotonic clock, in seconds.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = interval_s
        self._clock = clock
        self._free_s: dict[str, float] = {}
        self._lock = threading.RLock()

    def after_fork(self) -> None:
        """In a child process: nobody holds the lock."""
        self._lock = threading.RLock()

    def committed(self, path: str) -> None:
        """Note a commit, now that its answer is there."""
        if not self.interval_s:
            return
        now_s = self._clock()
        with self._lock:
            self._free_s[path] = now_s + self.interval_s
            if len(self._free_s) > SEGMENTS_MAX:
                self._free_s = {other: free_s for other, free_s in self._free_s.items() if free_s > now_s}

    def pause_s(self, path: str, deadline_s: float) -> float:
        """A pause, in seconds, before the next commit; 0 if it may begin, or if its time is up before the pause is."""
        if not self.interval_s:
            return 0.0
        now_s = self._clock()
        with self._lock:
            free_s = self._free_s.get(path, now_s)
        return max(free_s - now_s, 0.0) if free_s < deadline_s else 0.0
