"""From a URL to its segments: a segment, a folder, or a pattern.

Plain files are read as segments, here and in all modules of the data source.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import fsspec

from rollingfs.errors import CorruptHeaderError
from rollingfs.folders.listing import REPORT, Scan, tree
from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.fs.target import options_of_url
from rollingfs.runtime.system import HAS_OWNERS
from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import hadoop_globs, segments
from rollingfs.spark.source.options import Options, parse_url

BEING_COPIED = "._COPYING_"
"""So ends the name of a file that Hadoop's shell has not finished."""
SUMMARIES = ("_metadata", "_common_metadata")
"""Spark goes into folders whose names begin so."""


def is_skipped_file(name: str) -> bool:
    """Return whether Spark skips a file of this name."""
    return name.startswith(".") or name.endswith(BEING_COPIED) or (name.startswith("_") and "=" not in name)


def is_skipped(path: str) -> bool:
    """Return whether Spark skips what is at a path, which is relative to a folder that a query names."""
    *folders, name = path.strip("/").split("/")
    return is_skipped_file(name) or any(
        is_skipped_file(folder) and not folder.startswith(SUMMARIES) for folder in folders
    )


LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"
"""The variable in which Spark reports its workers which folders its block manager has made."""
LOCAL_PREFIX = "blockmgr-"
"""Prefix of these folders; Spark removes them when the application ends."""
SHOWN_MAX = 8
"""Maximum number of segments, or of queries, that a message names."""

Looks = dict[str, Segment | CorruptHeaderError]
"""By path: the segment, or why its header cannot be read."""


def filesystem(options: Options) -> RollingFileSystem:
    """Return the filesystem of the options, shared by all tasks of a process.

    Raises
    ------
    ValueError
        The paths name different hosts, or a protocol that is unknown.
    """
    if options.target_protocol not in {*fsspec.registry, *fsspec.available_protocols()}:
        raise ValueError(
            f"{options.paths[0]}: fsspec knows no filesystem for {options.target_protocol}://; write s3://, "
            "az://, gs://, webhdfs:// or file:///, or install the package that has it"
        )
    of_url, *others = [options_of_url(options.target_protocol, path) for path in options.paths]
    if any(other != of_url for other in others):
        raise ValueError("all paths must lie on one backend, but they name different hosts or accounts")
    fs: RollingFileSystem = fsspec.filesystem(
        "rolling",
        target_protocol=options.target_protocol,
        target_options={**of_url, **options.target_options},
        **{"probe_cache": worker_folder() or True, **options.rolling_options},
    )
    return fs


def worker_folder() -> str | None:
    """Return a private folder that all workers of an application share.

    It keeps the verdicts of the probe: Spark ends its idle workers, and each new worker would probe the store again.
    Only workers have it.
    """
    for folder in os.environ.get(LOCAL_FOLDERS, "").split(",") if HAS_OWNERS else ():
        if not os.path.basename(folder).startswith(LOCAL_PREFIX) or not os.path.isdir(folder):
            continue
        found = os.stat(folder)
        if found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return folder
    return None


@value_class
class FoundSegments:
    """Segments at some places now."""

    views: Mapping[str, Segment]
    """By path, sorted."""
    corrupt: Mapping[str, CorruptHeaderError]
    """Segments whose header cannot be read."""
    folders: frozenset[str] = frozenset()
    """The places, no patterns, that are folders with something in them."""

    def __str__(self) -> str:
        named = shortened([f"{path} ({error})" for path, error in self.corrupt.items()])
        return f"{len(self.corrupt)} of {len(self.corrupt) + len(self.views)} segments cannot be read: {named}"


def shortened(shown: Sequence[str]) -> str:
    """Return a list for a message."""
    more = f" and {len(shown) - SHOWN_MAX} more" if len(shown) > SHOWN_MAX else ""
    return ", ".join(shown[:SHOWN_MAX]) + more


