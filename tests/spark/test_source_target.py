"""A write looks at its target before any task begins; a later failure shows its own cause. Without a session."""

from __future__ import annotations

import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest

from rollingfs import FencedError, RollingFileSystem, SegmentSealedError
from tests.support.servers import require_module
from tests.support.spark import Task

require_module("pyarrow")
require_module("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.cloudpickle import dumps
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from rollingfs.errors import AppendOutcomeUnknown, CorruptHeaderError
from rollingfs.format.header import ATTRS_MAX
from rollingfs.format.thrift import MalformedFooterError
from rollingfs.parquet import grow
from rollingfs.spark.source import segments
from rollingfs.spark.source.datasource import RollingDataSource
from rollingfs.spark.source.options import parse_options
from rollingfs.spark.source.rows import arrow_schema
from rollingfs.spark.source.sink.batch_writer import RollingWriter
from rollingfs.spark.source.sink.segment_commit import SegmentCommit
from rollingfs.spark.source.sink.stream_writer import RollingStreamWriter

SCHEMA = StructType().add("value", "string")
QUERY = "3f"
SEED = 20261122


def run_task(writer: Any, rows: pa.RecordBatch | None = None, batch: int | None = None) -> Any:
    """Run a task of a writer that Spark has pickled."""
    with Task(query=QUERY, batch=batch).running():
        return pickle.loads(dumps(writer)).write(iter([rows or pa.record_batch({"value": ["a"]})]))


def source(path: Any, **options: Any) -> RollingDataSource:
    storage = '{"file": {}, "rolling": {"header_cache_s": 0, "sync": false}}'
    # each task stages what it writes, so that a file shows a task that began
    return RollingDataSource({"path": str(path), "storage_options": storage, "taskMessageBytes": "0", **options})


def writers(path: Any, schema: StructType = SCHEMA, overwrite: bool = False, **options: Any) -> list[Any]:
    """Two calls that make a writer: for a batch, for a stream."""
    return [
        lambda: source(path, **options).writer(schema, overwrite),
        lambda: source(path, **options).streamWriter(schema, overwrite),
    ]


def staged(path: Any) -> list[Path]:
    return list(Path(f"{path}$chunks").glob("stage-*"))


# -- the target ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_anything_in_it_is_refused_as_a_target_with_what_is_in_it(fs, tmp_path, overwrite):
    """A segment of its name would hide its content."""
    folder = tmp_path / "d"
    for nth in range(3):
        fs.create(f"{folder}/s{nth}")
        fs.append(f"{folder}/s{nth}", b"a row\n")
    for make in writers(folder, overwrite=overwrite):
        with pytest.raises(IsADirectoryError, match=r"holds s0, s1, s2; .*would hide them. Nothing was written.*/d'$"):
            make()
    for nth in range(7):
        (folder / f"plain{nth}").write_bytes(b"x")
    (folder / "s1$header").write_bytes(b"rubbish")
    for make in writers(folder, overwrite=overwrite):
        with pytest.raises(IsADirectoryError, match=r"and 7 more"):
            make()
    assert not Path(f"{folder}$header").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    for make in writers(empty, overwrite=overwrite):
        make()


def test_a_sealed_target_is_refused_before_a_task_begins_and_may_be_overwritten(fs, tmp_path):
    path = tmp_path / "s"
    fs.overwrite(str(path), b"done\n")
    fs.seal(str(path))
    with pytest.raises(SegmentSealedError, match="sealed at length 5"):
        source(path).writer(SCHEMA, False)
    with pytest.raises(SegmentSealedError, match="lacks batch 1"):
        run_task(source(path).streamWriter(SCHEMA, False), batch=1)
    assert not staged(path)
    writer = source(path).writer(SCHEMA, True)
    writer.commit([run_task(writer)])
    assert fs.cat_file(str(path)) == b"a\n"


def test_a_target_that_somebody_holds_or_that_is_damaged_or_has_no_name_is_refused_before_a_task_begins(fs, tmp_path):
    held = tmp_path / "held"
    fs.create(str(held))
    fs.segment(str(held)).acquire("somebody")
    Path(f"{tmp_path}/bad$header").write_bytes(b"rubbish")
    for path, error in (
        (held, FencedError),
        (tmp_path / "bad", CorruptHeaderError),
        (tmp_path / "x$header", ValueError),
    ):
        for make in writers(path):
            with pytest.raises(error):
                make()


def test_credentials_that_are_refused_are_seen_before_a_task_begins(tmp_path, monkeypatch):
    from rollingfs.backend.local.backend import LocalBackend

    async def refuse(self: Any, path: str) -> Any:
        raise PermissionError(13, "Forbidden", path)

    monkeypatch.setattr(LocalBackend, "read", refuse)
    for make in writers(tmp_path / "s"):
        with pytest.raises(PermissionError, match="Forbidden"):
            make()


def test_the_writer_that_commits_or_aborts_a_batch_looks_at_nothing_when_it_is_made(fs, tmp_path):
    """Spark makes it from the pickled data source; an error of it would hide the error for which Spark aborts."""
    path = tmp_path / "s"
    Path(f"{path}$header").write_bytes(b"rubbish")
    again = pickle.loads(dumps(source(path)))
    again.streamWriter(SCHEMA, False).abort([None], 3)


# -- the first cause ---------------------------------------------------------------------------------------------


def test_an_abort_never_raises_and_says_in_the_log_what_it_could_not_see(fs, tmp_path, caplog):
    path = tmp_path / "s"
    batch, stream = (make() for make in writers(path))
    receipt = run_task(batch)
    Path(f"{path}$header").write_bytes(b"rubbish")
    batch.abort([receipt, None])
    stream.abort([receipt, None], 0)
    assert caplog.text.count("its data was perhaps committed: the target cannot be read") == 2
    assert "CorruptHeaderError" in caplog.text


def test_a_look_that_fails_after_a_commit_of_unknown_outcome_does_not_hide_it(tmp_path, monkeypatch):
    writer: RollingStreamWriter = source(tmp_path / "s").streamWriter(SCHEMA, False)
    receipt = run_task(writer, batch=0)

    def unsure(*args: Any) -> None:
        monkeypatch.setattr(SegmentCommit, "view", gone)
        monkeypatch.setattr(segments, "look", gone)
        raise AppendOutcomeUnknown("the answer was lost")

    def gone(*args: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(SegmentCommit, "commit", unsure)
    with pytest.raises(AppendOutcomeUnknown, match="the answer was lost") as raised:
        writer.commit([receipt], 0)
    assert isinstance(raised.value.__cause__, ConnectionError)
    with pytest.raises(ConnectionError):
        writer.commit([receipt], 0)


# -- attributes --------------------------------------------------------------------------------------------------


def test_a_query_for_which_a_target_has_no_room_is_told_which_attributes_to_drop(fs, tmp_path):
    path = tmp_path / "s"
    fs.overwrite(str(path), b"", attrs={"mine": "x", **{f"spark/q{nth}": str(nth) for nth in range(ATTRS_MAX - 1)}})
    writer = source(path).streamWriter(SCHEMA, False)
    told = r"no room for attribute spark/3f.*spark/q0 \(batch 0\), spark/q1 .*spark/q7 \(batch 7\) and 55 more"
    with pytest.raises(ValueError, match=told):
        run_task(writer, batch=1)
    assert not staged(path)
    receipt = run_task(writer)  # of a Spark that names no batch
    with pytest.raises(ValueError, match=told):
        writer.commit([receipt], 1)
    assert fs.cat_file(str(path)) == b""
    fs.append(str(path), b"", attrs={"spark/q0": None})
    writer = source(path).streamWriter(SCHEMA, False)
    writer.commit([run_task(writer, batch=1)], 1)
    assert fs.cat_file(str(path)) == b"a\n"
    assert "spark/3f" in fs.segment(str(path)).attrs


# -- Parquet -----------------------------------------------------------------------------------------------------


def rows_in(fs: RollingFileSystem, path: Path) -> list[dict[str, Any]]:
    with fs.open(str(path)) as file:
        found: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return found


def test_parquet_takes_rows_with_other_nulls_another_order_and_more_columns(fs, tmp_path):
    path = tmp_path / "p"
    n, s, extra = (
        StructField(name, kind, False) for name, kind in (("n", LongType()), ("s", StringType()), ("x", LongType()))
    )

    def write(fields: list[StructField], rows: dict[str, Any], stream_batch: int | None = None) -> None:
        there = source(path, format="parquet")
        schema = StructType(fields)
        batch = pa.record_batch(rows)
        if stream_batch is None:
            writer = there.writer(schema, False)
            writer.commit([run_task(writer, batch)])
        else:
            receipt = run_task(there.streamWriter(schema, False), batch, stream_batch)
            pickle.loads(dumps(there)).streamWriter(schema, False).commit([receipt], stream_batch)

    write([n, s], {"n": [1], "s": ["a"]})
    write([s, n], {"s": ["b", None], "n": [None, 3]})
    write([extra, n, s], {"x": [9], "n": [4], "s": ["d"]})
    write([s, extra, n], {"x": [10], "n": [5], "s": ["e"]}, stream_batch=1)
    expected = [(1, "a", None), (None, "b", None), (3, None, None), (4, "d", 9), (5, "e", 10)]
    assert rows_in(fs, path) == [dict(zip(("n", "s", "x"), row, strict=True)) for row in expected]
    with pytest.raises(ValueError, match=r"/p: these rows cannot be appended.*'x' is missing among n, s; nothing was"):
        source(path, format="parquet").writer(StructType([n, s]), False)
    for make in writers(path, StructType([s]), overwrite=True, format="parquet"):
        make()


def test_a_null_for_a_parquet_column_that_takes_none_is_refused_by_the_task_that_has_it(fs, tmp_path):
    path = tmp_path / "p"
    schema = pa.schema([pa.field("n", pa.int64(), False)])
    with fs.open(str(path), "wb") as file:
        pq.write_table(pa.table({"n": [1]}, schema), file)
    writer = source(path, format="parquet").writer(StructType().add("n", "long"), False)
    writer.commit([run_task(writer, pa.record_batch({"n": [2]}))])
    assert rows_in(fs, path) == [{"n": 1}, {"n": 2}]
    with pytest.raises(pa.ArrowInvalid, match="column 'n' has nulls"):
        run_task(writer, pa.record_batch({"n": pa.array([None], pa.int64())}))


def test_columns_that_come_to_a_parquet_file_during_a_job_are_named_when_the_job_commits(fs, tmp_path):
    path = tmp_path / "p"
    one, two = (source(path, format="parquet").writer(StructType().add(name, "long"), False) for name in ("n", "m"))
    mine, others = run_task(one, pa.record_batch({"n": [1]})), run_task(two, pa.record_batch({"m": [1]}))
    two.commit([others])
    with pytest.raises(
        ValueError,
        match=r"/p: these rows cannot be appended.*: they have 'n' where the file has 'm'; nothing was written",
    ):
        one.commit([mine])
    assert rows_in(fs, path) == [{"m": 1}]


def with_a_byte_of_the_footer_changed(data: bytes) -> list[bytes]:
    """Each byte of the footer of a Parquet file, changed in several ways; the length and the magic stay."""
    first = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return [
        data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
        for at in range(first, len(data) - 8)
        for flip in (0x01, 0x04, 0x10, 0x80, 0xFF)
    ]


@pytest.mark.parametrize("tries", [20, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.nightly])])
def test_a_damaged_parquet_footer_is_refused_in_one_sentence_and_nothing_is_written(fs, tmp_path, tries):
    inner = StructType().add("x", "long").add("l", ArrayType(StringType()))
    nested = StructType().add("n", "long").add("o", inner).add("m", MapType(StringType(), LongType()))
    row = {"n": [1], "o": [{"x": 2, "l": ["a"]}], "m": [[("k", 3)]]}
    writes = []
    for schema, rows in ((nested, row), (StructType([*nested, StructField("new", LongType())]), {**row, "new": [4]})):
        writer = source(tmp_path / "sound", taskMessageBytes="64KiB", format="parquet").writer(schema, False)
        writes.append((schema, run_task(writer, pa.record_batch(rows, arrow_schema(schema)))))
    for _ in range(2):
        source(tmp_path / "sound", format="parquet").writer(nested, False).commit([writes[0][1]])
    damaged = with_a_byte_of_the_footer_changed(fs.cat_file(str(tmp_path / "sound")))
    damaged = random.Random(SEED).sample(damaged, tries)
    told: list[str] = []
    for nth, data in enumerate(damaged):
        for schema, receipt in writes:
            path = tmp_path / f"{nth}-{len(schema)}"
            path.write_bytes(data)
            there = source(path, format="parquet")
            try:
                there.writer(schema, False)
                RollingWriter(parse_options(dict(there.options)), schema, False).commit([receipt])
            except MalformedFooterError as error:
                told.append(str(error).removeprefix(f"{path}: "))
                assert path.read_bytes() == data
    assert len(told) > len(damaged)
    assert all(re.match("these rows cannot be appended to it as Parquet: .*nothing was written", text) for text in told)


def test_a_writer_of_parquet_that_loses_a_race_pauses_before_each_new_try(fs, tmp_path, monkeypatch):
    path = tmp_path / "p"
    slow, fast = (source(path, format="parquet").writer(StructType().add("n", "long"), False) for _ in range(2))
    mine = run_task(slow, pa.record_batch({"n": [1]}))
    pauses: list[float] = []
    monkeypatch.setattr(grow.time, "sleep", pauses.append)
    look, tries = SegmentCommit.view, iter(range(3))

    def look_then_lose(one: SegmentCommit) -> Any:
        seen = look(one)
        with monkeypatch.context() as patch:
            patch.setattr(SegmentCommit, "view", look)
            if next(tries, None) is not None:
                fast.commit([run_task(fast, pa.record_batch({"n": [0]}))])
        return seen

    monkeypatch.setattr(SegmentCommit, "view", look_then_lose)
    slow.commit([mine])
    assert [row["n"] for row in rows_in(fs, path)] == [0, 0, 0, 1]
    assert len(pauses) == 3
    assert isinstance(slow, RollingWriter)
