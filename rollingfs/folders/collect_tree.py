"""Find and collect all segments of a tree. A segment that fails does not stop the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.backend import shared_errors
from rollingfs.errors import CorruptHeaderError, worded
from rollingfs.folders.info import remove_rows
from rollingfs.folders.listing import REPORT, ROWLESS_MAX, OnError, Scan, scan, tree
from rollingfs.format import names
from rollingfs.runtime.values import added, value_class
from rollingfs.segment.at import At
from rollingfs.segment.files.survey import Collected, Failure
from rollingfs.segment.read.folder_contents import Sorted, removed_path
from rollingfs.segment.verbs.collect import collect

logger = logging.getLogger("rollingfs")

SEGMENTS_AT_ONCE_MAX = 8


@value_class
class Tree:
    """Everything below a folder that has a header or a chunk folder, by a single listing of each folder."""

    segments: frozenset[str]
    """Live segments, tombstones, and segments whose header is gone."""
    tokens: Mapping[str, str | None]
    """The tokens of the headers, by segment."""
    listed: frozenset[str]
    """The folders that were listed."""
    unlisted: Mapping[str, OSError]
    """The folders that we may not list, and links in place of files of segments, with the error."""
    removed: tuple[str, ...]
    """The folders that are marked as removed."""


def tree_of(scans: Mapping[str, Scan]) -> Tree:
    """Return everything that the scans of folders have found."""
    unlisted = {one.path: one.error for one in scans.values() if one.error is not None}
    tokens, chunked = dict[str, str | None](), set[str]()
    for found in (one.found for one in scans.values()):
        links = [link for link in found.links if names.is_hidden(link.rpartition("/")[2])]
        unlisted |= {link: shared_errors.linked(link) for link in links}
        tokens |= {one: token for one, token in found.headers.items() if names.header_path(one) not in links}
        chunked.update(one for one in found.chunked if names.chunks_folder(one) not in links)
    removed = tuple(one.path for one in scans.values() if one.found.is_removed)
    return Tree(frozenset(chunked.union(tokens)), tokens, frozenset(scans.keys() - unlisted), unlisted, removed)


async def tree_below(at: At, *paths: str, on_error: OnError = REPORT) -> Tree:
    """List folders and all below them; no header is read.

    Parameters
    ----------
    on_error
        Treatment of folders that we may not list, except a single given folder, which raises.
    """
    scans: dict[str, Scan] = {}
    for path in paths:
        try:
            scans |= await tree(at, path, hidden=True, on_error=on_error, by_names=True)
        except PermissionError as error:
            if len(paths) == 1 or on_error != REPORT:
                raise
            scans[path] = Scan(path, Sorted.of(()), error=error)
    return tree_of(scans)


async def tree_at(at: At, path: str, on_error: OnError = REPORT) -> Tree:
    """List everything at or below a path; the same as `tree_below`, with the segment of the path itself.

    Raises
    ------
    FileNotFoundError
        There is neither a folder nor a segment of this name, nor a bucket.
    """
    tree = await tree_below(at, path, on_error=on_error)
    is_top = at.contents.is_top(path)
    if is_top and path.strip("/") and not tree.segments and not await at.backend.is_folder(path):
        raise shared_errors.no_bucket(path, "bucket", f"make it first, with {worded('fs.mkdir')}")
    if is_top or not await _is_segment(at, path, is_folder=path in tree.listed):
        return tree
    return replace(tree, segments=tree.segments | {path})


async def _is_segment(at: At, path: str, *, is_folder: bool) -> bool:
    """Return whether a segment, or its rest, is at a path.

    Raises
    ------
    FileNotFoundError
        The path does not exist.
    """
    try:
        if (await at.headers.load(path)).header is not None:
            return True
    except CorruptHeaderError:
        return True  # its collection reports it
    if await at.backend.is_folder(names.chunks_folder(path)):
        return True
    if not is_folder:
        await at.headers.view(path, fresh=True)
    return not is_folder


async def clear_marks(at: At, tree: Tree) -> None:
    """Remove the folders of users' removals in which no tombstone is left, with their marks."""
    for folder in sorted(tree.removed, reverse=True):
        try:
            if [entry.path for entry in (await at.backend.list(folder)).entries] != [removed_path(folder)]:
                continue
            await at.backend.delete([removed_path(folder)])
            await at.backend.remove_folder(folder)
        except OSError as error:
            logger.info("%s: the removed folder stays for now: %s", folder, error)


async def collect_tree(
    at: At, path: str, *, grace_s: float | None = None, dry_run: bool = False, callback: Callback = DEFAULT_CALLBACK
) -> Collected:
    """Collect every segment at or below a path: live segments, tombstones, and chunk folders whose header is gone.

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
    tree = await tree_at(at, path)
    segments = tuple(sorted(tree.segments))
    failures = [_failure(folder, error) for folder, error in tree.unlisted.items()]
    callback.set_size(len(segments))
    run = partial(collect, at, grace_s=grace_s, dry_run=dry_run, seen={}, named=tree.segments)

    async def one(segment: str) -> Collected:
        try:
            return await run(segment)
        except FileNotFoundError:
            return Collected()  # somebody else deleted its leftovers meanwhile
        except (OSError, ValueError) as error:
            failures.append(_failure(segment, error))
            return Collected()
        finally:
            callback.relative_update(1)

    results = await at.runtime.gather([partial(one, segment) for segment in segments], SEGMENTS_AT_ONCE_MAX)
    if not dry_run:
        await _refresh_rows(at, segments)
        await clear_marks(at, tree)
    return replace(added(Collected(), *results), segments=segments, failures=tuple(failures))


async def _refresh_rows(at: At, segments: Sequence[str]) -> None:
    """Write the rows of folders of many segments; delete rows without segments."""
    counts = Counter(names.parent(segment) for segment in segments)
    alone = [names.parent(one) for one in segments if names.is_listing(one) and counts[names.parent(one)] == 1]
    try:
        for folder in alone:
            await remove_rows(at, folder)
        for folder, count in counts.items():
            if count > ROWLESS_MAX:
                await scan(at, folder, REPORT, with_rows=True, rowless_max=0)
    except OSError as error:
        logger.info("the rows of folders are not renewed, so listings read the headers: %s", error)


def _failure(path: str, error: Exception) -> Failure:
    logger.warning("%s is not collected: %s", path, error)
    return Failure(path, str(error))
