r"""Patterns of paths, in the language of Hadoop's globs, which `load` of Spark's own sources takes. Pure.

``*`` and ``?`` match within a name, ``[abc]``, ``[a-c]``, ``[^a]`` and ``[!a]`` a letter, ``{a,b}`` a choice of texts,
which may have slashes and braces of their own. ``\`` takes the meaning from the next letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile

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
    try:
        found = [one.split("/") for one in _expanded(pattern)]
        if any("**" in folder for parts in found for folder in parts[:-1]):
            raise ValueError(
                "in Spark's patterns, ** means * and does not stand for several folders; write a * for each folder, or "
                "load the folder above, whose segments are all read"
            )
        return [tuple(map(_part, parts)) for parts in found]
    except (ValueError, re.error) as error:
        raise ValueError(
            f"pattern {pattern!r} cannot be read: {error}; a \\ before a letter takes its meaning"
        ) from None


def has_prefix(names: Sequence[str], parts: Sequence[Part]) -> bool:
    """Return whether the first of some names match the parts of a pattern."""
    return len(names) >= len(parts) and all(map(matches, parts, names))


def leads(names: Sequence[str], parts: Sequence[Part]) -> bool:
    """Return whether a path of some names may hold a match, or is below a match."""
    return all(map(matches, parts, names))


def matches(part: Part, name: str) -> bool:
    """Return whether a part of a pattern matches a name."""
    return part == name if isinstance(part, str) else part.fullmatch(name) is not None


_TOKEN = re.compile(r"\\(.)|\[(?![!^]?\])([!^]?)((?:\\.|[^]\\/])+)\]|([*?{},])|(.)", re.DOTALL)
"""A letter without its meaning; a bracket, its negation and its letters; a sign; another letter."""


def _expanded(pattern: str) -> list[str]:
    """Return the patterns without braces that a pattern stands for."""
    depth, cuts = 0, list[int]()
    for token in _TOKEN.finditer(pattern):
        sign = token[4]
        depth += (sign == "{") - (sign == "}" and depth > 0)
        if sign and sign in "{,}" and depth == (sign != "}") and (cuts or sign == "{"):
            cuts.append(token.start())
        if cuts and not depth:
            begin, end = pattern[: cuts[0]], pattern[token.end() :]
            return [more for at, upto in pairwise(cuts) for more in _expanded(begin + pattern[at + 1 : upto] + end)]
    if depth:
        raise ValueError("a brace is not closed")
    return [pattern]


def _part(text: str) -> Part:
    """Return a name without a wildcard, or an expression that matches whole names."""
    expression, name, is_wild = "", "", False
    for escaped, negation, letters, sign, other in _TOKEN.findall(text):
        if other == "\\":
            raise ValueError("nothing follows the last \\")
        if other == "[":
            raise ValueError(f"a bracket of {text!r} is not closed, or is empty")
        is_wild = is_wild or bool(letters) or sign in ("*", "?")
        name += escaped or sign or other
        if letters:
            shown = (one if one == "-" else re.escape(one[-1]) for one in re.findall(r"\\.|.", letters, re.DOTALL))
            expression += f"[{'^' if negation else ''}{''.join(shown)}]"
        else:
            expression += {"*": ".*", "?": "."}.get(sign, re.escape(escaped or sign or other))
    return re.compile(expression, re.DOTALL) if is_wild else name
