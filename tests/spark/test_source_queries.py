"""Streaming queries through ``format("rolling")``, source and sink, in a session of Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RetentionPolicy, RollingFileSystem, RollingPolicy
from rollingfs.spark import to_json
from tests.spark.test_source_batch import load, options_of, rows, url
from tests.support.spark import Place

pytestmark = pytest.mark.slow

SMALL = RollingPolicy(max_bytes=500, inline_bytes=100)


def lines(start: int, end: int) -> bytes:
    return b"".join(json.dumps({"n": nth, "s": "x" * (nth % 9)}).encode() + b"\n" for nth in range(start, end))


def run(source: Any, place: Place, name: str, target: str, checkpoint: Path, **options: Any) -> list[Any]:
    """A query up to the present end; the batches that it made."""
    reader = source.readStream.format("rolling").options(**options_of(place), format="json", **options)
    frame = reader.schema("n long, s string").load(url(place, name)).selectExpr("n", "upper(s) s")
    writer = to_json(frame).writeStream.format("rolling").options(**options_of(place), taskMessageBytes=0)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(url(place, target))
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def test_a_query_restarted_from_its_checkpoint_goes_on_where_it_was(source, place, tmp_path):
    place.segment("f/a", lines(0, 50), SMALL)
    first = run(source, place, "f", "out", tmp_path / "check", maxBytesPerTrigger=200)
    assert len(first) > 3
    place.run(place.client.segments.append(f"{place.path}/f/a", lines(50, 60)))
    place.segment("f/b", lines(60, 70), SMALL)
    run(source, place, "f", "out", tmp_path / "check")
    run(source, place, "f", "out", tmp_path / "check")
    found = rows(load(place, "out", "n long, s string", format="json"))
    assert found == [{"n": nth, "s": "X" * (nth % 9)} for nth in range(70)]
    [(key, batch)] = dict(place.header("out").attrs).items()
    assert key.startswith("spark/")
    assert int(batch) >= len(first)


def test_complete_mode_replaces_the_target_with_each_batch(source, disk, tmp_path):
    disk.segment("s", lines(0, 10), SMALL)
    frame = source.readStream.format("rolling").option("format", "json").schema("n long").load(url(disk, "s"))
    for _ in range(2):
        counts = to_json(frame.groupBy((frame.n % 2).alias("odd")).count())
        writer = counts.writeStream.outputMode("complete")
        query = writer.format("rolling").option("checkpointLocation", str(tmp_path / "check"))
        query.trigger(availableNow=True).start(url(disk, "out")).awaitTermination()
        disk.run(disk.client.segments.append(f"{disk.path}/s", lines(10, 20)))
    found = {row["odd"]: row["count"] for row in rows(load(disk, "out", "odd long, count long", format="json"))}
    assert found == {0: 10, 1: 10}


def test_a_query_that_subscribes_is_told_of_its_last_batch_and_its_progress_shows_the_lag(source, disk, tmp_path):
    """Spark calls a batch done when the next one begins, so a run up to the present ends adds an empty one."""
    disk.segment("f/a", lines(0, 30), SMALL)
    fs = RollingFileSystem("file", sync=False, header_cache_s=0)
    stream = fs.stream(f"{disk.path}/f")
    cut = stream.cut()
    for first in (30, 50):
        disk.run(disk.client.segments.append(f"{disk.path}/f/a", lines(first, first + 20)))
        options = {"subscriber": "q", "startingOffsets": str(cut), "maxBytesPerTrigger": 200}
        batches = run(source, disk, "f", "out", tmp_path / "check", **options)
        lags = [json.loads(batch["sources"][0]["latestOffset"])["lagBytes"] for batch in batches]
        assert lags == sorted(lags, reverse=True)
        assert lags[0] > lags[-1] == 0
    read = stream.subscribers()["q"]
    assert len(lines(0, 50)) < read[f"{disk.path}/f/a"] < len(lines(0, 70))
    stream.retention = RetentionPolicy.by_size(0, every="0s")
    stream.retain()
    assert fs.segment(f"{disk.path}/f/a").start == read[f"{disk.path}/f/a"]
    disk.run(disk.client.segments.seal(f"{disk.path}/f/a"))
    run(source, disk, "f", "out", tmp_path / "check", subscriber="q")
    stream.retain()
    assert stream.segments() == []
    run(source, disk, "f", "out", tmp_path / "check", subscriber="q")
    found = [row["n"] for row in rows(load(disk, "out", "n long", format="json"))]
    assert found == list(range(30, 70))
