"""How far something has come through a segment's bytes, told to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int], None]
"""Told how many more bytes are done, from whatever thread or loop the core runs on."""


class Steps:
    """Counts bytes and tells of them: never of more than there are, whatever is done twice.

    Parameters
    ----------
    total : int
        Bytes that are to be done.
    progress : Progress or None
        Who is told.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total = total
        self.done = 0
        self._progress = progress

    def add(self, count: int) -> None:
        """So many more bytes are done."""
        count = min(count, self.total - self.done)
        if count > 0:
            self.done += count
            if self._progress is not None:
                self._progress(count)

    def reach(self, done: int) -> None:
        """So many bytes are done altogether, if they are not already."""
        self.add(done - self.done)
