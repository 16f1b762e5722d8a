"""Stream cuts: an offset for each segment of a stream, at a moment. Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from types import MappingProxyType
from typing import TypeVar

from rollingfs.format.header import OFFSET_MAX
from rollingfs.format.tokens import read_json
from rollingfs.runtime.interpreter import collected_later
from rollingfs.runtime.values import value_class

T = TypeVar("T")

CUT_FORMAT = "rollingfs-cut"
CUT_VERSION = 1
TIME_S_MAX = 2.0**53
_FIELDS = {CUT_FORMAT, "at", "size", "segments", "incarnations"}


@value_class
class StreamCut(Mapping[str, int]):
    """A position in a stream: an immutable mapping from segment paths to segment offsets.

    A cut also names the incarnation of each segment, and does not apply to a later segment of the same name.
    ``str(cut)`` is a line of text, and `StreamCut.parse` is its inverse.

    Parameters
    ----------
    offsets
        Offset by segment.
    at
        Time of the cut, in seconds since 1970. All bytes before the cut had been written by then.
    size
        Bytes that the stream held then.
    incarnations
        Incarnation by segment, from a cut that `Stream.cut` took. No bytes are dropped by an offset without an
        incarnation. Incarnations of segments that the cut does not name are left out.

    Raises
    ------
    ValueError
        An offset, the time or the size is out of range, or an incarnation is not text.
    """

    _offsets: dict[str, int]
    at: float
    size: int
    _incarnations: dict[str, str]

    @collected_later()
    def __init__(
        self, offsets: Mapping[str, int], at: float, size: int, incarnations: Mapping[str, str] | None = None
    ) -> None:
        offsets, known = dict(offsets.items()), dict((incarnations or {}).items())
        if not (_are_texts(offsets) and _are_offsets(offsets.values())):
            for path, offset in offsets.items():
                _check_path(path)
                _check_number(f"the offset of {path!r}", offset)
        _check_number("the size of a stream cut", size)
        _check_time(at)
        if not known.keys() <= offsets.keys():
            known = {path: incarnation for path, incarnation in known.items() if path in offsets}
        if not _are_texts(known.values()):
            for path, incarnation in known.items():
                _check_incarnation(path, incarnation)
        object.__setattr__(self, "_offsets", _by_path(offsets))
        object.__setattr__(self, "at", float(at))
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "_incarnations", _by_path(known))

    @property
    def incarnations(self) -> Mapping[str, str]:
        """Return the known incarnations, by segment."""
        return MappingProxyType(self._incarnations)

    def incarnation(self, path: str) -> str | None:
        """Return the incarnation of a segment, if it is known."""
        return self._incarnations.get(path)

    def items(self) -> ItemsView[str, int]:
        """Return the offsets by segment."""
        return self._offsets.items()

    def values(self) -> ValuesView[int]:
        """Return the offsets."""
        return self._offsets.values()

    @collected_later()
    def columns(self) -> list[tuple[str, str | None]]:
        """Return the segments with their incarnations, in the order of the offsets."""
        return list(zip(self._offsets, map(self._incarnations.get, self._offsets), strict=True))

    def has_columns_of(self, other: StreamCut | None) -> bool:
        """Return whether both name the same segments with the same incarnations.

        It is much cheaper than to compare `columns`.
        """
        if other is None or self._offsets.keys() != other._offsets.keys():
            return False
        return self._incarnations == other._incarnations

    @staticmethod
    def parse(text: str) -> StreamCut:
        """Return the inverse of `str`.

        Raises
        ------
        ValueError
            The text is not a stream cut.
        """
        try:
            found = read_json(text)
        except ValueError as error:
            raise ValueError(f"{_shortened(text)} is not a stream cut: {error}") from error
        version = found.get(CUT_FORMAT, CUT_VERSION) if isinstance(found, dict) else CUT_VERSION
        if version != CUT_VERSION:
            raise ValueError(f"a stream cut of format {version!r} is too new: upgrade rollingfs to read it")
        if not isinstance(found, dict) or set(found) != _FIELDS:
            raise ValueError(f"{_shortened(text)} is not a stream cut: its fields must be {', '.join(sorted(_FIELDS))}")
        if not isinstance(found["segments"], dict) or not isinstance(found["incarnations"], dict):
            raise ValueError(f"{_shortened(text)} is not a stream cut: its segments must be by name")
        return StreamCut(found["segments"], found["at"], found["size"], found["incarnations"])

    def __str__(self) -> str:
        fields = {CUT_FORMAT: CUT_VERSION, "at": self.at, "size": self.size, "segments": self._offsets}
        return json.dumps({**fields, "incarnations": self._incarnations}, ensure_ascii=False)

    def __repr__(self) -> str:
        said = f", incarnations={self._incarnations!r}" if self._incarnations else ""
        return f"StreamCut({self._offsets!r}, at={self.at!r}, size={self.size!r}{said})"

    def __getitem__(self, path: str) -> int:
        return self._offsets[path]

    def __contains__(self, path: object) -> bool:
        return path in self._offsets

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StreamCut):
            return self._values() == other._values()
        return self._offsets == dict(other.items()) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    def _values(self) -> tuple[object, ...]:
        return self._offsets, self.at, self.size, self._incarnations

    def renamed(self, rename: Callable[[str], str]) -> StreamCut:
        """Return the same cut with other names for its segments."""
        new = dict(zip(self._offsets, map(rename, self._offsets), strict=True))
        offsets = dict(zip(new.values(), self._offsets.values(), strict=True))
        incarnations = dict(zip(map(new.__getitem__, self._incarnations), self._incarnations.values(), strict=True))
        return StreamCut(offsets, self.at, self.size, incarnations)

    def only(self, paths: Iterable[str]) -> StreamCut:
        """Return the same cut with some of its segments only."""
        kept = set(paths)
        offsets = {path: offset for path, offset in self._offsets.items() if path in kept}
        return StreamCut(offsets, self.at, self.size, self._incarnations)


def _by_path(values: dict[str, T]) -> dict[str, T]:
    """Order by path, as most are already."""
    paths = sorted(values)
    return values if paths == list(values) else {path: values[path] for path in paths}


def _are_texts(values: Collection[object]) -> bool:
    """Return whether all are texts with at least a character."""
    return set(map(type, values)) <= {str} and all(values)


def _are_offsets(values: Collection[int]) -> bool:
    return set(map(type, values)) <= {int} and (not values or (min(values) >= 0 and max(values) <= OFFSET_MAX))


def _check_path(path: object) -> None:
    if not isinstance(path, str) or not path:
        raise ValueError(f"{path!r} is not a segment of a stream cut: it must be a path")


def _check_incarnation(path: str, incarnation: object) -> None:
    if not isinstance(incarnation, str) or not incarnation:
        raise ValueError(f"the incarnation of {path!r} is {incarnation!r}: it must be a text")


def _check_time(at: object) -> None:
    if isinstance(at, bool) or not isinstance(at, int | float) or not abs(at) <= TIME_S_MAX:
        raise ValueError(f"the time of a stream cut is {at!r}: it must be seconds since 1970")


def _check_number(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= OFFSET_MAX:
        raise ValueError(f"{what} is {value!r}: it must be a whole number of bytes, at least 0")


def _shortened(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
