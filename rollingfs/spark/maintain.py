"""Maintenance of thousands of segments, as one Spark job or by threads: each segment gives a row, also if it fails."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from glob import has_magic
from typing import Any, TextIO

from fsspec.utils import glob_translate

from rollingfs.folders.collect_tree import TreeCollector
from rollingfs.fs.core import core
from rollingfs.maintenance.consolidate import READERS_GRACE_S
from rollingfs.policy import parse_bytes, parse_seconds
from rollingfs.spark import job
from rollingfs.spark.operations import (
    EXPORT,
    INFO,
    OFFLOAD,
    OPERATIONS,
    ROW_SCHEMA,
    UPKEEP,
    Keep,
    Place,
    Row,
    Settings,
    maintain_one,
)
from rollingfs.spark.source import places
from rollingfs.spark.source.options import Options, parse_url
from rollingfs.spark.stream_operations import (
    RESULTS_SCHEMA,
    RETAIN,
    STREAM_OPERATIONS,
    TRIM,
    Result,
    StreamSettings,
    check_cut,
    keep_stream,
    merged,
    parse_results,
    result_of,
    streams_of,
)
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.offload_policy import Asked

THREADS_DEFAULT = 8
PROGRESS_S_MIN = 0.5


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
    dry_run: bool = False,
    threads: int = THREADS_DEFAULT,
    progress: bool | TextIO = False,
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
        ``info``, ``verify``, ``truncate``, ``seal``, ``upkeep`` (a round of ``rollingfs run``, with
        ``retain``), ``consolidate``, ``offload``, ``export``, ``collect``.
    keep, align
        For ``truncate``: how many of its newest bytes (``"10GiB"``) a segment keeps; what alone it is cut behind.
    target, target_options, overwrite
        For ``export``: the URL of a folder, options of its store, whether to replace files of other content there.
    grace, readers_grace
        Seconds (``"1h"``) for which ``collect`` leaves unreferenced files alone (by default 24 hours; less is your
        promise that nobody writes), and ``consolidate`` leaves old files to readers; so does ``upkeep``.
    cut, tier, after_bytes, after_age, deletion_lag
        For ``trim``, a cut of streams or its text. For ``offload``, as of `Stream.offload`; without, by the policies.
    dry_run, threads, progress
        Change nothing, but tell; segments at a time without Spark; show progress on the terminal, or in this file.

    Returns
    -------
    pyspark.sql.DataFrame or list of Row
        With Spark a DataFrame of rows that are computed already: looking at it again repeats no operation.

    Raises
    ------
    ValueError, FileNotFoundError
        An argument is unknown or missing; two segments would become one file; nothing is at a URL without a pattern.
    """
    asked = Asked.of(tier, after_bytes, after_age, deletion_lag)
    settings, of_streams = _settings(operations, keep, align, target, grace, readers_grace, dry_run, cut, asked)
    export = None if target is None else _Export(target, target_options, overwrite)
    return _run(spark, threads, _options(urls, storage_options), settings, of_streams, export, progress)


@dataclass(frozen=True, slots=True)
class _Export:
    """Where to export to."""

    url: str
    options: Mapping[str, Any] | None = field(repr=False)
    """They may hold secrets."""
    overwrite: bool


def _run(
    spark: Any,
    threads: int,
    options: Options,
    settings: Settings,
    of_streams: StreamSettings,
    export: _Export | None,
    progress: bool | TextIO,
) -> Any:
    """Do the operations on streams, then those on segments."""
    paths = _paths(options)
    if export is not None:
        settings = replace(settings, target=_place(options, paths, export))
    shown = _Progress(len(paths), progress)
    results = _keep_streams(spark, threads, options, paths, of_streams, shown)
    run = partial(_by_threads, threads) if spark is None else partial(_by_spark, spark)
    return run(options, paths, settings, shown, results)


