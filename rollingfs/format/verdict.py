"""Commit lines as evidence: whether an attempt whose answer was lost took place. Pure."""

from __future__ import annotations

from enum import Enum

from rollingfs.format.header import COMMITS_MAX, Header


class Verdict(Enum):
    """Verdict of the present header on an attempt to replace its predecessor."""

    MINE = "it took place"
    SAME = "it has not taken place, but still may"
    NOT_MINE = "it did not take place and never will"
    UNKNOWN = "nothing can be said"


def judge(base: Header | None, same: bool, current: Header | None, writer: str, number: int) -> Verdict:
    """Return whether operation `number` of `writer`, conditioned on `base`, took place.

    Parameters
    ----------
    base
        The header that the attempt would have replaced; or None.
    same
        Whether the file still has the token of the attempt's condition.
    current
        The header that is there now; None without a file (or for an empty file).
    """
    if same:
        return Verdict.SAME
    if current is None:
        return Verdict.UNKNOWN
    base_version = base.version if base else 0
    mine = current.commit_of(writer)
    if mine is not None and mine.number == number:
        return Verdict.MINE
    if current.version <= base_version or (mine is not None and mine.number > number):
        return Verdict.UNKNOWN
    if mine is None and current.evicted > base_version:
        return Verdict.UNKNOWN  # with a line of mine, it has not gone: it says what it said before
    return Verdict.NOT_MINE


def is_crowded(base: Header | None) -> bool:
    """Return whether the line of a commit after `base` may soon be evicted."""
    if base is None:
        return False
    return sum(line.version > base.version - COMMITS_MAX for line in base.commits) > COMMITS_MAX // 2
