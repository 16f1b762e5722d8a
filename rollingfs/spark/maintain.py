"""Maintenance of thousands of segments, as a Spark job or by threads: each segment gives a row, also if it fails.

Operations on whole folders come first: a stream's ledger records a trim before it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rollingfs.errors import CorruptHeaderError, SegmentNotSealedError
from rollingfs.folders.collect_tree import Tree, tree_at
from rollingfs.folders.listing import RAISE
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.policy import READERS_GRACE_S, parse_bytes, parse_seconds
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.spark.segment_operations import (
    EXPORT,
    OPERATIONS,
    ROW_SCHEMA,
    UPKEEP,
    Chores,
    Outcome,
    OutcomeRow,
    check_exports,
    maintain_one,
    said,
)
from rollingfs.spark.session import is_classic
from rollingfs.spark.source import hadoop_globs, places, segments
from rollingfs.spark.source.options import Options, parse_urls
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.upkeep import OFFLOAD, RETAIN

TRIM = "trim"
CONCAT = "concat"
STREAM_OPERATIONS = (RETAIN, TRIM, CONCAT)
"""In the order in which they are done, before the operations on segments."""

NO_CUT = StreamCut({}, 0, 0)
Outcomes = dict[str, dict[str, Outcome]]
"""By path (of a segment or, for the error of a stream, of its folder), then by operation."""


def _of_streams(settings: Chores) -> list[str]:
    """Return the operations on streams, with the retention of ``upkeep``."""
    wanted = settings.operations
    return [one for one in STREAM_OPERATIONS if one in wanted or (one == RETAIN and UPKEEP in wanted)]


def _streams(fs: RollingFileSystem, paths: Sequence[str], settings: Chores) -> list[str]:
    """Return the streams that the operations are meant for, sorted.

    Parameters
    ----------
    paths
        All segments at the URLs.

    Raises
    ------
    ValueError
        No stream is there, or the cut names segments that are not at the URLs.
    """
    cut, operations = settings.cut or NO_CUT, _of_streams(settings)
    elsewhere = sorted(cut.keys() - set(paths))
    if elsewhere:
        raise ValueError(f"the cut names {places.shortened(elsewhere)}, which is not at the URLs; nothing was trimmed")
    shown = {names.parent(path) for path in paths if not names.is_hidden_segment(path)}
    found = {names.parent(path) for path in cut}
    if RETAIN in operations:
        found |= {names.parent(path) for path in paths if names.is_ledger(path)}
        # folders that inherit a retention, or may: `_keep` reports the policies that cannot be read
        folders = frozenset(shown - found)
        segments = frozenset(path for path in paths if names.parent(path) in folders)
        ledgers = Ledgers(core(fs).client)
        core(fs).run(ledgers.renew(Tree(segments, {}, folders, {}, ())))
        found |= {*ledgers.errors, *(one for one, ledger in ledgers.by_folder.items() if ledger.retention is not None)}
    if CONCAT in operations:
        found |= shown
    if not found and not {*STREAM_OPERATIONS}.isdisjoint(settings.operations):
        raise ValueError("no stream is at the URLs: give the folder of one that has a retention; nothing was done")
    return sorted(found)


def _keep(fs: RollingFileSystem, paths: Sequence[str], settings: Chores, folder: str) -> Outcomes:
    """Do the operations to a stream; its failure is in the row of the folder."""
    found: Outcomes = {}
    operation = ""
    try:
        for operation in _of_streams(settings):
            if operation == CONCAT:
                did = _join(fs, [one for one in paths if names.parent(one) == folder], settings, folder)
            else:
                did = _drop(fs, operation, settings, folder)
            for path, outcome in did.items():
                found.setdefault(path, {})[operation] = outcome
    except Exception as failure:  # noqa: BLE001 - one stream's failure is in its rows, never the job's
        found[folder] = {operation: Outcome(0, None, said(failure))}
    return found


def _drop(fs: RollingFileSystem, operation: str, settings: Chores, folder: str) -> dict[str, Outcome]:
    stream, dry_run, cut = fs.stream(folder), settings.dry_run, settings.cut or NO_CUT
    if operation == RETAIN and fs.get_policy(folder).retention is None:
        return {}
    of_folder = cut.only(path for path in cut if names.parent(path) == folder)
    did = stream.retain(dry_run) if operation == RETAIN else stream.trim(of_folder, dry_run)
    sizes = {path: did.dropped.get(path, 0) for path in {*did.dropped, *did.deleted, *did.failed, *did.left}}
    why = {**did.left, **did.failed}
    return {
        path: Outcome(size, {"bytes": size, "deleted": path in did.deleted}, why.get(path))
        for path, size in sizes.items()
    }


def _join(fs: RollingFileSystem, paths: Sequence[str], settings: Chores, folder: str) -> dict[str, Outcome]:
    """Join the present segments of a folder, whose last lines are ended where they are not."""
    seals = "seal" in settings.operations
    target = f"{folder.rstrip('/')}/{settings.into}"
    sources = [one for one in paths if one != target and not names.is_hidden_segment(one)]
    sizes: dict[str, int] = {}
    for path, look in zip(sources, segments.look(fs, sources), strict=True):
        if isinstance(look, CorruptHeaderError):
            raise look
        if look is not None and not (look.sealed or seals):
            raise SegmentNotSealedError(f"{path}: it is not sealed, so nothing in its folder was joined")
        if look is not None:
            sizes[path] = look.length - look.start
    if sizes and not settings.dry_run:
        for path in sizes if seals else ():
            fs.seal(path)
        fs.concat(target, list(sizes), create=True, newline=True)
    found = {path: Outcome(0, {"bytes": size, "into": target}) for path, size in sizes.items()}
    return found | ({target: Outcome(sum(sizes.values()), {"sources": len(sizes)})} if sizes else {})


THREADS_DEFAULT = 8
ARGUMENTS = {
    "truncate": "keep= (how many bytes to keep)",
    EXPORT: "target= (the folder to write to)",
    TRIM: "cut= (where to trim to)",
    CONCAT: "into= (the name of the segment in each folder)",
}
"""Arguments that operations need."""


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
    """Do operations to many segments; the call can be repeated.

    The failure of a segment is in its row, and stops no other segment.

    Parameters
    ----------
    spark, threads : pyspark.sql.SparkSession or None, int
        A session of Spark or Spark Connect. None: threads of this process, which are enough for some hundreds of
        segments. `threads` is their number; streams are worked on by such threads in either case.
    urls, storage_options
        Segments, folders (all segments below them) and patterns, all on a single backend; options of that backend.
    operations, dry_run
        The order is in docs/spark.md: first operations of whole streams, then `OPERATIONS`. A dry run only
        reports.
    keep, align
        For ``truncate``: the number of newest bytes (``"10GiB"``) that a segment keeps; the delimiter after which it is
        cut.
    target, target_options, overwrite
        For ``export``: the URL of a folder, options of its store, whether to replace files of other content there.
    grace, readers_grace
        Seconds (``"1h"``) for which ``collect`` leaves unreferenced files (24 hours by default; less asserts that no
        client writes), and for which ``consolidate`` and ``upkeep`` leave old files to readers.
    cut, into
        For ``trim``: a cut of streams, or its text. For ``concat``: the name of the segment that all others in a folder
        join; it is made if it is missing.
    tier, after_bytes, after_age, deletion_lag, block_bytes
        For ``offload``: as of `Stream.offload`; without these arguments, by the policies.

    Returns
    -------
    pyspark.sql.DataFrame or list of OutcomeRow
        With Spark a DataFrame of rows that are computed already: looking at it again repeats no operation.

    Raises
    ------
    ValueError, FileNotFoundError
        An argument is unknown, missing or impossible; two segments have the same target; a URL without a pattern does
        not exist.
    """
    asked = Asked.of(tier, after_bytes, after_age, deletion_lag, block_bytes)
    wanted = _operations(operations, {"truncate": keep, EXPORT: target, TRIM: cut, CONCAT: into, OFFLOAD: asked})
    kept, grace_s = None if keep is None else parse_bytes(keep), None if grace is None else parse_seconds(grace)
    where = parse_urls([urls] if isinstance(urls, str) else urls)
    options = Options(*where, storage_options=dict(storage_options or {}))
    fs, paths = _found(options)
    trimmed = StreamCut.parse(cut) if isinstance(cut, str) else cut
    run = Chores(wanted, kept, align, grace_s, parse_seconds(readers_grace), dry_run, asked, trimmed, into)
    if target is not None:
        roots = _roots(fs, options, paths)
        run = replace(run, target=target, roots=roots, target_options=target_options, overwrite=overwrite)
        check_exports(run, paths)
    with ThreadPoolExecutor(threads, "rollingfs-maintain") as pool:
        before: Outcomes = {}
        for did in pool.map(partial(_keep, fs, paths, run), _streams(fs, paths, run)):
            before |= did
        joined = [path for path, of_one in before.items() if CONCAT in of_one and not of_one[CONCAT].error]
        paths = sorted({*paths, *joined})
        earlier = {path: of for path in paths if (of := before.get(path) or before.get(names.parent(path)))}
        work = partial(maintain_one, options, replace(run, cut=None), earlier)
        name = f"rollingfs: {', '.join(wanted)} of {len(paths)} segments"
        found = pool.map(work, paths) if spark is None else _by_job(spark, name, paths, work)
        rows = sorted((OutcomeRow(**row) for row in found if row.get("path")), key=lambda row: row.path)
    # of rows, so that looking at it starts no job again
    return rows if spark is None else spark.createDataFrame([tuple(asdict(row).values()) for row in rows], ROW_SCHEMA)


TASKS_MIN = 64
"""Tasks of a job with at least as many paths."""
PATHS_PER_TASK = 64
"""Paths of a task, where more tasks than `TASKS_MIN` are needed."""


def tasks(paths: int) -> int:
    """Return the number of tasks for a number of paths."""
    return max(1, min(paths, TASKS_MIN), -(-paths // PATHS_PER_TASK))


def _by_job(spark: Any, name: str, paths: Sequence[str], work: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Do the work to all paths in a job, whose progress Spark shows and which it cancels after an interrupt."""
    from pyspark.sql import functions

    spread = spark.createDataFrame([(path,) for path in paths], "path string").repartition(tasks(len(paths)))
    rows = spread.select(functions.udf(work, ROW_SCHEMA, useArrow=False)("path"))  # with Arrow, it would ask for pandas
    describe = spark.sparkContext.setJobDescription if is_classic(spark) else lambda text: None
    describe(name)
    try:
        return [row[0].asDict() for row in rows.collect()]
    finally:
        describe(None)


def _operations(operations: str | Sequence[str], given: Mapping[str, object]) -> tuple[str, ...]:
    """Return the operations in their order, each with the argument that it needs, and no other."""
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


def _roots(fs: RollingFileSystem, options: Options, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the folders below which segments keep their paths."""
    roots: set[str] = set()
    for one in options.paths:
        path = core(fs).strip(one).rstrip("/")
        if hadoop_globs.is_pattern(path):
            roots.add(hadoop_globs.above(path))
        else:
            roots |= {path, path.rpartition("/")[0]} if path in paths else {path}
    return tuple(sorted(roots))


def _found(options: Options) -> tuple[RollingFileSystem, list[str]]:
    """Return all segments at the paths, also deleted and damaged segments.

    No header is read for it.
    """
    fs = places.filesystem(options)
    below, found = core(fs), set[str]()
    for path in map(below.strip, options.paths):
        there = below.run(tree_at(below.client, hadoop_globs.above(path) or "/", RAISE)).segments
        found.update(filter(places.meaning(path), there) if hadoop_globs.is_pattern(path) else there)
    return fs, sorted(found)
