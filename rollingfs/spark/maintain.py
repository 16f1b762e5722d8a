"""Maintenance of thousands of segments, as one Spark job or by threads: each segment gives a row, also if it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from glob import has_magic
from typing import Any

from rollingfs.folders.collect_tree import TreeCollector
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.policy import READERS_GRACE_S, parse_bytes, parse_seconds
from rollingfs.spark import job
from rollingfs.spark.segment_operations import (
    EXPORT,
    OPERATIONS,
    ROW_SCHEMA,
    UPKEEP,
    ExportFolder,
    Row,
    Settings,
    maintain_one,
    merged,
)
from rollingfs.spark.source import places
from rollingfs.spark.source.options import Options, parse_url
from rollingfs.spark.stream_operations import CONCAT, STREAM_OPERATIONS, TRIM, Join, Outcomes, folders_of, keep_stream
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.offload_policy import Asked
from rollingfs.stream.segment_upkeep import OFFLOAD, RETAIN

THREADS_DEFAULT = 8
ARGUMENTS = {
    "truncate": "keep= (how many bytes to keep)",
    EXPORT: "target= (the folder to write to)",
    TRIM: "cut= (where to trim to)",
    CONCAT: "into= (the name of the segment in each folder)",
}
"""What operations need."""


def maintain(
    spark: Any,
    urls: str | Sequence[str],
    operations: str | Sequence[str] = ("info",),
    *,
    storage_options: Mapping[str, Any] | None = None,
    keep: int | str | None = None,
    align: str | None = None,
    target: str | None = None,
    target_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    grace: float | str | None = None,
    readers_grace: float | str = READERS_GRACE_S,
    cut: StreamCut | str | None = None,
    tier: str | None = None,
    after_bytes: int | str | None = None,
    after_age: float | str | None = None,
    deletion_lag: float | str | None = None,
    block_bytes: int | str | None = None,
    into: str | None = None,
    dry_run: bool = False,
    threads: int = THREADS_DEFAULT,
) -> Any:
    """Do operations to many segments; the failure of one is its row and stops no other. It is safe to repeat.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession or None
        Of Spark or of Spark Connect; None for threads of this process, which are enough for some hundreds of segments.
    urls, storage_options
        One or several, on one backend: segments, folders (all segments below them), patterns; and its options.
    operations
        Done in this order: ``retain``, ``trim`` (these to whole streams, whose folders must be among the URLs),
        ``concat`` (of the sealed segments in each folder, by their names; with ``seal``, of all),
        ``info``, ``verify``, ``truncate``, ``rewrite`` (Parquet files that have grown), ``seal``, ``upkeep`` (a round
        of ``rollingfs run``, with ``retain``), ``consolidate``, ``offload``, ``export``, ``collect``.
    keep, align
        For ``truncate``: how many of its newest bytes (``"10GiB"``) a segment keeps; what alone it is cut behind.
    target, target_options, overwrite
        For ``export``: the URL of a folder, options of its store, whether to replace files of other content there.
    grace, readers_grace
        Seconds (``"1h"``) for which ``collect`` leaves unreferenced files alone (by default 24 hours; less is your
        promise that nobody writes), and ``consolidate`` leaves old files to readers; so does ``upkeep``.
    cut, into
        For ``trim``, a cut of streams or its text. For ``concat``, the name in each folder of the segment that the
        others become part of; it is made if it is missing.
    tier, after_bytes, after_age, deletion_lag, block_bytes
        For ``offload``, as of `Stream.offload`; without, by the policies.
    dry_run, threads
        Change nothing, but tell; streams, and without Spark segments, at a time.

    Returns
    -------
    pyspark.sql.DataFrame or list of Row
        With Spark a DataFrame of rows that are computed already: looking at it again repeats no operation.

    Raises
    ------
    ValueError, FileNotFoundError
        An argument is unknown or missing; two segments would become one file; nothing is at a URL without a pattern.
    """
    meant = StreamCut.parse(cut) if isinstance(cut, str) else cut
    asked = Asked.of(tier, after_bytes, after_age, deletion_lag, block_bytes)
    wanted = _operations(operations, {"truncate": keep, EXPORT: target, TRIM: cut, CONCAT: into, OFFLOAD: asked})
    kept = None if keep is None else parse_bytes(keep)
    if kept is not None and (kept < 0 or align == ""):
        raise ValueError(f"cannot keep {kept} bytes aligned by {align!r}; no segment was changed")
    grace_s = None if grace is None else parse_seconds(grace)
    settings = Settings(wanted, kept, align, None, grace_s, parse_seconds(readers_grace), dry_run, asked)
    options = _options(urls, storage_options)
    fs = places.filesystem(options)
    paths = _paths(fs, options)
    if target is not None:
        settings = replace(settings, target=_place(fs, options, paths, target, target_options, overwrite))
    of_streams = [one for one in STREAM_OPERATIONS if one in wanted or (one == RETAIN and UPKEEP in wanted)]
    join = None if into is None else Join(into, paths, "seal" in wanted)
    ledgers = Ledgers(core(fs).client, once=True)

    def inherits(folder: str) -> bool:
        return core(fs).run(ledgers.above(folder)).retention is not None

    work = partial(maintain_one, options, settings)
    with ThreadPoolExecutor(threads, "rollingfs-maintain") as pool:
        before: Outcomes = {}
        keep_one = partial(keep_stream, fs, of_streams, meant, join, dry_run=dry_run)
        must_be = not {*wanted}.isdisjoint(STREAM_OPERATIONS)
        for did in pool.map(keep_one, folders_of(of_streams, meant, paths, inherits, must_be=must_be)):
            before |= did
        paths = sorted({*paths, *(path for path, did in before.items() if CONCAT in did and not did[CONCAT].error)})
        earlier = {path: before.get(path) or before.get(names.parent(path), {}) for path in paths}
        left = [path for path in paths if not any(one.error for one in earlier[path].values())]
        name = f"rollingfs: {', '.join(wanted)} of {len(left)} segments"
        found = pool.map(work, left) if spark is None else job.run(spark, name, left, work, ROW_SCHEMA)
        by_path = {row["path"]: Row(**row) for row in found if row.get("path") is not None}
    rows = [row for path in paths if (row := merged(path, earlier[path], by_path.get(path))) is not None]
    # of rows, so that looking at it starts no job again
    return rows if spark is None else spark.createDataFrame([tuple(asdict(row).values()) for row in rows], ROW_SCHEMA)


def _operations(operations: str | Sequence[str], given: Mapping[str, object]) -> tuple[str, ...]:
    """The operations in their order, each with the argument that it needs, and no other."""
    wanted = {operations} if isinstance(operations, str) else set(operations)
    known = (*STREAM_OPERATIONS, *OPERATIONS)
    if not wanted or wanted - set(known):
        unknown = ", ".join(sorted(wanted - set(known))) or "none"
        raise ValueError(f"operations: {unknown}; they must be of {', '.join(known)}")
    for operation, what in ARGUMENTS.items():
        if (operation in wanted) != (given[operation] is not None):
            raise ValueError(f"{operation!r} needs {what}, and no other operation takes it")
    if given[OFFLOAD] is not None and OFFLOAD not in wanted:
        raise ValueError(
            "tier=, after_bytes=, after_age=, deletion_lag= and block_bytes= are of 'offload', and no other operation"
        )
    return tuple(one for one in known if one in wanted)


def _place(
    fs: RollingFileSystem,
    options: Options,
    paths: Sequence[str],
    url: str,
    target_options: Mapping[str, Any] | None,
    overwrite: bool,
) -> ExportFolder:
    """The target of each segment: its path below a folder of the URLs, or below the folder of a segment or pattern."""
    roots: set[str] = set()
    for one in options.places:
        path = core(fs).strip(one.path).rstrip("/")
        if has_magic(path):
            roots.add(places.above_pattern(path))
        else:
            roots |= {path, path.rpartition("/")[0]} if path in paths else {path}
    place = ExportFolder(url, tuple(sorted(roots)), target_options, overwrite)
    targets: dict[str, str] = {}
    for path in paths:
        below = place.below(path)
        other = targets.setdefault(below, path)
        if other != path:
            raise ValueError(f"{other} and {path} would both be exported to {url.rstrip('/')}{below}; nothing was done")
    return place


def _options(urls: str | Sequence[str], storage_options: Mapping[str, Any] | None) -> Options:
    parsed = tuple(parse_url(url) for url in ([urls] if isinstance(urls, str) else urls))
    protocols = sorted({place.protocol for place in parsed})
    if len(protocols) != 1:
        raise ValueError(f"the segments must lie on one backend, but they are on {', '.join(protocols) or 'none'}")
    return Options(parsed, storage_options=dict(storage_options or {}))


def _paths(fs: RollingFileSystem, options: Options) -> list[str]:
    """All segments at the places, also deleted and damaged ones: no header is read for it."""
    below = core(fs)
    tree = TreeCollector(below.client)
    found: set[str] = set()
    for place in options.places:
        path = below.strip(place.path)
        there = below.run(tree.segments(places.above_pattern(path) or "/"))
        found.update(filter(places.meaning(path), there) if has_magic(path) else there)
    return sorted(found)
