r"""Patterns of paths, in the language of Hadoop's globs, which `load` of Spark's own sources takes. Pure.

``*`` and ``?`` match within a name, ``[abc]``, ``[a-c]``, ``[^a]`` and ``[!a]`` a letter, ``{a,b}`` a choice of texts,
which may have slashes and braces of their own. ``\`` takes the meaning from the next letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

LETTERS = frozenset("{}[]*?\\")
"""A path with any of these is a pattern, as in Spark."""
Part = str | re.Pattern[str]
"""A name in a path, or what matches it."""


def is_pattern(path: str) -> bool:
    """Return whether Spark takes a path for a pattern."""
    return not LETTERS.isdisjoint(path)


def above(path: str) -> str:
    """Return the folder above the first wildcard of a pattern; of no pattern, the path itself."""
    return "/".join(takewhile(lambda part: not is_pattern(part), path.split("/")))


def alternatives(pattern: str) -> list[tuple[Part, ...]]:
    """Return the names of a pattern, in order; several times where braces hold slashes.

    Raises
    ------
    ValueError
        A bracket or brace is not closed, a range of letters is empty, or ``**`` stands before the last slash.
    """
    return [_parts(one, pattern) for one in _expanded(pattern)]


def has_prefix(names: Sequence[str], parts: Sequence[Part]) -> bool:
    """Return whether the first of some names match the parts of a pattern."""
    return len(names) >= len(parts) and all(map(matches, parts, names))


def leads(names: Sequence[str], parts: Sequence[Part]) -> bool:
    """Return whether a path of some names may hold a match, or lies below a match."""
    return all(map(matches, parts, names))


def matches(part: Part, name: str) -> bool:
    """Return whether a part of a pattern matches a name."""
    return part == name if isinstance(part, str) else part.fullmatch(name) is not None


def _expanded(pattern: str) -> list[str]:
    """Return a pattern for each choice of the first braces with a slash."""
    at = 0
    while at < len(pattern):
        if pattern[at] == "{" and (choices := _choices(pattern, at)) is not None:
            begin, end = pattern[:at], choices[-1][1] + 1
            if any("/" in text for text, _ in choices):
                return [more for text, _ in choices for more in _expanded(begin + text + pattern[end:])]
            at = end - 1
        at += 2 if pattern[at] == "\\" else 1
    return [pattern]


def _choices(pattern: str, start: int) -> list[tuple[str, int]] | None:
    """Return the texts between braces that open at `start`, or None.

    Each comes with the position after it. None: the braces do not close.
    """
    found, depth, at, begin = [], 0, start, start + 1
    while at < len(pattern):
        letter = pattern[at]
        depth += (letter == "{") - (letter == "}")
        if depth == 0 or (depth == 1 and letter == ","):
            found.append((pattern[begin:at], at))
            begin = at + 1
        if depth == 0:
            return found
        at += 2 if letter == "\\" else 1
    return None


def _parts(text: str, pattern: str) -> tuple[Part, ...]:
    *folders, name = text.split("/")
    if any("**" in folder for folder in folders):
        raise ValueError(
            f"pattern {pattern!r}: in Spark's patterns, ** means * and does not stand for several folders; write a * "
            "for each folder, or load the folder above, whose segments are all read"
        )
    try:
        return tuple(map(_part, (*folders, name)))
    except (ValueError, re.error) as error:
        raise ValueError(
            f"pattern {pattern!r} cannot be read: {error}; a \\ before a letter takes its meaning"
        ) from None


_TOKEN = re.compile(r"\\(.)|\[(?![!^]?\])([!^]?)((?:\\.|[^]\\])+)\]|([*?{},])|(.)", re.DOTALL)
"""A letter without its meaning; a bracket, its negation and its letters; a sign; another letter."""


def _part(text: str) -> Part:
    """Return a name without a wildcard, or an expression that matches whole names."""
    expression, name, depth, is_wild = "", "", 0, False
    for escaped, negation, letters, sign, other in _TOKEN.findall(text):
        if other == "\\":
            raise ValueError("nothing follows the last \\")
        if other == "[":
            raise ValueError(f"a bracket of {text!r} is not closed, or is empty")
        is_wild = is_wild or bool(letters) or sign in ("*", "?", "{")
        name += escaped or sign or other
        if letters:
            shown = (one if one == "-" else re.escape(one[-1]) for one in re.findall(r"\\.|.", letters, re.DOTALL))
            expression += f"[{'^' if negation else ''}{''.join(shown)}]"
        elif sign == "{" or (depth and sign in ("}", ",")):
            depth += {"{": 1, "}": -1, ",": 0}[sign]
            expression += {"{": "(?:", "}": ")", ",": "|"}[sign]
        else:
            expression += {"*": ".*", "?": "."}.get(sign, re.escape(escaped or sign or other))
    if depth:
        raise ValueError(f"a brace of {text!r} is not closed")
    return re.compile(expression, re.DOTALL) if is_wild else name
