"""Stream cuts: one offset for each segment of a stream, at one moment. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rollingfs.header import OFFSET_MAX

CUT_FORMAT = "rollingfs-cut"
CUT_VERSION = 1
_FIELDS = {CUT_FORMAT, "at", "size", "segments"}


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class StreamCut(Mapping[str, int]):
    """A position in a stream: a mapping from segment paths to segment offsets, which cannot be changed.

    ``str(cut)`` is a line of text, and `StreamCut.parse` its inverse.

    Parameters
    ----------
    offsets
        Offset by segment.
    at
        When it was taken, seconds since 1970: what lies before the cut was written by then.
    size
        Bytes that the stream held then.

    Raises
    ------
    ValueError
        An offset, the time or the size is out of range.
    """

    _offsets: dict[str, int]
    at: float
    size: int

    def __init__(self, offsets: Mapping[str, int], at: float, size: int) -> None:
        for path, offset in offsets.items():
            _check_path(path)
            _check_number(f"the offset of {path!r}", offset)
        _check_number("the size of a stream cut", size)
        _check_time(at)
        object.__setattr__(self, "_offsets", dict(sorted(offsets.items())))
        object.__setattr__(self, "at", float(at))
        object.__setattr__(self, "size", size)

    @staticmethod
    def parse(text: str) -> StreamCut:
        """The cut that `str` made this text of.

        Raises
        ------
        ValueError
            It is no stream cut.
        """
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{_shortened(text)} is no stream cut: it is no JSON ({error})") from error
        if not isinstance(found, dict) or set(found) != _FIELDS or not isinstance(found["segments"], dict):
            raise ValueError(f"{_shortened(text)} is no stream cut: it has not the fields {sorted(_FIELDS)}")
        if found[CUT_FORMAT] != CUT_VERSION:
            raise ValueError(f"a stream cut of format {found[CUT_FORMAT]!r} is too new: upgrade rollingfs to read it")
        return StreamCut(found["segments"], found["at"], found["size"])

    def __str__(self) -> str:
        fields: dict[str, Any] = {CUT_FORMAT: CUT_VERSION, "at": self.at, "size": self.size, "segments": self._offsets}
        return json.dumps(fields, ensure_ascii=False)

    def __repr__(self) -> str:
        return f"StreamCut({self._offsets!r}, at={self.at!r}, size={self.size!r})"

    def __getitem__(self, path: str) -> int:
        return self._offsets[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StreamCut):
            return (self._offsets, self.at, self.size) == (other._offsets, other.at, other.size)
        return self._offsets == dict(other.items()) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    def renamed(self, rename: Callable[[str], str]) -> StreamCut:
        """The same cut with other names for its segments."""
        return StreamCut({rename(path): offset for path, offset in self._offsets.items()}, self.at, self.size)


def _check_path(path: object) -> None:
    if not isinstance(path, str) or not path:
        raise ValueError(f"{path!r} is no segment of a stream cut: it must be a path")


def _check_time(at: object) -> None:
    if isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at):
        raise ValueError(f"the time of a stream cut is {at!r}: it must be seconds since 1970")


def _check_number(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= OFFSET_MAX:
        raise ValueError(f"{what} is {value!r}: it must be a whole number of bytes, at least 0")


def _shortened(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
