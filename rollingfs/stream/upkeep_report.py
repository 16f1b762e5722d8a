"""The report of upkeep on a stream or segment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from rollingfs.runtime.values import added, value_class
from rollingfs.segment.verbs.consolidate import Consolidated
from rollingfs.segment.verbs.offload import Offloaded

logger = logging.getLogger("rollingfs")


@value_class
class Upkept:
    """Work on a stream, or on a segment outside of streams."""

    path: str
    is_stream: bool = False
    dropped_bytes: int = 0
    """By retention."""
    deleted: tuple[str, ...] = ()
    """Sealed segments that retention deleted."""
    rolled: int = 0
    """Inline tails that became chunks, because they were older than `max_age`."""
    consolidated: Consolidated = Consolidated()
    appended_bytes: int = 0
    """All that were ever appended to the segments that were consolidated."""
    written_bytes: int = 0
    """These, and what all consolidations of these segments have written again."""
    offloaded: Offloaded = Offloaded()
    has_policy: bool = False
    """Whether an offload policy with a tier counts for a segment here."""
    files: int = 0
    """By collection."""
    collected_bytes: int = 0
    worn: tuple[str, ...] = ()
    """Open Parquet files that old footers waste a part of, for the caller to write again: that needs Arrow."""
    rewritten_bytes: int = 0
    """Freed by that."""
    young: int = 0
    """Files that a later collection takes."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why, by what failed: the operation and the path."""
    is_cut_short: bool = False
    """Whether the caller stopped it before all was done."""

    @property
    def is_idle(self) -> bool:
        """Return whether there was no step, no failure and no wait."""
        return self == Upkept(self.path, self.is_stream, has_policy=self.has_policy)

    @property
    def saved_objects(self) -> int:
        """Objects that there are fewer by joins and blocks, and requests that a read of everything makes fewer."""
        joined, moved = self.consolidated, self.offloaded
        return joined.replaced - joined.written + moved.chunks - moved.files

    @property
    def write_amplification(self) -> float | None:
        """Return the average number of writes of a byte of consolidated segments, or None."""
        return self.written_bytes / self.appended_bytes if self.appended_bytes else None

    def as_fields(self) -> dict[str, Any]:
        """Return the work by name, for people and programs."""
        amplification = self.write_amplification
        return {
            "dropped_bytes": self.dropped_bytes,
            "deleted": self.deleted,
            "rolled": self.rolled,
            "joined_chunks": self.consolidated.replaced,
            "joined_to": self.consolidated.written,
            "joined_bytes": self.consolidated.bytes,
            "write_amplification": None if amplification is None else round(amplification, 3),
            "chunks": self.offloaded.chunks,
            "moved_bytes": self.offloaded.bytes,
            "saved_objects": self.saved_objects,
            "files": self.files,
            "collected_bytes": self.collected_bytes,
            "rewritten_bytes": self.rewritten_bytes,
            "failed": dict(self.failed),
        }

    def plus(self, *others: Upkept) -> Upkept:
        """Return the sum of all, under the path of this report."""
        return replace(added(self, *others), is_stream=self.is_stream)


def with_rewritten(one: Upkept, rewrite: Callable[[str], int]) -> Upkept:
    """Return the result after its worn Parquet files were written again; an error is part of the result."""
    for path in one.worn:
        try:
            one = replace(one, rewritten_bytes=one.rewritten_bytes + rewrite(path))
        except Exception as error:  # noqa: BLE001 - whatever it is, the next segment has nothing to do with it
            one = one.plus(failure(path, "rewrite", path, error))
    return one


def failure(path: str, verb: str, what: str, error: Exception) -> Upkept:
    """Return an operation that failed, as a result."""
    logger.warning("%s: cannot %s it: %s", what, verb, error)
    return Upkept(path, failed={f"{verb} {what}": str(error)})


def total(results: Sequence[Upkept]) -> Upkept:
    """Return all results together."""
    return Upkept("").plus(*results)
