"""Times on the command line. They need a unit: a bare 30 may be meant as seconds, minutes or days."""

from __future__ import annotations

from rollingfs.fs.commit_on import CommitOn, parse_commit_on
from rollingfs.policy import MAX_AGE_S_MAX, parse_seconds


def parse_duration(text: str) -> float:
    """Return seconds, from a text like ``"30min"``; 0 needs no unit.

    Raises
    ------
    ValueError
        It is not a duration, has no unit, or is longer than a hundred years.
    """
    seconds = parse_seconds(text)
    if seconds and text.strip()[-1].isdigit():
        number = text.strip()
        raise ValueError(f"{text!r} has no unit: write {number}s, {number}min, {number}h or {number}d")
    if seconds > MAX_AGE_S_MAX:
        raise ValueError(f"{text!r} is too long: at most {MAX_AGE_S_MAX / 86400:.0f}d, a hundred years")
    return seconds


def parse_when(text: str) -> CommitOn:
    """Return what makes commits of lines due, from a text like ``"5s,64KiB"``.

    Raises
    ------
    ValueError
        It is no such text.
    """
    when = parse_commit_on([int(one) if one.isdigit() else one for one in text.split(",")])
    if when.flush:
        raise ValueError("'flush' is for an open file: give a time, bytes or lines")
    return when
