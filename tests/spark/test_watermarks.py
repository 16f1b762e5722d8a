"""A query with a watermark counts in its windows what Spark's file source counts on plain files of the same rows."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BEGIN_S = 1_700_000_000 // 3600 * 3600
DISORDER_S = 240
"""How far the rows of a file lie apart from their order; less than `DELAY`."""
DELAY = "5 minutes"
FILES_PER_BATCH = 2
STEP_S_MIN = 0.002
"""Headers tell times by the millisecond."""


def _files(count: int, rows: int) -> list[bytes]:
    """Lines of JSON of one hour each, a little out of order."""
    chooser = random.Random(30)
    found = []
    for hour in range(count):
        step = 3600 / rows
        lines = []
        for nth in range(rows):
            at = BEGIN_S + 3600 * hour + nth * step - chooser.uniform(0, DISORDER_S)
            lines.append(f'{{"at": {at:.3f}, "n": {hour * rows + nth}}}\n')
        found.append("".join(lines).encode())
    return found


def _write(folder: Path, files: list[bytes], *, pieces: int) -> tuple[Path, Path]:
    """The files as segments, and as plain files in the same order; names are in another."""
    segments, plain = folder / "segments", folder / "plain"
    plain.mkdir()
    fs = RollingFileSystem("file", sync=False)
    chooser = random.Random(2)
    for nth, data in enumerate(files):
        name = f"{chooser.randrange(10**9):09}"
        path = f"{segments}/{name}"
        lines = data.splitlines(keepends=True)
        fs.create(path, RollingPolicy(max_bytes=8000, inline_bytes=1000))
        for part in range(pieces):
            time.sleep(STEP_S_MIN)
            fs.append(path, b"".join(lines[part * len(lines) // pieces : (part + 1) * len(lines) // pieces]))
        if nth % 2:
            fs.seal(path)
        (plain / name).write_bytes(data)
        os.utime(plain / name, (BEGIN_S + nth, BEGIN_S + nth))
    return segments, plain


def _windows(spark: Any, reader: Any, folder: Path, batches_max: int | None = None) -> dict[str, int]:
    """The rows that a query counted in each hour; it is stopped after some batches, and goes on from its checkpoint."""
    from pyspark.sql import functions

    counted: dict[str, int] = {}
    schema = "at double, n bigint"
    lines = reader.select(functions.from_json("value", schema).alias("row")).select("row.*")
    timed = lines.select(functions.timestamp_seconds("at").alias("time"))
    windows = timed.withWatermark("time", DELAY).groupBy(functions.window("time", "1 hour")).count()

    def keep(batch: Any, number: int) -> None:
        for row in batch.collect():
            counted[str(row.window.start)] = row["count"]

    def start(**trigger: Any) -> Any:
        writer = windows.writeStream.outputMode("update").foreachBatch(keep)
        return writer.option("checkpointLocation", str(folder)).trigger(**trigger).start()

    if batches_max is not None:
        query = start(processingTime="0 seconds")
        while query.lastProgress is None or query.lastProgress["batchId"] < batches_max:
            assert query.isActive, query.exception()
            time.sleep(0.05)
        query.stop()
    query = start(availableNow=True)
    query.awaitTermination()
    return counted


@pytest.fixture(scope="module")
def hours(source: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A folder of 16 segments, and what Spark's file source counts."""
    folder = tmp_path_factory.mktemp("hours")
    segments, plain = _write(folder, _files(16, 200), pieces=5)
    reader = source.readStream.format("text").option("maxFilesPerTrigger", FILES_PER_BATCH).load(str(plain))
    counted = _windows(source, reader, folder / "checkpoint")
    assert sum(counted.values()) == 16 * 200  # the rows are in order enough
    return segments, counted


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxBytesPerTrigger": "6000"},
        {"maxRecordsPerTrigger": "150"},
        {"minBytesPerTrigger": "4000", "maxBytesPerTrigger": "9000"},
    ],
    ids=["all", "bytes", "records", "smallest"],
)
def test_a_catch_up_of_hourly_segments_counts_what_sparks_file_source_counts(source, hours, tmp_path, options):
    segments, counted = hours
    reader = source.readStream.format("rolling").options(**options).load(f"file://{segments}")
    assert _windows(source, reader, tmp_path / "checkpoint") == counted


def test_a_catch_up_that_is_stopped_and_goes_on_counts_the_same(source, hours, tmp_path):
    segments, counted = hours
    options = {"maxBytesPerTrigger": "6000", "pollInterval": "0s"}
    reader = source.readStream.format("rolling").options(**options).load(f"file://{segments}")
    assert _windows(source, reader, tmp_path / "checkpoint", batches_max=5) == counted
