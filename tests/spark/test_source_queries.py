"""Streaming queries through ``format("rolling")`` in a session of Spark: source, sink, routed rows, output modes."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RetentionPolicy, RollingFileSystem, RollingPolicy
from rollingfs.segment.verbs.change import seal
from rollingfs.spark import to_json
from tests.spark.test_source_batch import load, options_of, rows, url
from tests.support.segment_verbs import append
from tests.support.spark import Place, run_query

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SMALL = RollingPolicy(max_bytes=500, inline_bytes=100)


def lines(start: int, end: int) -> bytes:
    return b"".join(json.dumps({"n": nth, "s": "x" * (nth % 9)}).encode() + b"\n" for nth in range(start, end))


def run(source: Any, place: Place, name: str, target: str, checkpoint: Path, **options: Any) -> list[Any]:
    """A query up to the present end; the batches that it made."""
    reader = source.readStream.format("rolling").options(**options_of(place), format="json", **options)
    frame = reader.schema("n long, s string").load(url(place, name)).selectExpr("n", "upper(s) s")
    writer = to_json(frame).writeStream.format("rolling").options(**options_of(place), taskMessageBytes=0)
    query = run_query(writer, checkpoint, url(place, target))
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def test_complete_mode_replaces_the_target_with_each_batch(source, disk, tmp_path):
    disk.segment("s", lines(0, 10), SMALL)
    frame = source.readStream.format("rolling").option("format", "json").schema("n long").load(url(disk, "s"))
    for _ in range(2):
        counts = to_json(frame.groupBy((frame.n % 2).alias("odd")).count())
        run_query(counts.writeStream.outputMode("complete").format("rolling"), tmp_path / "check", url(disk, "out"))
        disk.run(append(disk.client, f"{disk.path}/s", lines(10, 20)))
    found = {row["odd"]: row["count"] for row in rows(load(disk, "out", "odd long, count long", format="json"))}
    assert found == {0: 10, 1: 10}


def test_subscribed_query_learns_its_last_batch_and_shows_lag(source, disk, tmp_path):
    """Spark calls a batch done when the next one begins, so a run up to the present ends adds an empty one."""
    disk.segment("f/a", lines(0, 30), SMALL)
    fs = RollingFileSystem("file", sync=False, header_cache_s=0)
    stream = fs.stream(f"{disk.path}/f")
    cut = stream.cut()
    for first in (30, 50):
        disk.run(append(disk.client, f"{disk.path}/f/a", lines(first, first + 20)))
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
    disk.run(seal(disk.client, f"{disk.path}/f/a"))
    run(source, disk, "f", "out", tmp_path / "check", subscriber="q")
    stream.retain()
    assert stream.segments() == []
    run(source, disk, "f", "out", tmp_path / "check", subscriber="q")
    assert [row["n"] for row in rows(load(disk, "out", "n long", format="json"))] == list(range(30, 70))


def test_query_routes_its_rows_and_batch_write_too(source, fs, tmp_path):
    fs.create(f"{tmp_path}/in")
    for batch in range(3):
        fs.append(f"{tmp_path}/in", "".join([f"{device}{batch}\n" for device in "abc"[: batch + 1]]).encode())
        devices = source.readStream.format("rolling").load(f"file://{tmp_path}/in")
        devices = devices.selectExpr("substring(value, 1, 1) device", "value")
        writer = devices.writeStream.format("rolling").option("segmentBy", "device")
        run_query(writer, tmp_path / "checkpoint", f"file://{tmp_path}/out")
    expected = {"a": b"a0\na1\na2\n", "b": b"b1\nb2\n", "c": b"c2\n"}
    assert {path.rpartition("/")[2]: fs.cat_file(path) for path in fs.find(f"{tmp_path}/out")} == expected
    read = source.read.format("rolling").load(f"file://{tmp_path}/out")
    again = read.selectExpr("substring(value, 1, 1) device", "value").write.format("rolling")
    again.option("segmentBy", "device").mode("append").save(f"file://{tmp_path}/again")
    found = {path.rpartition("/")[2]: set(fs.cat_file(path).split()) for path in fs.find(f"{tmp_path}/again")}
    assert found == {name: set(data.split()) for name, data in expected.items()}


def test_query_in_update_mode_writes_rows_that_change_once(source, fs, tmp_path):
    """As docs/spark.md says it: `foreachBatch`, and a transaction for each batch."""
    fs.create(f"{tmp_path}/in")

    def upsert(counts: Any, batch: int) -> None:
        writer = to_json(counts).write.format("rolling").options(txnAppId="counts", txnVersion=batch)
        for _ in range(2):  # Spark repeats a batch whose end it has not noted
            writer.mode("append").save(f"file://{tmp_path}/counts")

    for new in (b"a\nb\na\n", b"b\n"):
        fs.append(f"{tmp_path}/in", new)
        counts = source.readStream.format("rolling").load(f"file://{tmp_path}/in").groupBy("value").count()
        run_query(counts.writeStream.outputMode("update").foreachBatch(upsert), tmp_path / "checkpoint")
    found = [json.loads(line) for line in fs.cat_file(f"{tmp_path}/counts").splitlines()]
    assert sorted(found[:2], key=str) == [{"value": "a", "count": 2}, {"value": "b", "count": 1}]
    assert found[2:] == [{"value": "b", "count": 2}]
