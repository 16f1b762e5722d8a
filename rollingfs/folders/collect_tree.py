"""Collects all segments of a tree. A segment that fails does not stop the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.backend import shared_errors
from rollingfs.errors import CorruptHeaderError
from rollingfs.folders.listing import REPORT, ROWLESS_MAX, Listings
from rollingfs.format import names
from rollingfs.runtime.values import added, value_class
from rollingfs.segment.at import At
from rollingfs.segment.files.collected import Collected
from rollingfs.segment.read.folder_contents import removed_path
from rollingfs.segment.verbs.collect import collect

logger = logging.getLogger("rollingfs")

SEGMENTS_AT_ONCE_MAX = 8


@value_class
class Failure:
    """A segment that could not be collected (or not to its end) or a folder that could not be listed, and why."""

    path: str
    reason: str


@value_class
class CollectedTree(Collected):
    """Sum of the files that a collection deleted (in a dry run: would delete)."""

    segments: tuple[str, ...] = ()
    """Paths of the segments that were looked at, and of former segments that have only leftovers."""
    failures: tuple[Failure, ...] = ()


class TreeCollector:
    """Collects all segments below a folder: live segments, tombstones, and chunk folders whose header is gone."""

    def __init__(self, client: At) -> None:
        self.client = client
        self.listings = Listings(client)
        self.removed: list[str] = []
        """The folders marked as removed that `segments` has met."""
        self.listed: set[str] = set()
        """The folders that `segments` has listed."""
        self.tokens: dict[str, str | None] = {}
        """The tokens of the headers that it has met, by segment."""

    async def clear_marks(self) -> None:
        """Remove the folders of users' removals in which no tombstone is left, with their marks."""
        for folder in sorted(self.removed, reverse=True):
            try:
                if [entry.path for entry in (await self.client.backend.list(folder)).entries] != [removed_path(folder)]:
                    continue
                await self.client.backend.delete([removed_path(folder)])
                await self.client.backend.remove_folder(folder)
            except OSError as error:
                logger.info("%s: the removed folder stays for now: %s", folder, error)

    async def collect(
        self, path: str, *, grace_s: float | None = None, dry_run: bool = False, callback: Callback = DEFAULT_CALLBACK
    ) -> CollectedTree:
        """Collect every segment at or below a path, as `Collector.collect` does.

        A segment that fails (by a damaged header, for example) is left as it is, and so is a folder that we may not
        list. The failures name them, and the others are collected.

        Parameters
        ----------
        grace_s
            Minimum age of a file to be deleted, in seconds; by default the 24 hours of the format.
        dry_run
            Delete no file, report the files that would be deleted.
        callback
            Counts the segments that are done or have failed, in fsspec's way.

        Raises
        ------
        FileNotFoundError
            There is neither a folder nor a segment of this name.
        """
        unlisted: dict[str, OSError] = {}
        found = await self.segments(path, unlisted)
        failures = [_failure(folder, error) for folder, error in unlisted.items()]
        seen: dict[str, int] = {}
        named = frozenset(found)
        callback.set_size(len(found))

        async def one(segment: str) -> Collected | Failure:
            result = await self._one(segment, grace_s, dry_run, seen, named)
            callback.relative_update(1)
            return result

        calls = [partial(one, segment) for segment in found]
        results = await self.client.runtime.gather(calls, SEGMENTS_AT_ONCE_MAX)
        if not dry_run:
            await self._refresh_rows(found)
            await self.clear_marks()
        return _sum(found, [*failures, *results])

    async def _refresh_rows(self, segments: Sequence[str]) -> None:
        """Write the rows of folders of many segments; delete rows without segments."""
        counts = Counter(names.parent(segment) for segment in segments)
        alone = [names.parent(one) for one in segments if names.is_listing(one) and counts[names.parent(one)] == 1]
        try:
            for folder in alone:
                await self.listings.rows.remove(folder)
            for folder, count in counts.items():
                if count > ROWLESS_MAX:
                    await self.listings.scan(folder, REPORT, with_rows=True, rowless_max=0)
        except OSError as error:
            logger.info("the rows of folders are not renewed, so listings read the headers: %s", error)

    async def segments(self, path: str, unlisted: dict[str, OSError] | None = None) -> list[str]:
        """Paths of everything at or below a path that has a header or a chunk folder; headers below it are not read.

        Parameters
        ----------
        unlisted
            Takes the folders below the path that we may not list, with the error; if it is None, the first raises.

        Raises
        ------
        FileNotFoundError
            There is neither a folder nor a segment of this name.
        """
        found = await self.below(path, unlisted)
        if not self.listings.is_top(path) and await self._is_segment(path, path in self.listed or bool(found)):
            found.add(path)
        return sorted(found)

    async def below(self, path: str, unlisted: dict[str, OSError] | None = None) -> set[str]:
        """Return the paths below, by a single listing of each folder."""
        found: set[str] = set()
        level = [path]
        while level:
            listings = await self.client.runtime.gather(
                [partial(self._list, folder, found, unlisted, folder == path) for folder in level],
                self.client.backend.capability.requests_max,
            )
            level = [folder for listing in listings for folder in listing or ()]
        return found

    async def _is_segment(self, path: str, is_folder: bool) -> bool:
        """Return whether a segment, or its rest, is at a path.

        Raises
        ------
        FileNotFoundError
            The path does not exist.
        """
        try:
            if (await self.client.headers.load(path)).header is not None:
                return True
        except CorruptHeaderError:
            return True  # its collection reports it
        if await self.client.backend.is_folder(names.chunks_folder(path)):
            return True
        if not is_folder:
            await self.client.headers.view(path, fresh=True)
        return not is_folder

    async def _list(
        self, folder: str, found: set[str], unlisted: dict[str, OSError] | None, is_top: bool
    ) -> list[str] | None:
        """Note the segments in a folder; returns the folders in it, or None if there is no such folder."""
        try:
            listing = await self.client.backend.list(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            if unlisted is None or is_top:
                raise
            unlisted[folder] = error
            return None
        folders = []
        self.listed.add(folder)
        for entry in listing.entries:
            name = entry.path.rpartition("/")[2]
            if entry.link is not None and (entry.is_folder or names.is_hidden(name)):
                if names.is_hidden(name) and unlisted is not None:
                    unlisted[entry.path] = shared_errors.linked(entry.path)
                continue  # what a link leads to is not below this folder
            if not entry.is_folder and name.endswith(names.HEADER_SUFFIX) and name != names.HEADER_SUFFIX:
                found.add(names.segment_of_header(entry.path))
                self.tokens[names.segment_of_header(entry.path)] = entry.token
            elif entry.is_folder and name.endswith(names.CHUNKS_SUFFIX) and name != names.CHUNKS_SUFFIX:
                found.add(names.segment_of_folder(entry.path))
            elif name == names.REMOVED_NAME:
                self.removed.append(folder)
            elif entry.is_folder:
                folders.append(entry.path)
        return folders

    async def _one(
        self, path: str, grace_s: float | None, dry_run: bool, seen: dict[str, int], named: frozenset[str]
    ) -> Collected | Failure:
        try:
            collected = await collect(self.client, path, grace_s=grace_s, dry_run=dry_run, seen=seen, named=named)
        except FileNotFoundError:
            collected = Collected()  # somebody else deleted its leftovers meanwhile
        except (OSError, ValueError) as error:
            return _failure(path, error)
        return collected


def _failure(path: str, error: Exception) -> Failure:
    logger.warning("%s is not collected: %s", path, error)
    return Failure(path, str(error))


def _sum(paths: Sequence[str], results: Sequence[Collected | Failure]) -> CollectedTree:
    several = tuple(results)
    total = added(Collected(), *(result for result in several if isinstance(result, Collected)))
    failures = tuple(result for result in several if isinstance(result, Failure))
    return CollectedTree(
        total.files, total.bytes, total.young, total.folders, total.reasons, segments=tuple(paths), failures=failures
    )
