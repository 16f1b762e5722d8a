"""Ranges of a file as fsspec's users write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Slice = tuple[str, int | None, int | None]
"""A path, and a slice of its bytes."""


def clip(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Return a slice of `size` bytes as begin and end, as Python slices."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def spread(paths: Any, starts: Any, ends: Any) -> list[Slice]:
    """Return the ranges that the arguments of `cat_ranges` name.

    Raises
    ------
    TypeError
        The paths are not a list.
    ValueError
        The lists have different lengths.
    """
    if not isinstance(paths, list):
        raise TypeError(f"cat_ranges takes a list of paths, not {type(paths).__name__}")
    starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
    ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
    if not len(paths) == len(starts) == len(ends):
        raise ValueError(f"cat_ranges got {len(paths)} paths, {len(starts)} starts and {len(ends)} ends")
    return list(zip(paths, starts, ends, strict=True))
