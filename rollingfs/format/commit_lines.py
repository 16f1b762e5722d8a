"""Which commit lines of a header stay in its successor. Pure.

A writer recognises its commit by its line. Lines of carried asks are of a kind of their own, which older clients skip.
Specified in ``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollingfs.format.codec import format_carried, format_text, is_surely_short
from rollingfs.format.header import CARRIED_LINES_MAX, COMMITS_MAX, TEXT_BYTES_MAX, Commit, Header


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
    writers = {own.writer, *(line.writer for line in carried)}
    stay = [line for line in base.commits if line.writer not in writers]
    gone = _evicted(stay, own.version, len(carried))
    lost = {line.writer for line in gone}
    kept = [line for line in stay if line.writer not in lost]
    owned, others = _by_kind(kept)
    return (*owned, own, *others, *carried), max([base.evicted, *(line.version for line in gone)])


def _by_kind(lines: Sequence[Commit]) -> tuple[list[Commit], list[Commit]]:
    """The lines of writers' own commits, and those of carried asks, each in the order given."""
    return [line for line in lines if line.offset is None], [line for line in lines if line.offset is not None]


def _evicted(lines: Sequence[Commit], version: int, carried: int) -> list[Commit]:
    """The lines that go when a commit adds one of its own, and so many of asks that it carries."""
    excess = len(lines) + 1 + carried - COMMITS_MAX
    if excess <= 0:
        return []
    owned, others = _by_kind(sorted(lines, key=lambda line: line.version))
    gone = owned[: max(0, len(owned) + 1 - COMMITS_MAX)]
    old = sum(line.version <= version - COMMITS_MAX for line in others)
    too_many = len(others) + carried - CARRIED_LINES_MAX
    return gone + others[: max(0, too_many, min(old, excess - len(gone)))]


def within_text(header: Header) -> Header:
    """The header without the oldest lines of carried asks, as many as its text is too long."""
    if not header.carried or is_surely_short(header, 0) or (over := len(format_text(header)) - TEXT_BYTES_MAX) <= 0:
        return header
    gone: list[Commit] = []
    for line in sorted(header.carried, key=lambda line: line.version):
        if over <= 0 or line.version == header.version:
            break
        gone.append(line)
        over -= len(format_carried(line).encode()) + 1
    lost, evicted = {line.writer for line in gone}, max([header.evicted, *(line.version for line in gone)])
    return replace(header, commits=tuple(line for line in header.commits if line.writer not in lost), evicted=evicted)