def _settings(
    operations: str | Sequence[str],
    keep: int | str | None,
    align: str | None,
    target: str | None,
    grace: float | str | None,
    readers_grace: float | str,
    dry_run: bool,
    cut: StreamCut | str | None,
    asked: Asked | None,
) -> tuple[Settings, StreamSettings]:
    wanted = {operations} if isinstance(operations, str) else set(operations)
    known = (*STREAM_OPERATIONS, *OPERATIONS)
    if not wanted or wanted - set(known):
        unknown = ", ".join(sorted(wanted - set(known))) or "none"
        raise ValueError(f"operations: {unknown}; they must be of {', '.join(known)}")
    needs = (
        ("truncate", keep is not None, "keep= (how many bytes to keep)"),
        (EXPORT, target is not None, "target= (the folder to write to)"),
        (TRIM, cut is not None, "cut= (where to trim to)"),
    )
    for operation, is_given, what in needs:
        if (operation in wanted) != is_given:
            raise ValueError(f"{operation!r} needs {what}, and no other operation takes it")
    if asked is not None and OFFLOAD not in wanted:
        raise ValueError("tier=, after_bytes=, after_age= and deletion_lag= are of 'offload', and no other operation")
    meant = StreamCut.parse(cut) if isinstance(cut, str) else cut
    kept = wanted | {RETAIN} if UPKEEP in wanted else wanted
    of_streams = tuple(operation for operation in STREAM_OPERATIONS if operation in kept)
    settings = Settings(
        tuple(operation for operation in OPERATIONS if operation in wanted),
        None if keep is None else Keep(parse_bytes(keep), align),
        grace=None if grace is None else parse_seconds(grace),
        readers_grace=parse_seconds(readers_grace),
        dry_run=dry_run,
        asked=asked,
        before=of_streams[-1] if of_streams else INFO,
    )
    return settings, StreamSettings(of_streams, meant, dry_run, must_be=bool(wanted & {*STREAM_OPERATIONS}))


def _place(options: Options, paths: Sequence[str], export: _Export) -> Place:
    """The target of each segment: its path below a folder of the URLs, or below the folder of a segment or pattern."""
    fs = places.filesystem(options)
    roots: set[str] = set()
    for one in options.places:
        path = core(fs).strip(one.path).rstrip("/")
        if has_magic(path):
            roots.add(re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0])
        else:
            roots |= {path, path.rpartition("/")[0]} if path in paths else {path}
    place = Place(export.url, tuple(sorted(roots)), export.options, export.overwrite)
    targets: dict[str, str] = {}
    for path in paths:
        below = place.below(path)
        other = targets.setdefault(below, path)
        if other != path:
            raise ValueError(
                f"{other} and {path} would both be exported to {export.url.rstrip('/')}{below}; nothing was done"
            )
    return place


def _options(urls: str | Sequence[str], storage_options: Mapping[str, Any] | None) -> Options:
    parsed = tuple(parse_url(url) for url in ([urls] if isinstance(urls, str) else urls))
    protocols = sorted({place.protocol for place in parsed})
    if len(protocols) != 1:
        raise ValueError(f"the segments must lie on one backend, but they are on {', '.join(protocols) or 'none'}")
    return Options(parsed, storage_options=dict(storage_options or {}))


def _paths(options: Options) -> list[str]:
    """All segments at the places, also deleted and damaged ones: no header is read for it."""
    fs = places.filesystem(options)
    below = core(fs)
    tree = TreeCollector(below.client)
    found: set[str] = set()
    for place in options.places:
        path = below.strip(place.path)
        if not has_magic(path):
            found.update(below.run(tree.segments(path)))
            continue
        is_match = re.compile(glob_translate(path)).match
        root = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0] or "/"
        segments = below.run(tree.segments(root))
        found.update(one for one in segments if any(map(is_match, (one, *places.folders_of(one)))))
    return sorted(found)


