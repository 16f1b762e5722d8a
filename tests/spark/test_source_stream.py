"""The streaming source, without a Spark session: offsets, limits, truncation."""

import io
import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.spark.source.formats.arrow_streams import MalformedStreamError
from rollingfs.spark.source.options import DataLossError
from tests.support.spark import arrow_stream
from tests.support.spark_source import ALL, batch_reader, drained, first_column, put, reader, saved, step

SMALL = RollingPolicy(max_bytes=40, inline_bytes=10)
YESTERDAY_S = time.time() - 24 * 3600


def made(fs: RollingFileSystem, path: Path, data: bytes) -> str:
    return put(fs, path, data, SMALL)


def test_whole_lines_arrive_in_order_and_idle_offsets_repeat(fs, tmp_path):
    path = made(fs, tmp_path / "s", b"one\ntwo\nthr")
    source = reader(path)
    rows, at = step(source)
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


def test_latest_offset_skips_the_present_except_partial_lines(fs, tmp_path):
    path = made(fs, tmp_path / "s", b"old\nha")
    source = reader(path, startingOffsets="latest")
    at = source.initialOffset()
    fs.append(path, b"lf\nnew\n")
    assert step(source, at)[0] == ["half", "new"]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_repeated_first_batch_reads_what_it_had_planned(fs, tmp_path, starting):
    """Spark asks for the begin of its first batch again, because its checkpoint has only the end."""
    path = made(fs, tmp_path / "s", b"old\n")
    source = reader(path, startingOffsets=starting)
    start = saved(source.initialOffset())
    fs.append(path, b"first\n")
    end = saved(source.latestOffset(start, ALL))
    fs.append(path, b"second\n")
    again = reader(path, startingOffsets=starting)  # the driver was killed
    planned = again.partitions(saved(again.initialOffset()), end)
    assert first_column(again, planned) == ["old", "first"][starting == "latest" :]
    assert step(again, end)[0] == ["second"]
    fs.truncate(path, len(b"old\nfirst\n"))
    with pytest.raises(DataLossError, match="truncated away before they were read"):
        again.partitions(saved(again.initialOffset()), end)


@pytest.mark.parametrize("limit", [1, 5, 13, 100])
def test_a_limit_takes_whole_lines_and_at_least_one(fs, tmp_path, limit):
    lines = ["x" * (nth % 17) for nth in range(40)]
    batches = drained(made(fs, tmp_path / "s", "".join(line + "\n" for line in lines).encode()), ReadMaxBytes(limit))
    assert all(sum(len(row) + 1 for row in rows) <= limit or len(rows) == 1 for rows in batches)
    assert [row for rows in batches for row in rows] == lines
    assert len(batches) >= 360 // (limit + 17)


def test_available_now_ends_where_everything_ended_when_it_began(fs, tmp_path):
    path = made(fs, tmp_path / "f" / "s", b"1\n2\n3\n")
    source = reader(tmp_path / "f")
    found, at = step(source, limit=ReadMaxBytes(2))
    source.prepareForTriggerAvailableNow()
    fs.append(path, b"4\n")
    fs.truncate(made(fs, tmp_path / "f" / "new", b"gone\n5\n"), 5)
    for _ in range(5):
        rows, at = step(source, at, ReadMaxBytes(2))
        found += rows
    assert found == ["1", "2", "3"]
    assert sorted(step(reader(tmp_path / "f"), at)[0]) == ["4", "5"]


def test_head_truncated_past_checkpoint_is_error_or_logged_skip(fs, tmp_path, caplog):
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
    assert first_column(lenient, lenient.partitions(saved(at), saved(end))) == [
        "three"
    ]  # a batch that was planned before
    fs.truncate(path, 14)
    assert first_column(lenient, lenient.partitions(saved(at), saved(end))) == []
    assert lenient.latestOffset(after, ALL) is after


def test_byte_before_an_erased_start_is_not_known(fs, tmp_path):
    path = made(fs, tmp_path / "s", b"one\ntwo\nthree\nfour\n")
    fs.truncate(path, 8)
    source = reader(path)
    view = source._look().views[path]
    assert source._records.first_whole(view) == 8
    fs.truncate(path, 8, erase=True)
    assert source._records.first_whole(view) == 14


def test_head_truncated_before_the_task_fails_or_skips(fs, tmp_path, caplog):
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


def test_missing_segment_is_an_error_unless_sealed_and_read(fs, tmp_path, caplog):
    done, lost, _ = (made(fs, tmp_path / "f" / name, name.encode() + b"\n") for name in ("done", "lost", "stays"))
    source = reader(tmp_path / "f")
    _, at = step(source)
    fs.seal(done)
    rows, at = step(source, at)
    assert (rows, at[done].get("sealed")) == ([], True)
    fs.rm(done)
    assert source.latestOffset(at, ALL) is at
    fs.rm(lost)
    with pytest.raises(DataLossError, match="lost: the segment is gone"):
        source.latestOffset(at, ALL)
    assert lost not in reader(tmp_path / "f", failOnDataLoss="false").latestOffset(at, ALL)
    assert "lost: the segment is gone" in caplog.text


@pytest.mark.parametrize("what", ["a segment", "a plain file", "a file where an adopted one was"])
def test_new_segment_of_the_name_is_not_the_old(fs, tmp_path, what):
    path = made(fs, tmp_path / "p", b"old one\nold two\n") if what == "a segment" else adoptable(tmp_path)
    _, at = step(reader(path))
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
def test_adopted_plain_file_stays_itself_and_then_is_absent(fs, tmp_path, is_truncated):
    path = adoptable(tmp_path)
    _, at = step(reader(path))
    assert step(reader(path), at)[0] == []
    fs.append(path, b"more\n")
    if is_truncated:
        fs.truncate(path, len(b"plain\n"))
    fs.seal(path)
    for _ in range(2):
        assert drained(path, at=at) == [["more"]]
        (tmp_path / "p").unlink(missing_ok=True)


def test_planned_batch_continues_after_its_file_is_adopted(fs, tmp_path):
    path = adoptable(tmp_path)
    batch = batch_reader(path)
    parts = batch.partitions()
    fs.seal(path)
    assert first_column(batch, parts) == ["plain"]


def adoptable(tmp_path: Path) -> str:
    """A plain file of yesterday."""
    (tmp_path / "p").write_bytes(b"plain\n")
    os.utime(tmp_path / "p", (YESTERDAY_S, YESTERDAY_S))
    return str(tmp_path / "p")


def test_sealed_arrow_is_read_with_or_without_end_mark(fs, tmp_path):
    rows = pa.record_batch({"value": ["1", "2"]})
    file = io.BytesIO()
    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_batch(rows)
    stream = arrow_stream(rows)
    for nth, data in enumerate([file.getvalue(), stream + stream[:-8], stream + stream[:-8] + stream[:100]]):
        path = made(fs, tmp_path / str(nth), data)
        fs.seal(path)
        source = reader(path, format="arrow")
        found, at = step(source)
        assert found == ["1", "2"] * (1 + min(nth, 1))
        if nth < 2:
            assert at[path]["sealed"] is True
            assert source.latestOffset(at, ALL) is at
    with pytest.raises(MalformedStreamError, match="no more can come: it is sealed"):
        source.latestOffset(at, ALL)


@pytest.mark.parametrize("kind", ["parquet", "binary"])
def test_formats_without_records_are_refused_as_streams(tmp_path, kind):
    with pytest.raises(ValueError, match="cannot be read as a stream"):
        reader(tmp_path, format=kind)
