"""fsspec's caches as open files use them: bytes that a cache does not know are fetched, and never made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsspec.caching import BaseCache, KnownPartsOfAFile, MMapCache


def cached(cache: BaseCache, path: str, start: int, end: int, fetch: Callable[[int, int], bytes]) -> bytes:
    """The bytes between two positions of a file, from a cache, or from `fetch` if the cache cannot fetch them.

    Raises
    ------
    ValueError
        A cache of known parts is strict and does not know these bytes.
    """
    if isinstance(cache, KnownPartsOfAFile) and not any(first <= start and end <= last for first, last in cache.data):
        if cache.strict:
            raise ValueError(
                f"{path}: bytes {start} to {end} are not among the parts that are known, and the cache is strict"
            )
        return fetch(start, end)  # the cache would give zeros
    blocks: Any = getattr(cache, "blocks", None)
    known = set(blocks) if isinstance(cache, MMapCache) else None
    try:
        data: bytes = cache._fetch(start, end)
    except BaseException:
        if known is not None:
            blocks.intersection_update(
                known
            )  # the cache notes blocks before it has them, and would give zeros next time
        raise
    return data
