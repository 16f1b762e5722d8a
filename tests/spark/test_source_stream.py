"""The streaming source and the commits of the sink, without a Spark session: offsets, limits, truncation."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from tests.support.servers import require_module
from tests.support.spark import Task, arrow_stream, first_column, given, reader, saved, step

require_module("pyarrow")
require_module("pyspark")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType

from rollingfs.errors import AppendOutcomeUnknown
from rollingfs.spark.source import segments
from rollingfs.spark.source.batch_reader import RollingReader
from rollingfs.spark.source.formats.arrow_streams import MalformedStreamError
from rollingfs.spark.source.options import DataLossError, parse_options
from rollingfs.spark.source.sink.segment_commit import SegmentCommit
from rollingfs.spark.source.sink.stream_writer import RollingStreamWriter
from rollingfs.spark.source.stream.stream_reader import RollingStreamReader

SMALL = RollingPolicy(max_bytes=40, inline_bytes=10)
ALL = ReadAllAvailable()
YESTERDAY_S = time.time() - 24 * 3600
SCHEMA = StructType().add("value", "string")


def made(fs: RollingFileSystem, path: Path, data: bytes = b"") -> str:
    fs.create(str(path), SMALL)
    fs.append(str(path), data)
    return str(path)


def between(source: RollingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """The rows of a batch; both offsets went through the checkpoint."""
    return first_column(source, source.partitions(saved(start), saved(end)))


def test_whole_lines_are_taken_as_they_come_and_an_idle_segment_gives_the_same_text(fs, tmp_path):
    path = made(fs, tmp_path / "s", b"one\ntwo\nthr")
    source = reader(path)
    first = source.initialOffset()
    rows, at = step(source, first)
    assert rows == ["one", "two"]
    assert json.dumps(source.latestOffset(saved(at), ALL)) == json.dumps(at)
    fs.append(path, b"ee\n")
    rows, at = step(source, at)
    assert rows == ["three"]
    fs.append(path, b"last")
    fs.seal(path)
    rows, at = step(reader(path), at)  # a restarted query
    assert rows == ["last"]
    assert at[path]["sealed"] is True
    assert source.latestOffset(at, ALL) is at


def test_the_latest_offset_skips_what_is_there_but_no_part_of_a_line(fs, tmp_path):
    path = made(fs, tmp_path / "s", b"old\nha")
    source = reader(path, startingOffsets="latest")
    at = source.initialOffset()
    fs.append(path, b"lf\nnew\n")
    assert step(source, at)[0] == ["half", "new"]


@pytest.mark.parametrize("limit", [1, 5, 13, 100])
def test_a_limit_takes_whole_lines_and_at_least_one(fs, tmp_path, limit):
    lines = ["x" * (nth % 17) for nth in range(40)]
    path = made(fs, tmp_path / "s", "".join(line + "\n" for line in lines).encode())
    source = reader(path)
    at, found, batches = source.initialOffset(), [], 0
    while True:
        rows, end = step(source, at, ReadMaxBytes(limit))
        if end == at:
            break
        assert sum(len(row) + 1 for row in rows) <= limit or len(rows) == 1
        found, at, batches = found + rows, end, batches + 1
    assert found == lines
    assert batches >= 360 // (limit + 17)


def test_a_folder_is_read_with_the_oldest_first_and_segments_that_come_later(fs, tmp_path):
    one = made(fs, tmp_path / "f" / "one", b"a\n" * 50)
    two = made(fs, tmp_path / "f" / "two", b"b\n" * 50)
    source = reader(tmp_path / "f")
    rows, at = step(source, source.initialOffset(), ReadMaxBytes(20))
    assert rows == ["a"] * 10
    fs.create(str(tmp_path / "f" / "three"))
    fs.append(str(tmp_path / "f" / "three"), b"gone\nc\n")
    fs.truncate(str(tmp_path / "f" / "three"), 5)
    rows, at = step(source, at)
    assert sorted(rows) == ["a"] * 40 + ["b"] * 50 + ["c"]
    fs.append(two, b"d\n")
    assert step(source, at)[0] == ["d"]
    assert set(at) == {one, two, str(tmp_path / "f" / "three")}


def test_available_now_ends_where_everything_ended_when_it_began(fs, tmp_path):
    path = made(fs, tmp_path / "f" / "s", b"1\n2\n3\n")
    source = reader(tmp_path / "f")
    at = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    fs.append(path, b"4\n")
    made(fs, tmp_path / "f" / "new", b"5\n")
    found = []
    for _ in range(10):
        rows, end = step(source, at, ReadMaxBytes(2))
        if end == at:
            break
        found, at = found + rows, end
    assert found == ["1", "2", "3"]
    assert sorted(step(reader(tmp_path / "f"), at)[0]) == ["4", "5"]


def test_a_head_truncated_past_the_checkpoint_is_an_error_or_a_logged_skip(fs, tmp_path, caplog):
    path = made(fs, tmp_path / "s", b"one\ntwo\nthree\n")
    at = reader(path).initialOffset()
    end = reader(path).latestOffset(at, ALL)
    fs.append(path, b"four\n")
    fs.truncate(path, 8)
    with pytest.raises(DataLossError, match=r"bytes 0 to 8 were truncated.*failOnDataLoss=false"):
        reader(path).latestOffset(at, ALL)
    with pytest.raises(DataLossError, match="bytes 0 to 8 were truncated"):
        reader(path).partitions(at, end)
    lenient = reader(path, failOnDataLoss="false")
    rows, after = step(lenient, at)
    assert rows == ["three", "four"]
    assert "bytes 0 to 8 were truncated away before they were read; going on" in caplog.text
    assert between(lenient, at, end) == ["three"]  # a batch that was planned before
    fs.truncate(path, 14)
    assert between(lenient, at, end) == []
    assert lenient.latestOffset(after, ALL) is after


def test_a_head_truncated_between_the_plan_and_the_task_is_an_error_or_a_logged_skip(fs, tmp_path, caplog):
    path = made(fs, tmp_path / "s", b"one\ntwo\n")
    for option in ("true", "false"):
        source = reader(path, failOnDataLoss=option)
        at = {path: {**source.initialOffset()[path], "offset": fs.segment(path).start}}
        [part] = source.partitions(at, source.latestOffset(at, ALL))
        fs.append(path, b"more\n")
        fs.truncate(path, fs.segment(path).start + 4)
        if option == "true":
            with pytest.raises(OSError, match="truncated since"):
                list(source.read(part))
        else:
            assert first_column(source, [part]) == ["more"]
            assert "going on without" in caplog.text


def test_a_segment_that_is_gone_is_an_error_unless_it_was_sealed_and_read(fs, tmp_path, caplog):
    done = made(fs, tmp_path / "f" / "done", b"1\n")
    lost = made(fs, tmp_path / "f" / "lost", b"2\n")
    made(fs, tmp_path / "f" / "stays", b"")
    source = reader(tmp_path / "f")
    _, at = step(source, source.initialOffset())
    fs.seal(done)
    rows, at = step(source, at)
    assert (rows, at[done].get("sealed")) == ([], True)
    fs.rm(done)
    assert source.latestOffset(at, ALL) is at
    fs.rm(lost)
    with pytest.raises(DataLossError, match="lost: the segment is gone"):
        source.latestOffset(at, ALL)
    lenient = reader(tmp_path / "f", failOnDataLoss="false")
    after = lenient.latestOffset(at, ALL)
    assert lost not in after
    assert "lost: the segment is gone" in caplog.text


@pytest.mark.parametrize("what", ["a segment", "a plain file", "a file where an adopted one was"])
def test_another_segment_of_the_same_name_is_not_taken_for_the_old_one(fs, tmp_path, what):
    path = made(fs, tmp_path / "p", b"old one\nold two\n") if what == "a segment" else adoptable(tmp_path)
    _, at = step(reader(path), reader(path).initialOffset())
    if what == "a file where an adopted one was":
        fs.seal(path)
        fs.rm(path)
        (tmp_path / "p").write_bytes(b"new one\nnew two\n")
    else:
        fs.overwrite(path, b"new one\nnew two\n")
    with pytest.raises(DataLossError, match="another segment has this name"):
        reader(path).latestOffset(at, ALL)
    assert step(reader(path, failOnDataLoss="false"), at)[0] == ["new one", "new two"]


@pytest.mark.parametrize("is_truncated", [False, True])
def test_a_plain_file_stays_itself_when_it_is_adopted_and_is_not_there_any_more(fs, tmp_path, is_truncated):
    path = adoptable(tmp_path)
    at = step(reader(path), reader(path).initialOffset())[1]
    assert step(reader(path), at)[0] == []
    fs.append(path, b"more\n")
    if is_truncated:
        fs.truncate(path, len(b"plain\n"))
    fs.seal(path)
    for _ in range(2):
        rows, after = step(reader(path), at)
        assert rows == ["more"]
        assert step(reader(path), after)[0] == []
        (tmp_path / "p").unlink(missing_ok=True)


def test_a_batch_that_was_planned_goes_on_when_its_file_is_adopted(fs, tmp_path):
    path = adoptable(tmp_path)
    batch = RollingReader(reader(path).options, SCHEMA)
    parts = batch.partitions()
    fs.seal(path)
    assert first_column(batch, parts) == ["plain"]


def adoptable(tmp_path: Path) -> str:
    """A plain file of yesterday."""
    (tmp_path / "p").write_bytes(b"plain\n")
    os.utime(tmp_path / "p", (YESTERDAY_S, YESTERDAY_S))
    return str(tmp_path / "p")


def test_arrow_is_read_to_the_end_of_a_sealed_segment_be_it_a_file_or_a_stream_without_its_end_mark(fs, tmp_path):
    rows = pa.record_batch({"value": ["1", "2"]})
    file = io.BytesIO()
    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_batch(rows)
    stream = arrow_stream(rows)
    for nth, data in enumerate([file.getvalue(), stream + stream[:-8], stream + stream[:-8] + stream[:100]]):
        path = made(fs, tmp_path / str(nth), data)
        fs.seal(path)
        source = reader(path, format="arrow")
        found, at = step(source, source.initialOffset())
        assert found == ["1", "2"] * (1 + min(nth, 1))
        if nth < 2:
            assert at[path]["sealed"] is True
            assert source.latestOffset(at, ALL) is at
        else:
            with pytest.raises(MalformedStreamError, match="no more can come: it is sealed"):
                source.latestOffset(at, ALL)


def test_formats_without_records_are_refused_as_streams(tmp_path):
    for each in ("parquet", "binary"):
        with pytest.raises(ValueError, match="cannot be read as a stream"):
            reader(tmp_path, format=each)


# -- the sink ----------------------------------------------------------------------------------------------------


def stage(writer: RollingStreamWriter, *values: str, query: str = "q") -> list[Any]:
    """Run the tasks of a batch: a value for each partition."""
    receipts = []
    for nth, value in enumerate(values):
        with Task(nth, query).running():
            receipts.append(writer.write(iter([pa.record_batch({"value": [value]})])))
    return receipts


def sink(path: Any, overwrite: bool = False, **options: Any) -> RollingStreamWriter:
    return RollingStreamWriter(parse_options(given(path, **options)), SCHEMA, overwrite)


def test_a_batch_is_committed_once_in_the_order_of_partitions_whoever_commits_it_again(fs, tmp_path):
    path = tmp_path / "t"
    receipts = stage(sink(path), "a", "b")
    sink(path).commit(receipts[::-1], 0)
    sink(path).commit(receipts, 0)  # a driver that did not hear of it
    again = stage(sink(path), "a", "b")
    sink(path).commit(again, 0)  # a restarted one, which ran the tasks again
    sink(path).commit(stage(sink(path), "c"), 1)
    sink(path).commit(again, 0)  # a slow twin
    sink(path).commit(stage(sink(path), "other", query="r"), 0)
    assert fs.cat_file(str(path)) == b"a\nb\nc\nother\n"
    assert fs.segment(str(path)).attrs == {"spark/q": "1", "spark/r": "0"}


def test_twins_that_commit_at_the_same_moment_commit_once(fs, tmp_path, monkeypatch):
    path = tmp_path / "t"
    sink(path).commit(stage(sink(path), "a"), 0)
    slow, fast = sink(path), sink(path)
    mine, others = stage(slow, "b"), stage(fast, "b")
    look = segments.look

    def look_then_lose(*args: Any) -> Any:
        seen = look(*args)
        monkeypatch.setattr(segments, "look", look)
        fast.commit(others, 1)
        return seen

    monkeypatch.setattr(segments, "look", look_then_lose)
    slow.commit(mine, 1)
    assert fs.cat_file(str(path)) == b"a\nb\n"


@pytest.mark.parametrize("took_place", [True, False])
def test_a_commit_of_unknown_outcome_is_looked_up_and_not_doubled(fs, tmp_path, monkeypatch, took_place):
    writer = sink(tmp_path / "t")
    commit = SegmentCommit.commit
    calls = []

    def unsure(*args: Any) -> None:
        calls.append(args)
        if took_place or len(calls) > 1:
            commit(*args)
        if len(calls) == 1:
            raise AppendOutcomeUnknown("the answer was lost")

    monkeypatch.setattr(SegmentCommit, "commit", unsure)
    writer.commit(stage(writer, "a"), 0)
    assert (fs.cat_file(str(tmp_path / "t")), len(calls)) == (b"a\n", 1 if took_place else 2)


def test_tasks_that_name_no_query_are_refused_and_no_tasks_are_nothing(fs, tmp_path):
    writer = sink(tmp_path / "t")
    with pytest.raises(RuntimeError, match="must name one query"):
        writer.commit([*stage(writer, "a", query="q"), *stage(writer, "b", query="r")], 0)
    writer.commit([], 0)
    assert not fs.exists(str(tmp_path / "t"))
