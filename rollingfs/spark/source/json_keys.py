"""The keys of maps, for Arrow's JSON reader, which has no maps: it reads them as objects with these fields. Pure.

Arrow's objects do not tell in which order their fields were, nor a field that is null from one that is missing. So the
keys of a map must have one order, none may be unknown, and either none is null, or none is missing. Patterns of RE2
find the lines where it is otherwise, at the speed of the memory, because they begin with the name of the map.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import pairwise

import pyarrow as pa

from rollingfs.spark.source.numbered_lines import NumberedLines
from rollingfs.spark.source.odd_lines import has

KEYS_MAX = 32
"""A column with more keys is not read so: each of them is a column of Arrow's."""
KEY_LETTERS_MAX = 50
"""A line with a longer key is read by itself: a pattern has a level for each byte of a key."""
LOOKED_LINES_MAX = 100
"""New keys are looked for in so many lines at a time."""
ROUNDS_MAX = 8
"""New keys are looked for in a block so many times at most."""
PATTERN_LETTERS_MAX = 40_000
UNFIT_SHARE_MAX = 1 / 8
"""If more lines of a block are unfit, its maps are read in another way."""
CELLS_PER_BYTE_MAX = 1
"""Arrow makes a cell for each row and key. If a block has more than bytes, its maps are read in another way."""
FAILURES_MAX = 2
"""So many blocks with too many unfit lines: no other block is tried."""

_B = r"[ \t]*"
_VALUE = r'(?:"(?:[^"\\\n]|\\[^\n])*"|[^",{}\[\]: \t\n]+)'
_SURROGATES = 0x10000

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
        self._orders = {name: _Order() for name in names}
        self._failures = 0
        self._patterns = {name: _Patterns.of(name, []) for name in names}
        self._hidden = _hidden(names)

    def unfit(self, block: NumberedLines) -> set[int] | None:
        """The numbers of the lines whose maps must be read in another way; None if they are too many.

        New keys become known first.
        """
        try:
            return self._unfit(block)
        except pa.ArrowInvalid:  # a pattern needs more memory than RE2 gives it
            self.is_possible = False
            return None

    def _unfit(self, block: NumberedLines) -> set[int] | None:
        found = set(block.matching(self._hidden)) if has(block.data, self._hidden) else set()
        self.full.clear()
        cells = 0
        for name in self.keys:
            found.update(self._odd(name, block))
            cells += len(self.keys[name]) * block.count
            if not self.is_possible or cells > CELLS_PER_BYTE_MAX * len(block.data):
                return None
            found.update(self._ambiguous(name, block))
        if len(found) <= block.count * UNFIT_SHARE_MAX:
            return found
        self._failures += 1
        self.is_possible = self._failures < FAILURES_MAX
        return None

    def _odd(self, name: str, block: NumberedLines) -> list[int]:
        """The lines where a key is unknown, or at another place, when all is learned."""
        for nth in range(ROUNDS_MAX + 1):
            if not has(block.data, self._patterns[name].odd):
                break
            odd = block.matching(self._patterns[name].odd)
            some = odd[:: len(odd) // LOOKED_LINES_MAX + 1]
            if nth == ROUNDS_MAX or not self._learn(name, map(block.line, some)):
                return odd
        return []

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
        """Whether some lines tell more of the keys or of their order."""
        order, known = self._orders[name], self.keys[name]
        head = re.compile(re.escape(f'"{name}"') + rf"{_B}:{_B}(?=\{{)")
        for line in lines:
            text = line.decode(errors="replace")
            for found in head.finditer(text):
                order.add(_keys(text, found.end()))
        if order.keys == known:
            return False
        self.is_possible = len(order.keys) <= KEYS_MAX
        if self.is_possible:
            self.keys[name] = order.keys
            self._patterns[name] = _Patterns.of(name, order.keys)
            self.is_possible = len(self._patterns[name].odd) <= PATTERN_LETTERS_MAX
        return self.is_possible


class _Order:
    """An order of keys in which each map that was added has its own."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._before: dict[str, set[str]] = {}
        """The keys that stand directly before each key in some map."""

    def add(self, keys: Sequence[str]) -> None:
        """Add the keys of a map, unless they contradict others, or need escapes."""
        if len(self.keys) > KEYS_MAX:
            return
        places = [self.keys.index(key) if key in self.keys else -1 for key in keys]
        if all(one < two for one, two in pairwise([-1, *places])) or not all(map(_is_plain, keys)):
            return
        before = {key: set(others) for key, others in self._before.items()}
        for one, two in pairwise([None, *keys]):
            before.setdefault(str(two), set()).update(() if one is None else (one,))
        with suppress(CycleError):
            self.keys, self._before = _sorted(before), before


def _sorted(before: dict[str, set[str]]) -> list[str]:
    """Keys behind those that stand before them; the least one first where there is a choice, as many writers do it.

    Raises
    ------
    CycleError
        There is no such order.
    """
    sorter = TopologicalSorter(before)
    sorter.prepare()
    found: list[str] = []
    ready = list(sorter.get_ready())
    while ready:
        found.append(heappop(ready))
        sorter.done(found[-1])
        for key in sorter.get_ready():
            heappush(ready, key)
    return found


def _keys(text: str, at: int) -> list[str]:
    """The keys of the object at a place; none if there is no sound one."""
    try:
        return [key for key, _ in _DECODER.raw_decode(text, at)[0]]
    except (ValueError, RecursionError):
        return []


def _is_plain(key: str) -> bool:
    """Whether a key is short, without letters that JSON may write only with escapes, or that are no UTF-8."""
    if len(key) > KEY_LETTERS_MAX:
        return False
    is_unicode = "\ufffd" not in key and key == key.encode(errors="replace").decode()
    return is_unicode and json.dumps(key, ensure_ascii=False) == f'"{key}"'


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
            gap = rf"(?:{missing}|{entry}(?:\}}|,{_B}{gap}))" if gap else f"(?:{missing})"
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