def find(
    fs: RollingFileSystem,
    options: Options,
    known: frozenset[str] = frozenset(),
    *,
    may_be_missing: bool = False,
    may_match_nothing: bool = False,
) -> FoundSegments:
    """Find the segments to read now; names that Spark skips are skipped.

    Parameters
    ----------
    known
        Places that were folders a moment ago: each costs a listing while it is not empty.
    may_be_missing
        Whether an empty place is allowed.
    may_match_nothing
        Whether a pattern without a match is allowed.

    Raises
    ------
    FileNotFoundError
        A place that is not a pattern holds neither a segment nor a folder, or a pattern has no match.
    CorruptHeaderError
        The header of a segment cannot be read, and the options do not skip it.
    ValueError
        A pattern cannot be read.
    """
    looks: Looks = {}
    folders = set()
    for path in map(core(fs).strip, options.paths):
        if hadoop_globs.is_pattern(path):
            found = _matching(fs, path)
            if found is None and not may_match_nothing:
                raise FileNotFoundError(errno.ENOENT, "No segment, file or folder matches this pattern", path)
            looks |= found or {}
            continue
        there = (_below(fs, path) if path in known else {}) or _at(fs, path, may_be_missing=may_be_missing)
        if there and path not in there:
            folders.add(path)
        looks |= there
    return _allowed(looks, frozenset(folders), options)


def complete(fs: RollingFileSystem, options: Options, found: FoundSegments, known: Iterable[str]) -> FoundSegments:
    """Return what was found, with the segments that a reader knows and a listing has missed: each is looked at by name.

    Raises
    ------
    CorruptHeaderError
        As `find`.
    """
    missing = [path for path in known if path not in found.views and path not in found.corrupt]
    looks = zip(missing, segments.look(fs, missing), strict=True) if missing else ()
    there = {path: look for path, look in looks if look is not None}
    return _allowed({**found.views, **found.corrupt, **there}, found.folders, options) if there else found


def _allowed(looks: Looks, folders: frozenset[str], options: Options) -> FoundSegments:
    """Return readable segments, and unreadable segments if they are skipped."""
    ordered = sorted(looks.items())
    views = {path: look for path, look in ordered if isinstance(look, Segment)}
    corrupt = {path: look for path, look in ordered if isinstance(look, CorruptHeaderError)}
    found = FoundSegments(views, corrupt, folders)
    if found.corrupt and not options.skips_corrupt:
        first = next(iter(found.corrupt.values()))
        raise CorruptHeaderError(f"{found}; option onCorrupt=skip goes on without") from first
    return found


def bases(options: Options) -> tuple[str, ...]:
    """Return the paths below which folders are columns.

    They are the paths of a query; of a pattern, the part above its first wildcard.

    Raises
    ------
    ValueError
        The query names something that is not below option ``basePath``.
    """
    found = tuple(hadoop_globs.above(RollingFileSystem._strip_protocol(path)) for path in options.paths)
    if options.base_path is None:
        return found
    base: str = RollingFileSystem._strip_protocol(parse_url(options.base_path)[1])
    for path in found:
        if path != base and not path.startswith(f"{base}/"):
            raise ValueError(f"option basePath is {options.base_path!r}, but {path} does not lie below it")
    return (base,)


def _matching(fs: RollingFileSystem, pattern: str) -> Looks | None:
    """Return the segments that a pattern matches, and those below folders that it matches; None without a match.

    Folders that lead to no match are not listed.
    """
    choices, is_meant = hadoop_globs.alternatives(pattern), meaning(pattern, shown=True)
    top = hadoop_globs.above(pattern) or ("/" if pattern.startswith("/") else "")
    scans = _scans(fs, top, lambda folder: any(hadoop_globs.leads(folder.split("/"), choice) for choice in choices))
    found = _visible(scans, is_meant)
    paths = [path.split("/") for path in (*found, *scans) if path != top]
    is_there = any(hadoop_globs.has_prefix(path, choice) for path in paths for choice in choices)
    return {path: look for path, look in found.items() if is_meant(path)} if is_there else None


def _at(fs: RollingFileSystem, path: str, *, may_be_missing: bool = False) -> Looks:
    """Return the segment of a path; else the segments below it."""
    try:
        view = segments.view_now(fs, path)
    except CorruptHeaderError as error:
        return {path: error}
    if view is not None:
        return {path: view}
    below = {} if names.is_reserved(path) else _below(fs, path)
    if not below and not may_be_missing and not fs.isdir(path):
        raise missing(path)
    return below


def _below(fs: RollingFileSystem, folder: str) -> Looks:
    """Return the segments below a folder, if it exists."""
    found = _visible(_scans(fs, folder)).items()
    return {path: look for path, look in found if not is_skipped(path[len(folder) :])}


def _scans(fs: RollingFileSystem, top: str, into: Callable[[str], object] = bool) -> Mapping[str, Scan]:
    """Return a folder and those below it, each listed once."""
    return core(fs).run(tree(core(fs).client, top, on_error=REPORT, into=into))


