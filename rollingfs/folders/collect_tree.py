"""Collection of a whole tree: one segment after the other, whatever becomes of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from rollingfs.client import Client
from rollingfs.errors import CorruptHeaderError
from rollingfs.folders.listing import Listings
from rollingfs.format import names
from rollingfs.maintenance.collected import Collected

logger = logging.getLogger("rollingfs")

SEGMENTS_AT_ONCE_MAX = 8

Progress = Callable[[str, Collected], None]
"""Called with each segment's path and what was collected of it, from whatever thread or loop the core runs on."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A segment that could not be collected (or not to its end), or a folder that could not be listed; and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CollectedTree(Collected):
    """What the collection of a tree deleted (in a dry run: would delete), all together."""

    segments: tuple[str, ...] = ()
    """Paths of the segments that were looked at, also of those of which there were only leftovers."""
    failures: tuple[Failure, ...] = ()


class TreeCollector:
    """Collects all segments below a folder: live ones, tombstones, and chunk folders whose header is gone."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.listings = Listings(client)

    async def collect(
        self, path: str, *, grace_s: float | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> CollectedTree:
        """Collect every segment at or below a path, as `Collector.collect` does.

        A segment that fails (because of a damaged header, for one) is left alone, and so is a folder that we may not
        list; they are named in the failures, and the others go on.

        Parameters
        ----------
        grace_s
            Leave files younger than this alone, in seconds; by default the format's 24 hours.
        dry_run
            Change nothing, say what would be deleted.
        progress
            Told of each segment.

        Raises
        ------
        FileNotFoundError
            There is neither a folder nor a segment of this name.
        """
        unlisted: list[Failure] = []
        found = await self.segments(path, unlisted)
        seen: dict[str, int] = {}
        calls = [partial(self._one, segment, grace_s, dry_run, progress, seen) for segment in found]
        results = await self.client.runtime.gather(calls, SEGMENTS_AT_ONCE_MAX)
        return _sum(found, [*unlisted, *results])

    async def segments(self, path: str, unlisted: list[Failure] | None = None) -> list[str]:
        """Paths of everything that has a header or a chunk folder, at or below a path; no header below it is read.

        Parameters
        ----------
        unlisted
            Takes the folders below it that we may not list; without it, the first is raised.

        Raises
        ------
        FileNotFoundError
            There is neither a folder nor a segment of this name.
        """
        found: set[str] = set()
        level, is_there = [path], False
        while level:
            listings = await self.client.runtime.gather(
                [partial(self._list, folder, found, None if folder == path else unlisted) for folder in level],
                self.client.backend.requests_max,
            )
            is_there = is_there or any(listing is not None for listing in listings)
            level = [folder for listing in listings for folder in listing or ()]
        if not self.listings.is_top(path) and await self._is_segment(path, is_there or bool(found)):
            found.add(path)
        return sorted(found)

    async def _is_segment(self, path: str, is_folder: bool) -> bool:
        """Whether there is a segment, or something left of one, at a path; of what is no folder, there must be."""
        try:
            if (await self.client.headers.load(path)).header is not None:
                return True
        except CorruptHeaderError:
            return True  # its collection says so
        if await self.client.backend.is_folder(names.chunks_folder(path)):
            return True
        if not is_folder:
            await self.client.lookup.view(path, fresh=True)
        return not is_folder

    async def _list(self, folder: str, found: set[str], unlisted: list[Failure] | None) -> list[str] | None:
        """Note the segments in a folder; returns the folders in it, or None if there is no such folder."""
        try:
            listing = await self.client.backend.list(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            if unlisted is None:
                raise
            unlisted.append(_failure(folder, error))
            return None
        folders = []
        for entry in listing.entries:
            name = entry.path.rpartition("/")[2]
            if not entry.is_folder and name.endswith(names.HEADER_SUFFIX) and name != names.HEADER_SUFFIX:
                found.add(names.segment_of_header(entry.path))
            elif entry.is_folder and name.endswith(names.CHUNKS_SUFFIX) and name != names.CHUNKS_SUFFIX:
                found.add(names.segment_of_folder(entry.path))
            elif entry.is_folder:
                folders.append(entry.path)
        return folders

    async def _one(
        self, path: str, grace_s: float | None, dry_run: bool, progress: Progress | None, seen: dict[str, int]
    ) -> Collected | Failure:
        try:
            collected = await self.client.collector.collect(path, grace_s=grace_s, dry_run=dry_run, seen=seen)
        except FileNotFoundError:
            collected = Collected()  # its last leftovers went meanwhile
        except OSError as error:
            return _failure(path, error)
        if progress is not None:
            progress(path, collected)
        return collected


def _failure(path: str, error: OSError) -> Failure:
    logger.warning("%s is not collected: %s", path, error)
    return Failure(path, str(error))


def _sum(paths: Iterable[str], results: Iterable[Collected | Failure]) -> CollectedTree:
    several = tuple(results)
    total = Collected.of(result for result in several if isinstance(result, Collected))
    failures = tuple(result for result in several if isinstance(result, Failure))
    return CollectedTree(
        total.files,
        total.bytes,
        total.young,
        total.folders,
        total.reasons,
        segments=tuple(paths),
        failures=failures,
    )
