"""Which commit lines of a header stay in its successor. Pure.

A writer recognises its operation by its line, whoever committed it. Specified in ``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollingfs.format.codec import format_commit, format_text, is_surely_short
from rollingfs.format.header import CARRIED_LINES_MAX, COMMITS_MAX, TEXT_BYTES_MAX, VERSION, WRITER, Commit, Header


def following(base: Header | None, own: Commit, carried: Sequence[Commit]) -> tuple[tuple[Commit, ...], int]:
    """The commit lines of a header that replaces `base`, and its `evicted`.

    Parameters
    ----------
    own
        The line of the writer that commits.
    carried
        Those of the asks that it carries.
    """
    if base is None:
        return (own, *carried), 0
    writers = {own.writer, *map(WRITER, carried)}
    stay = [line for line in base.commits if line.writer not in writers]
    excess = len(stay) + 1 + len(carried) - COMMITS_MAX
    too_many = excess - CARRIED_LINES_MAX
    old = sum(line.version <= own.version - COMMITS_MAX for line in stay) if excess > 0 else 0
    count = max(0, too_many, min(old, excess))
    kept, evicted = _without_oldest(stay, count) if count else (stay, 0)
    return (*kept, own, *carried), max(base.evicted, evicted)


def _without_oldest(lines: Sequence[Commit], count: int) -> tuple[list[Commit], int]:
    """The lines without the oldest ones, and the newest version among those."""
    if not count:
        return list(lines), 0
    gone = sorted(lines, key=VERSION)[:count]
    writers = set(map(WRITER, gone))
    return [line for line in lines if line.writer not in writers], gone[-1].version


def within_text(header: Header) -> Header:
    """The header without its oldest commit lines, as many as its text is too long; those of its version stay."""
    if is_surely_short(header, 0) or (over := len(format_text(header)) - TEXT_BYTES_MAX) <= 0:
        return header
    count = 0
    for line in sorted(header.commits, key=VERSION):
        if over <= 0 or line.version == header.version:
            break
        count += 1
        over -= len(format_commit(line).encode()) + 1
    kept, evicted = _without_oldest(header.commits, count)
    return replace(header, commits=tuple(kept), evicted=max(header.evicted, evicted))