def _visible(scans: Mapping[str, Scan], is_meant: Callable[[str], object] = bool) -> Looks:
    """Return the segments of some folders; an error of what is meant is raised, unless its header is corrupt."""
    corrupt: Looks = {}
    for scan in scans.values():
        for path, error in (scan.errors | ({scan.path: scan.error} if scan.error else {})).items():
            if isinstance(error, CorruptHeaderError):
                corrupt[path] = error
            elif path == scan.path or is_meant(path):
                raise error
    looks = corrupt | {path: look for scan in scans.values() for path, look in scan.listed.items()}
    # a segment hides the folder of its name, also when its header cannot be read
    return {path: look for path, look in looks.items() if corrupt.keys().isdisjoint(folders_of(path))}


def meant(fs: RollingFileSystem, options: Options) -> Callable[[str], bool]:
    """Return whether a query names a segment, as `meaning`."""
    choices = [meaning(core(fs).strip(path), shown=True) for path in options.paths]
    return lambda path: any(is_meant(path) for is_meant in choices)


def meaning(path: str, *, shown: bool = False) -> Callable[[str], bool]:
    """Return whether a path means a segment: it is there or below, or matches as a pattern, or is below a match.

    Parameters
    ----------
    shown
        Leave out the names that reads skip.
    """
    choices = hadoop_globs.alternatives(path) if hadoop_globs.is_pattern(path) else [tuple(path.split("/"))]

    def is_meant(one: str) -> bool:
        parts = one.split("/")
        depths = {len(choice) for choice in choices if hadoop_globs.has_prefix(parts, choice)}
        if not shown or (one == path and depths):
            return bool(depths)
        # a file that a pattern matches is skipped by its own name, and what lies below a match by all names below
        return any(not is_skipped("/".join(parts[min(depth, len(parts) - 1) :])) for depth in depths)

    return is_meant


def folders_of(path: str) -> Iterator[str]:
    """Yield the folders that a path is in, the lowest first."""
    while path := path.rpartition("/")[0]:
        yield path


# -- queries that write into what they read: each batch would make the rows of the next --------------------------------
#
# Spark reports neither the source of a query nor its sink about the other. The id of the query is known to tasks of
# both: a task of the source notes its segments, for tasks of the sink on its machine. On another machine, the second
# batch sees the attribute that the sink left with the first.

QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark reports tasks the id of the query."""
ATTRIBUTE_PREFIX = "spark/"
"""The attributes in which a segment notes the batches that it has, by query, begin with this."""


def note_source(fs: RollingFileSystem, options: Options, query: str) -> None:
    """Note what a query reads, once for each source of it."""
    folder = worker_folder()
    if folder is None:
        return
    text = json.dumps([_store(options), [core(fs).strip(path) for path in options.paths]])
    path = f"{_notes(folder, query)}-{zlib.crc32(text.encode()):08x}"
    if not os.path.exists(path):
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)


def check_target(options: Options, query: str, paths: Iterable[str]) -> None:
    """Refuse segments that a query writes and also reads, as far as tasks on this machine have noted it.

    Raises
    ------
    ValueError
        There is such a segment.
    """
    folder = worker_folder()
    if folder is None:
        return
    begin = os.path.basename(_notes(folder, query))
    for name in sorted(os.listdir(folder)):
        if not name.startswith(begin) or "." in name:  # a file of another query, or one that is being written
            continue
        with suppress(FileNotFoundError), open(f"{folder}/{name}", encoding="utf-8") as file:
            store, read = json.load(file)
            meant = [meaning(place, shown=True) for place in read] if store == _store(options) else []
            found = next((path for path in paths if any(is_meant(path) for is_meant in meant)), None)
            if found is not None:
                raise ValueError(_loop(found, "nothing of this batch was written"))


def check_source(view: Segment, query: str | None) -> None:
    """Refuse to read what the query itself has written.

    Raises
    ------
    ValueError
        The segment has the attribute of the query.
    """
    if query is not None and f"{ATTRIBUTE_PREFIX}{query}" in view.attrs:
        raise ValueError(_loop(view.path, "what earlier batches have written there stays"))


def _loop(path: str, state: str) -> str:
    return (
        f"{path}: the query writes into this segment and reads it, so its rows would come back for ever; {state}. "
        "Start it with a target that it does not read"
    )


def _store(options: Options) -> str:
    """Return a checksum that distinguishes stores, because options hold secrets."""
    known = json.dumps([options.target_protocol, dict(options.target_options)], sort_keys=True, default=str)
    return f"{zlib.crc32(known.encode()):08x}"


def _notes(folder: str, query: str) -> str:
    return f"{folder}/rollingfs-reads-{query}"
