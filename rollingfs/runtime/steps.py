"""Counts processed bytes, and reports them to the caller's callback."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int], None]
"""Takes the number of bytes that were done since the last call, on the thread or loop of the core."""


class Steps:
    """Counts the bytes that are done. It reports each byte once, although some may be done twice.

    Parameters
    ----------
    total : int
        The number of all bytes.
    progress : Progress or None
        Takes each number of further bytes.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total = total
        self.done = 0
        self._progress = progress

    def add(self, count: int) -> None:
        """Count more bytes."""
        count = min(count, self.total - self.done)
        if count > 0:
            self.done += count
            if self._progress is not None:
                self._progress(count)

    def reach(self, done: int) -> None:
        """Count up to this number of bytes in all."""
        self.add(done - self.done)