def _keep_streams(
    spark: Any, threads: int, options: Options, paths: Sequence[str], settings: StreamSettings, shown: _Progress
) -> Mapping[str, Result]:
    """Do the operations on whole streams, each stream by one task or thread; the results are by segment.

    Raises
    ------
    ValueError
        There is no stream, or the cut is of others.
    """
    if not settings.operations:
        return {}
    folders = set(check_cut(settings.cut, paths)) if settings.cut is not None else set()
    if RETAIN in settings.operations:
        folders |= set(streams_of(paths))
    if not folders:
        if not settings.must_be:
            return {}
        raise ValueError("no stream is at the URLs: give the folder of one that has a retention; nothing was done")
    work = partial(keep_stream, options, settings)
    if spark is None:
        with ThreadPoolExecutor(threads, "rollingfs-maintain") as pool:
            return parse_results(pool.map(work, sorted(folders)))
    name = f"rollingfs: {', '.join(settings.operations)} of {len(folders)} streams"
    return parse_results(job.run(spark, job.Job(name, sorted(folders), work, RESULTS_SCHEMA), shown.tasks))


def _left(paths: Sequence[str], results: Mapping[str, Result]) -> list[str]:
    """The segments whose stream has not failed: the other operations are done to them."""
    return [path for path in paths if (found := result_of(results, path)) is None or found.error is None]


def _merged(paths: Sequence[str], results: Mapping[str, Result], rows: Mapping[str, Row]) -> list[Row | None]:
    """The rows of all segments; None where nothing of a segment is left, and nothing was done."""
    return [merged(path, result_of(results, path), rows.get(path)) for path in paths]


def _by_threads(
    threads: int,
    options: Options,
    paths: Sequence[str],
    settings: Settings,
    shown: _Progress,
    results: Mapping[str, Result],
) -> list[Row]:
    with ThreadPoolExecutor(threads, "rollingfs-maintain") as pool:
        found = pool.map(lambda path: maintain_one(options, path, settings), _left(paths, results))
        if not results:
            return list(shown.counting(found))
        rows = {row.path: row for row in found if row is not None}
    return list(shown.counting(_merged(paths, results, rows)))


def _by_spark(
    spark: Any,
    options: Options,
    paths: Sequence[str],
    settings: Settings,
    shown: _Progress,
    results: Mapping[str, Result],
) -> Any:
    """A DataFrame of the rows of one job; looking at it starts no job again."""
    left = _left(paths, results)
    name = f"rollingfs: {', '.join(settings.operations) or INFO} of {len(left)} segments"
    work = partial(_work, options, settings)
    rows = job.run(spark, job.Job(name, left, work, ROW_SCHEMA), shown.tasks) if left else []
    found = {row["path"]: Row(**row) for row in rows if row.get("path") is not None}
    merged_rows = shown.counting(_merged(paths, results, found))
    return spark.createDataFrame([tuple(asdict(row).values()) for row in merged_rows], ROW_SCHEMA)


def _work(options: Options, settings: Settings, path: str) -> dict[str, Any]:
    """The row of one segment as a task of Spark gives it; without values if nothing of the segment is left."""
    row = maintain_one(options, path, settings)
    return {} if row is None else asdict(row)


class _Progress:
    """Shows how many segments are done, and how many failed."""

    def __init__(self, total: int, where: bool | TextIO) -> None:
        self._total = total
        self._file: TextIO | None = sys.stderr if where is True else (where or None)
        self._shown_at = -math.inf

    def counting(self, rows: Iterable[Row | None]) -> Iterator[Row]:
        """The rows without None, which stands for a segment that is gone; all are counted as they come."""
        failed = 0
        for done, row in enumerate(rows, 1):
            failed += row is not None and row.error is not None
            if done == self._total or time.monotonic() - self._shown_at >= PROGRESS_S_MIN:
                self._show(
                    f"{done} of {self._total} segments, {failed} failed", end="\n" if done == self._total else ""
                )
            if row is not None:
                yield row

    def tasks(self, done: int, total: int) -> None:
        """Show how many tasks of a job are done: while Spark works, nothing else can be counted."""
        self._show(f"{done} of {total} tasks, for {self._total} segments")

    def _show(self, text: str, end: str = "") -> None:
        if self._file is not None:
            self._shown_at = time.monotonic()
            print(f"\r{text:<60}", end=end, file=self._file, flush=True)
