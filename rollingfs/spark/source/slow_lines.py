"""The count of lines that a reader had to read one by one, and the warning when they are many."""

from __future__ import annotations

import logging

logger = logging.getLogger("pyspark_rollingfs")

SLOW_LINES_WARNED = 100_000
"""A task that reads as many lines one by one says so in its log."""


class SlowLines:
    """Counts the lines of one reader.

    Parameters
    ----------
    kind
        What the lines are, for the warning.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._count = 0

    def add(self, lines: int, reason: str) -> None:
        """Count more lines; warn once, with the reason."""
        before, self._count = self._count, self._count + lines
        if before < SLOW_LINES_WARNED <= self._count:
            logger.warning(
                "%d lines of %s had to be read one by one, which is several times slower: %s",
                self._count,
                self._kind,
                reason,
            )
