"""The keys of maps, for Arrow's JSON reader, which has no maps: it reads them as objects with these fields. Pure.

Arrow's objects do not tell in which order their fields were, nor a field that is null from one that is missing. So the
keys of a map must have one order, none may be unknown, and either none is null, or none is missing. Patterns of RE2
find the lines where it is otherwise, at the speed of the memory, because they begin with the name of the map.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rollingfs.spark.source.numbered_lines import NumberedLines
from rollingfs.spark.source.odd_lines import has

KEYS_MAX = 32
"""A column with more keys is not read so: each of them is a column of Arrow's."""
LOOKED_LINES_MAX = 100
"""In so many lines new keys are looked for at a time."""
PATTERN_LETTERS_MAX = 40_000
UNFIT_SHARE_MAX = 1 / 8
"""If more lines of a block are unfit, its maps are read in another way."""
FAILURES_MAX = 2
"""So many blocks with too many unfit lines: no other block is tried."""

_B = r"[ \t]*"
_VALUE = r'(?:"(?:[^"\\\n]|\\[^\n])*"|[^",{}\[\]: \t\n]+)'
_SURROGATES = 0x10000

Pairs = list[tuple[str, object]]
_DECODER = json.JSONDecoder(object_pairs_hook=list)


class MapKeys:
    """Learns the keys of maps, and finds the lines whose maps have others.

    Parameters
    ----------
    names
        The names of the fields that are maps: each is there once in the schema, and needs no escapes.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.keys: dict[str, list[str]] = {name: [] for name in names}
        """The keys of each map, in their order."""
        self.is_possible = bool(names)
        """False if there are too many keys, or too many maps without the order of the others."""
        self.full: set[str] = set()
        """The maps that lack no key in the last block, except in unfit lines: a field that is null is there."""
        self._failures = 0
        self._patterns = {name: _Patterns.of(name, []) for name in names}
        self._hidden = _hidden(names)

    def unfit(self, block: NumberedLines) -> set[int] | None:
        """The numbers of the lines whose maps must be read in another way; None if they are too many.

        New keys become known first.
        """
        found = set(block.matching(self._hidden)) if has(block.data, self._hidden) else set()
        self.full.clear()
        for name in self.keys:
            while has(block.data, self._patterns[name].odd):
                bad = block.matching(self._patterns[name].odd)
                if not self._learn(name, map(block.line, bad[:: len(bad) // LOOKED_LINES_MAX + 1])):
                    found.update(bad)
                    break
            if not self.is_possible:
                return None
            found.update(self._ambiguous(name, block))
        if len(found) <= block.count * UNFIT_SHARE_MAX:
            return found
        self._failures += 1
        self.is_possible = self._failures < FAILURES_MAX
        return None

    def _ambiguous(self, name: str, block: NumberedLines) -> list[int]:
        """The lines with a null in a map, or else, if they are fewer, those where a key is missing."""
        patterns = self._patterns[name]
        if not (self.keys[name] and has(block.data, patterns.null)):
            return []
        nulls, gaps = block.matching(patterns.null), block.matching(patterns.gap)
        if len(gaps) > len(nulls):
            return nulls
        self.full.add(name)
        return gaps

    def _learn(self, name: str, lines: Iterable[bytes]) -> bool:
        """Whether some lines have keys that were not known."""
        known = self.keys[name]
        before = len(known)
        head = re.compile(re.escape(f'"{name}"') + rf"{_B}:{_B}(?=\{{)")
        for line in lines:
            text = line.decode(errors="replace")
            for found in head.finditer(text):
                _add(known, _pairs(text, found.end()))
        if len(known) > before:
            self._patterns[name] = _Patterns.of(name, known)
            self.is_possible = len(known) <= KEYS_MAX and len(self._patterns[name].odd) <= PATTERN_LETTERS_MAX
        return len(known) > before and self.is_possible


def _pairs(text: str, at: int) -> Pairs:
    """The names and values of the object at a place; none if there is no sound one."""
    try:
        found: Pairs = _DECODER.raw_decode(text, at)[0]
    except (ValueError, RecursionError):
        return []
    return found


def _add(known: list[str], pairs: Pairs) -> None:
    """Add keys, each behind the one that stands before it in the text."""
    at = 0
    for key, _ in pairs:
        if key in known:
            at = known.index(key) + 1
        elif _is_plain(key):
            known.insert(at, key)
            at += 1


def _is_plain(key: str) -> bool:
    """Whether a key has no letters that JSON may write only with escapes, or that are no UTF-8."""
    return json.dumps(key, ensure_ascii=False) == f'"{key}"' and "\ufffd" not in key


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Where a map of a name is not as its keys are."""

    odd: str
    """It has an unknown key, a key twice, or keys in another order."""
    null: str
    gap: str
    """A key is missing, if it is not odd."""

    @staticmethod
    def of(name: str, keys: Sequence[str]) -> _Patterns:
        """The patterns of some keys."""
        head = rf'"{_literal(name)}"{_B}:{_B}\{{{_B}'
        if not keys:
            return _Patterns(head + '"', "", "")
        literals = [_literal(key) for key in keys]
        some = "|".join(literals)
        entries = rf'{head}(?:"(?:{some})"{_B}:{_B}{_VALUE}{_B},{_B})*'
        ways = [f'"{_deviating([key.encode() for key in keys])}']
        gap = ""
        for nth in range(len(keys) - 1, -1, -1):
            entry = rf'"{literals[nth]}"{_B}:{_B}{_VALUE}{_B}'
            ways.append(rf'{entry},{_B}"(?:{"|".join(literals[: nth + 1])})"')
            missing = rf'[^" \t]|"{_deviating([keys[nth].encode()])}'
            gap = rf"(?:{missing}|{entry}(?:[^, \t]|,{_B}{gap}))" if gap else f"(?:{missing})"
        return _Patterns(f"{entries}(?:{'|'.join(ways)})", rf'{entries}"(?:{some})"{_B}:{_B}null', head + gap)


def _deviating(names: Sequence[bytes]) -> str:
    """The first letters of a name, up to the one by which it is none of some names, or has escapes."""
    behind: dict[int, list[bytes]] = {}
    for name in names:
        if name:
            behind.setdefault(name[0], []).append(name[1:])
    known = "".join(_byte(one) for one in behind) + ('"' if b"" in names else "")
    return "(?:" + "|".join([f"[^{known}]", *(_byte(one) + _deviating(more) for one, more in behind.items())]) + ")"


def _hidden(names: Sequence[str]) -> str:
    """The pattern of an escape that may stand for a letter of a name, so that the name is not found by its letters."""
    codes = set()
    for letter in "".join(names):
        code = ord(letter)
        codes.add(f"{code if code < _SURROGATES else 0xD800 + ((code - _SURROGATES) >> 10):04x}")
    ways = [f"u(?i:{'|'.join(sorted(codes))})"] + ["/"] * ("/" in "".join(names))
    return rf"\\(?:{'|'.join(ways)})"


def _literal(text: str) -> str:
    return "".join(map(_byte, text.encode()))


def _byte(one: int) -> str:
    return chr(one) if re.match("[A-Za-z0-9_]", chr(one)) else f"\\x{{{one:02x}}}"
