"""The sink in a Spark session: routed batches and update mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollingfs.spark import to_json

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(rows: Any, checkpoint: Path, target: str, **options: Any) -> None:
    """Run a streaming query over all that is there."""
    writer = rows.writeStream.format("rolling").options(**options).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(target).awaitTermination()


def test_a_query_routes_its_rows_and_a_batch_write_too(source, fs, tmp_path):
    fs.create(f"{tmp_path}/in")
    for batch in range(3):
        lines = [f"{device}{batch}\n" for device in "abc"[: batch + 1]]
        fs.append(f"{tmp_path}/in", "".join(lines).encode())
        rows = source.readStream.format("rolling").load(f"file://{tmp_path}/in")
        rows = rows.selectExpr("substring(value, 1, 1) device", "value")
        run(rows, tmp_path / "checkpoint", f"file://{tmp_path}/out", segmentBy="device")
    expected = {"a": b"a0\na1\na2\n", "b": b"b1\nb2\n", "c": b"c2\n"}
    assert {path.rpartition("/")[2]: fs.cat_file(path) for path in fs.find(f"{tmp_path}/out")} == expected
    read = source.read.format("rolling").load(f"file://{tmp_path}/out")
    again = read.selectExpr("substring(value, 1, 1) device", "value").write.format("rolling")
    again.option("segmentBy", "device").mode("append").save(f"file://{tmp_path}/again")
    found = {path.rpartition("/")[2]: set(fs.cat_file(path).split()) for path in fs.find(f"{tmp_path}/again")}
    assert found == {name: set(data.split()) for name, data in expected.items()}


def test_a_query_in_update_mode_writes_the_rows_that_change_once(source, fs, tmp_path):
    """As docs/spark.md says it: `foreachBatch`, and a transaction for each batch."""
    fs.create(f"{tmp_path}/in")

    def upsert(rows: Any, batch: int) -> None:
        writer = to_json(rows).write.format("rolling").options(txnAppId="counts", txnVersion=batch)
        for _ in range(2):  # Spark repeats a batch whose end it has not noted
            writer.mode("append").save(f"file://{tmp_path}/counts")

    for lines in (b"a\nb\na\n", b"b\n"):
        fs.append(f"{tmp_path}/in", lines)
        counts = source.readStream.format("rolling").load(f"file://{tmp_path}/in").groupBy("value").count()
        query = counts.writeStream.outputMode("update").option("checkpointLocation", f"{tmp_path}/checkpoint")
        query.foreachBatch(upsert).trigger(availableNow=True).start().awaitTermination()
    rows = [json.loads(line) for line in fs.cat_file(f"{tmp_path}/counts").splitlines()]
    assert sorted(rows[:2], key=str) == [{"value": "a", "count": 2}, {"value": "b", "count": 1}]
    assert rows[2:] == [{"value": "b", "count": 2}]
