"""The plan of a consolidation: which neighbouring chunks to join. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rollingfs.format.header import Chunk

PARTS_MAX = 10_000
"""Maximum bytes of one object, on S3."""
RUN_BYTES_MAX = 1024**4
"""Maximum bytes of one run. S3 takes objects of up to 5 TiB, in parts of at most 5 GiB, so a run has few parts."""
GAIN_MIN = 4
"""A run is joined if all but its largest chunk are at least a quarter of that one. So a byte is copied few times."""


def size_of(chunks: Sequence[Chunk]) -> int:
    """Bytes of the segment that some chunks hold."""
    return sum(chunk.length for chunk in chunks)


def plan(
    chunks: Sequence[Chunk], max_bytes: int, *, is_last: bool, sealed: bool
) -> tuple[int, list[tuple[Chunk, ...]]]:
    """The runs to join, each into one chunk, and the offset from which to plan on.

    Parameters
    ----------
    chunks
        Consecutive ones.
    max_bytes
        Of a chunk.
    is_last
        Whether nothing follows; else the last run is left to the next plan, which sees more of it.
    sealed
        Whether nothing will be added; then all that can be joined is joined.
    """
    groups = _groups(chunks, min(max_bytes, RUN_BYTES_MAX))
    if not is_last and len(groups) > 1:
        groups.pop()
    runs = [run for group in groups for run in ([group] if sealed else _worthy(group)) if len(run) > 1]
    return groups[-1][-1].end if groups else 0, runs


def _groups(chunks: Sequence[Chunk], max_bytes: int) -> list[tuple[Chunk, ...]]:
    """Cut into runs as long as fit one chunk."""
    groups: list[tuple[Chunk, ...]] = []
    first = size = 0
    for index, chunk in enumerate(chunks):
        is_apart = chunk.tier or chunks[index - 1].tier  # what lies in a tier stays as it is
        if index > first and (is_apart or size + chunk.length > max_bytes or index - first >= PARTS_MAX):
            groups.append(tuple(chunks[first:index]))
            first, size = index, 0
        size += chunk.length
    return [*groups, tuple(chunks[first:])] if chunks else []


def _worthy(run: tuple[Chunk, ...]) -> list[tuple[Chunk, ...]]:
    """The parts of a run that are worth joining: all of it, or what lies beside a chunk too large for the rest."""
    found: list[tuple[Chunk, ...]] = []
    waiting = [run]
    while waiting:
        part = waiting.pop()
        if len(part) < 2:
            continue
        sizes = [chunk.length for chunk in part]
        largest = sizes.index(max(sizes))
        if (sum(sizes) - sizes[largest]) * GAIN_MIN >= sizes[largest]:
            found.append(part)
        else:
            waiting += [part[largest + 1 :], part[:largest]]
    return found
