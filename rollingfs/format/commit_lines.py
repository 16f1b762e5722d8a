"""The commit lines of a header that stay in its successor. Pure.

A writer recognises its operation by its line, whoever committed it. Rules P5.4, P5.5 of the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollingfs.format.header import CARRIED_LINES_MAX, COMMITS_MAX, VERSION, WRITER, Commit


def following(before: Sequence[Commit], evicted: int, own: Commit) -> tuple[tuple[Commit, ...], int]:
    """Return the commit lines of the next header, and the newest version that had to go.

    Parameters
    ----------
    before, evicted
        The lines and the version of the header that is replaced.
    own
        The line of the writer that commits.
    """
    stay = [line for line in before if line.writer != own.writer]
    excess = len(stay) + 1 - COMMITS_MAX
    old = sum(line.version <= own.version - COMMITS_MAX for line in stay) if excess > 0 else 0
    count = max(0, excess - CARRIED_LINES_MAX, min(old, excess))
    kept, gone = without_oldest(stay, count) if count else (stay, 0)
    return (*kept, own), max(evicted, gone)


def without_oldest(lines: Sequence[Commit], count: int) -> tuple[list[Commit], int]:
    """Return the lines without the oldest, and the newest version among the oldest."""
    if not count:
        return list(lines), 0
    gone = sorted(lines, key=VERSION)[:count]
    writers = set(map(WRITER, gone))
    return [line for line in lines if line.writer not in writers], gone[-1].version
