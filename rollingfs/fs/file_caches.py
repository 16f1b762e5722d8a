"""fsspec's caches as our open files use them: what they do not know is fetched, and never made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsspec.caching import BaseCache, KnownPartsOfAFile, MMapCache, caches


def check_cache_type(path: str, cache_type: str) -> None:
    """Refuse a cache that fsspec does not know.

    Raises
    ------
    ValueError
        It does not.
    """
    if cache_type not in caches:
        raise ValueError(f"{path}: fsspec knows no cache_type {cache_type!r}; leave it out, none is needed")


def prepared(cache: BaseCache | None) -> BaseCache | None:
    """A cache that somebody has given an open file."""
    if isinstance(cache, MMapCache):
        cache.multi_fetcher = None  # it would ask for what is there by now, not for what was opened
    return cache


def cached(cache: BaseCache, path: str, start: int, end: int, fetch: Callable[[int, int], bytes]) -> bytes:
    """The bytes between two positions of a file, by a cache or, where that cannot fetch them, by `fetch`.

    Raises
    ------
    ValueError
        A cache of known parts is strict, and does not know them.
    """
    if isinstance(cache, KnownPartsOfAFile) and not _knows(cache, start, end):
        if cache.strict:
            raise ValueError(f"{path}: bytes {start} to {end} are not among the parts that are known")
        return fetch(start, end)  # it would give zeros
    blocks: Any = getattr(cache, "blocks", None)
    known = set(blocks) if isinstance(cache, MMapCache) else None
    try:
        data: bytes = cache._fetch(start, end)
    except BaseException:
        if known is not None:
            blocks.intersection_update(known)  # it notes blocks before it has them, and would give zeros next time
        raise
    return data


def _knows(cache: KnownPartsOfAFile, start: int, end: int) -> bool:
    return any(first <= start and end <= last for first, last in cache.data)
