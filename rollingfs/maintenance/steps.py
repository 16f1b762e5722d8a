"""Counts processed bytes, and reports them to the caller's callback."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int], None]
"""Called with how many more bytes are done, from whatever thread or loop the core runs on."""


class Steps:
    """Counts bytes that are done, and tells of each once, though some may be done twice.

    Parameters
    ----------
    total : int
        Bytes that are to be done.
    progress : Progress or None
        Whom to tell.
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
        """Count as many bytes as are done altogether."""
        self.add(done - self.done)
