"""Which lines of JSON Arrow's reader surely takes: a pattern of the lines of a schema. Pure.

A line that does not match may still be sound. It is read one by one then, so the pattern may be too strict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

PATTERN_LETTERS_MAX = 40_000
"""A schema with a longer pattern, of some 200 columns, has no sieve: RE2 is slow where its tables exceed its memory."""
NAME_LETTERS_MAX = 200
"""A schema with a longer name has no sieve either."""
_DIGITS_SURE = {8: 2, 16: 4, 32: 9, 64: 18}
"""So many digits fit an integer of so many bits."""
_BLANKS = "[ \\t]*"
_LETTER = r'[^"\\\x00-\x1f]'
_STRING = rf'"(?:{_LETTER}|\\["\\/bfnrt]|\\u[0-9a-fA-F]{{4}})*"'
_MAP_STRING = r'"[^"\\{}\x00-\x1f]*"'
"""A text without escapes and braces, so that the end of a map is its first brace."""
_NUMBER = r"(?:(?:0|-?[1-9][0-9]*)(?:\.[0-9]+)?|-0\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?"
"""Not the integer -0, which Arrow reads otherwise than Spark."""
_TRUTH = "true|false"
_SCALAR = f"{_STRING}|{_NUMBER}|{_TRUTH}|null"


class Sieve:
    """Tells the lines that Arrow's reader surely takes from those that it may refuse.

    Parameters
    ----------
    schema
        The columns, of types that Arrow's JSON reader has, or maps of scalars.
    has_lists
        Maps are rewritten as lists, so their texts must not have escapes nor braces.
    """

    def __init__(self, schema: pa.Schema, *, has_lists: bool = True) -> None:
        is_short = all(len(name) <= NAME_LETTERS_MAX for name in _names(schema))
        self._pattern = f"^{_BLANKS}{_record(schema, has_lists)}{_BLANKS}$" if is_short else ""
        self.is_possible = 0 < len(self._pattern) <= PATTERN_LETTERS_MAX

    def doubtful(self, texts: pa.Array) -> list[int] | None:
        """The numbers of the lines that Arrow may refuse, of some whole lines; None if there is no sieve."""
        if not self.is_possible:
            return None
        try:
            sound = pc.match_substring_regex(texts, self._pattern)
        except pa.ArrowInvalid:  # the pattern needs more memory than RE2 gives it
            self.is_possible = False
            return None
        found: list[int] = pc.indices_nonzero(pc.invert(sound)).to_pylist()
        return found


def _names(kind: pa.Schema | pa.DataType) -> Iterator[str]:
    """The names of all fields, however deep."""
    for field in kind:
        yield field.name
        inner = field.type
        while pt.is_list(inner):
            inner = inner.value_type
        if pt.is_struct(inner):
            yield from _names(inner)


def _record(fields: Iterable[pa.Field], has_lists: bool) -> str:
    """An object with some fields, in any order; others have other names, and no objects in objects."""
    # a name with an escape is never sure; its letters would end a text elsewhere than Arrow does
    known = [field for field in fields if re.fullmatch(f"{_LETTER}*", field.name)]
    members = [_member(f'"{_literal(field.name)}"', _value(field.type, has_lists)) for field in known]
    flat = f"{_SCALAR}|{_list(_SCALAR)}"
    others = f'"{_other([field.name for field in known])}"'
    members.append(_member(others, f"{flat}|{_object([_member(_STRING, flat)])}"))
    return _object(members)


def _value(kind: pa.DataType, has_lists: bool) -> str:
    if pt.is_struct(kind):
        return _record(kind, has_lists)
    if pt.is_map(kind):
        text = _MAP_STRING if has_lists else _STRING
        return _object([_member(text, text if _is_text(kind.item_type) else _value(kind.item_type, has_lists))])
    if pt.is_list(kind):
        return _list(f"{_value(kind.value_type, has_lists)}|null")
    if pt.is_integer(kind):
        return f"0|-?[1-9][0-9]{{0,{_DIGITS_SURE[kind.bit_width] - 1}}}"
    if pt.is_boolean(kind):
        return _TRUTH
    if pt.is_floating(kind) or pt.is_decimal(kind):
        return _NUMBER
    return f"{_STRING}|{_NUMBER}|{_TRUTH}" if pt.is_string(kind) else _STRING


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_date32(kind) or pt.is_timestamp(kind) or pt.is_binary(kind))


def _member(name: str, value: str) -> str:
    return f"{name}{_BLANKS}:{_BLANKS}(?:{value}|null)"


def _object(members: Sequence[str]) -> str:
    return rf"\{{{_listed('|'.join(members))}\}}"


def _list(value: str) -> str:
    return rf"\[{_listed(value)}\]"


def _listed(item: str) -> str:
    # Arrow refuses a comma that is missing or too many; to say so here would double the pattern at each level
    return f"{_BLANKS}(?:(?:{item}){_BLANKS},?{_BLANKS})*"


def _other(names: Sequence[str]) -> str:
    """Letters of a name without escapes that is none of some names; RE2 has no words for that."""
    behind: dict[str, list[str]] = {}
    for name in names:
        if name:
            behind.setdefault(name[0], []).append(name[1:])
    firsts = "".join(map(_literal, behind))
    ways = [f'[^"\\\\\\x00-\\x1f{firsts}]{_LETTER}*', *(_literal(one) + _other(more) for one, more in behind.items())]
    return "(?:" + "|".join(ways if "" in names else ["", *ways]) + ")"


def _literal(text: str) -> str:
    return "".join(one if re.match("[A-Za-z0-9_]", one) else f"\\x{{{ord(one):x}}}" for one in text)
