"""Which commit lines of a header stay in its successor. Pure.

A writer recognises its commit by its line. Lines of carried asks are of a kind of their own, which older clients skip.
Specified in ``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from rollingfs.format.codec import format_carried, format_text, is_surely_short
from rollingfs.format.header import CARRIED_LINES_MAX, COMMITS_MAX, TEXT_BYTES_MAX, Commit, Header


def kept(base: Header, writers: Set[str], count: int) -> tuple[tuple[Commit, ...], int]:
    """The commit lines that stay, and `evicted`, beside new lines of these writers, `count` of them carried."""
    lines = sorted((line for line in base.commits if line.writer not in writers), key=lambda line: line.version)
    own, carried = ([line for line in lines if (line.offset is None) is is_own] for is_own in (True, False))
    gone = own[: max(0, len(own) + 1 - COMMITS_MAX)]
    old = [line for line in carried if line.version <= base.version + 1 - COMMITS_MAX]
    spare = min(len(old), len(lines) - len(gone) + 1 + count - COMMITS_MAX)
    gone += carried[: max(0, spare, len(carried) + count - CARRIED_LINES_MAX)]
    lost = {line.writer for line in gone}
    evicted = max([base.evicted, *(line.version for line in gone)])
    return tuple(line for line in base.commits if line.writer not in writers | lost), evicted


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
    evicted = max([header.evicted, *(line.version for line in gone)])
    return replace(header, commits=tuple(line for line in header.commits if line not in gone), evicted=evicted)
