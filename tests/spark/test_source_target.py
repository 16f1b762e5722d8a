"""A write looks at its target before any task begins; a later failure shows its own cause. Without a session."""

import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from rollingfs import FencedError, SegmentSealedError
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import AppendOutcomeUnknown, CorruptHeaderError
from rollingfs.format.header import ATTRS_MAX
from rollingfs.parquet import grow
from rollingfs.parquet_footer.thrift import MalformedFooterError
from rollingfs.spark.source import segments
from rollingfs.spark.source.options import parse_options
from rollingfs.spark.source.rows import arrow_schema
from rollingfs.spark.source.sink.commits import SegmentCommit
from rollingfs.spark.source.sink.writers import RollingWriter
from tests.support.backends import raises
from tests.support.schedules import beside
from tests.support.spark import parquet_file
from tests.support.spark_source import NUMBERS, QUERY, TEXT, Sink

SEED = 20261122
ROUTED = StructType().add("device", "string").add("value", "string")
STAGING = {"taskMessageBytes": "0"}


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sink:
    """A sink on a disk. Each task stages what it writes, so that a file shows a task that began."""
    return Sink(monkeypatch, LocalBackend(sync=False), path=f"{tmp_path}/s", **STAGING)


@pytest.fixture
def routed(sink: Sink) -> Sink:
    """A sink of a segment for each device."""
    sink.options["segmentBy"], sink.schema = "device", ROUTED
    return sink


@pytest.fixture
def parquet(sink: Sink) -> Sink:
    """A sink of Parquet with a column of numbers."""
    sink.options["format"], sink.schema = "parquet", NUMBERS
    return sink


def refused(plans: Iterable[Callable[[], object]], error: type[Exception], why: str = "") -> None:
    for plan in plans:
        with pytest.raises(error, match=why or None):
            plan()


def numbers(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


# -- the target ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
def test_nonempty_folder_is_refused_as_a_target_with_contents(sink, tmp_path, overwrite):
    """A segment of its name would hide its content."""
    folder = tmp_path / "s"
    folder.mkdir()
    for plan in sink.plans(overwrite=overwrite):
        plan()
    for nth in range(3):
        sink.fs.overwrite(f"{folder}/s{nth}", b"a row\n")
    plans = sink.plans(overwrite=overwrite)
    refused(plans, IsADirectoryError, r"holds s0, s1, s2; .*would hide them. Nothing was written.*/s'$")
    for nth in range(7):
        (folder / f"plain{nth}").write_bytes(b"x")
    (folder / "s1$header").write_bytes(b"rubbish")
    refused(plans, IsADirectoryError, r"and 7 more")
    assert not Path(f"{folder}$header").exists()


def test_sealed_target_is_refused_early_and_may_be_overwritten(sink):
    sink.fs.overwrite(sink.target, b"done\n")
    sink.fs.seal(sink.target)
    with pytest.raises(SegmentSealedError, match="sealed at length 5"):
        sink.plan()
    with pytest.raises(SegmentSealedError, match="lacks batch 1"):
        sink.tasks(1, ["a"])
    assert not any("/stage-" in path for path in sink.chunk_files())
    sink.write(["a"], overwrite=True)
    assert sink.rows() == ["a"]


@pytest.mark.parametrize(
    ("name", "error"), [("held", FencedError), ("damaged", CorruptHeaderError), ("x$header", ValueError)]
)
def test_target_without_commits_is_refused_before_tasks(sink, tmp_path, name, error):
    sink.fs.create(f"{tmp_path}/held")
    sink.fs.segment(f"{tmp_path}/held").acquire("somebody")
    Path(f"{tmp_path}/damaged$header").write_bytes(b"rubbish")
    sink.options["path"] = f"{tmp_path}/{name}"
    refused(sink.plans(), error)


@pytest.mark.parametrize(
    ("schema", "by", "overwrite", "why"),
    [
        (ROUTED, "Device", False, "no column, or several, of device, value"),
        (StructType().add("device", "double").add("value", "string"), "device", False, "a column of double"),
        (StructType().add("device", "string"), "device", False, "the only column"),
        (ROUTED, "device", True, r"segmentBy appends.*Nothing was written"),  # segments without rows would stay
    ],
    ids=["no column", "a column of floats", "the only column", "overwrite"],
)
def test_what_cannot_be_routed_is_refused_before_task_begins(routed, schema, by, overwrite, why):
    routed.options["segmentBy"] = by
    refused(routed.plans(schema, overwrite), ValueError, why)


def test_target_that_is_segment_is_refused_as_folder(routed):
    routed.fs.create(routed.target)
    refused(routed.plans(), NotADirectoryError, "segmentBy=device needs one")


def test_committing_writer_looks_at_nothing_when_it_is_made(sink):
    """Spark makes it from the pickled data source; an error of it would hide the error for which Spark aborts."""
    Path(f"{sink.target}$header").write_bytes(b"rubbish")
    sink.pickled(sink.source).streamWriter(TEXT, False).abort([None], 3)


# -- the first cause ---------------------------------------------------------------------------------------------


def test_abort_never_raises_and_logs_what_it_missed(sink, caplog):
    batch, stream = (plan() for plan in sink.plans())
    receipts = sink.run(batch, None, ["a"])
    Path(f"{sink.target}$header").write_bytes(b"rubbish")
    batch.abort([*receipts, None])
    stream.abort([*receipts, None], 0)
    assert caplog.text.count("its data was perhaps committed: the target cannot be read") == 2
    assert "CorruptHeaderError" in caplog.text


def test_failed_look_after_an_unknown_commit_does_not_hide(sink, monkeypatch):
    receipts = sink.tasks(0, ["a"])

    def unsure(*args: Any) -> None:
        monkeypatch.setattr(SegmentCommit, "view", gone)
        monkeypatch.setattr(segments, "look", gone)
        raise AppendOutcomeUnknown("the answer was lost")

    gone = raises(ConnectionError("no network"))
    monkeypatch.setattr(SegmentCommit, "commit", unsure)
    with pytest.raises(AppendOutcomeUnknown, match="the answer was lost") as raised:
        sink.commit(receipts, 0)
    assert isinstance(raised.value.__cause__, ConnectionError)
    with pytest.raises(ConnectionError):
        sink.commit(receipts, 0)


COMMITTED = "its data IS committed"
NOTHING, PERHAPS = "nothing was committed", "perhaps committed"
OF_JOB = {"txnAppId": "job", "txnVersion": "7"}


@pytest.mark.parametrize(
    ("batch", "options", "commits_it", "others", "told"),
    [
        (None, {}, False, "", NOTHING),
        (None, {}, False, "append", PERHAPS),
        (None, {}, True, "", PERHAPS),
        (None, {}, True, "delete", PERHAPS),
        (None, STAGING, False, "append", PERHAPS),
        (None, STAGING, True, "append", PERHAPS),
        (None, {**STAGING, **OF_JOB}, True, "", COMMITTED),
        (7, {}, True, "append", COMMITTED),
        (7, {}, False, "append", NOTHING),
        (7, {}, True, "overwrite", PERHAPS),
    ],
)
def test_log_of_failed_job_says_what_is_known(sink, caplog, batch, options, commits_it, others, told):
    sink.options = {"path": sink.options["path"], **options}
    sink.fs.overwrite(sink.target, b"before\n")
    writer, number = sink.plan(batch), [] if batch is None else [batch]
    receipts = sink.run(writer, batch, ["a"])
    if commits_it:
        sink.pickled(writer).commit(receipts, *number)
    if others == "delete":
        sink.fs.rm(sink.target)
    elif others:
        getattr(sink.fs, others)(sink.target, b"others\n")
    is_new = batch is not None and others != "overwrite"  # as Spark makes one of the pickled data source
    again = sink.pickled(sink.source).streamWriter(TEXT, False) if is_new else writer
    sink.pickled(again).abort(receipts, *number)
    assert told in caplog.text
    assert any("/stage-" in file for file in sink.chunk_files()) == ("taskMessageBytes" in options)


def test_failed_batch_logs_one_line_for_each_outcome(routed, caplog):
    writer = routed.plan(0)
    receipts = routed.run(writer, 0, [(f"{nth:02d}", "x") for nth in range(20)])
    routed.stream(0, [(f"{nth:02d}", "x") for nth in range(10)])
    writer.abort(receipts, 0)
    committed, not_committed = caplog.messages
    assert committed.startswith(f"{routed.target}/00, ")
    assert f"{routed.target}/07 and 2 more: the job reports a failure, but its data IS committed" in committed
    assert not_committed.endswith(f"{routed.target}/17 and 2 more: the job failed, and nothing was committed")


# -- attributes --------------------------------------------------------------------------------------------------


def test_query_without_room_is_told_which_attributes_to_drop(sink):
    others = {f"spark/q{nth}": str(nth) for nth in range(ATTRS_MAX - 1)}
    sink.fs.overwrite(sink.target, b"", attrs={"mine": "x", **others})
    told = r"no room for attribute spark/3f.*spark/q0 \(batch 0\), spark/q1 .*spark/q7 \(batch 7\) and 55 more"
    with pytest.raises(ValueError, match=told):
        sink.tasks(1, ["a"])
    assert not any("/stage-" in path for path in sink.chunk_files())
    receipts = sink.run(sink.plan(1), None, ["a"])  # of a Spark that names no batch
    with pytest.raises(ValueError, match=told):
        sink.commit(receipts, 1)
    assert sink.rows() == []
    sink.fs.append(sink.target, b"", attrs={"spark/q0": None})
    sink.stream(1, ["a"])
    assert sink.rows() == ["a"]
    assert f"spark/{QUERY}" in sink.fs.segment(sink.target).attrs


# -- Parquet -----------------------------------------------------------------------------------------------------


def test_parquet_takes_other_nulls_orders_and_more_columns(parquet):
    n, s, x = (StructField(*one, False) for one in (("n", LongType()), ("s", StringType()), ("x", LongType())))

    def write(fields: list[StructField], *row: list[Any], batch: int | None = None) -> None:
        parquet.schema = StructType(fields)
        rows = pa.record_batch(list(row), names=parquet.schema.names)
        parquet.write(rows) if batch is None else parquet.stream(batch, rows)

    write([n, s], [1], ["a"])
    write([s, n], ["b", None], [None, 3])
    write([x, n, s], [9], [4], ["d"])
    write([s, x, n], ["e"], [10], [5], batch=1)
    expected = [(1, "a", None), (None, "b", None), (3, None, None), (4, "d", 9), (5, "e", 10)]
    assert parquet.rows() == [dict(zip(("n", "s", "x"), row, strict=True)) for row in expected]
    with pytest.raises(ValueError, match=r"/s: these rows cannot be appended.*'x' is missing among n, s; nothing was"):
        parquet.plans(StructType([n, s]))[0]()
    for plan in parquet.plans(StructType([s]), overwrite=True):
        plan()


def test_null_in_a_not_null_parquet_column_is_refused(parquet):
    required = pa.schema([pa.field("n", pa.int64(), False)])
    parquet.fs.overwrite(parquet.target, parquet_file(pa.table({"n": [1]}, required)))
    parquet.write(numbers(2))
    assert parquet.rows() == [{"n": 1}, {"n": 2}]
    with pytest.raises(pa.ArrowInvalid, match="column 'n' has nulls"):
        parquet.tasks(None, numbers(None))


def test_new_parquet_columns_during_a_job_are_named(parquet):
    writer = parquet.plan()
    mine = parquet.run(writer, None, numbers(1))
    parquet.schema = StructType().add("m", "long")
    parquet.write(pa.record_batch({"m": [1]}))
    told = "/s: these rows cannot be appended.*: they have 'n' where the file has 'm'; nothing was written"
    with pytest.raises(ValueError, match=told):
        writer.commit(mine)
    assert parquet.rows() == [{"m": 1}]


def with_a_byte_of_the_footer_changed(data: bytes) -> list[bytes]:
    """Each byte of the footer of a Parquet file, changed in several ways; the length and the magic stay."""
    first = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return [
        data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
        for at in range(first, len(data) - 8)
        for flip in (0x01, 0x04, 0x10, 0x80, 0xFF)
    ]


@pytest.mark.parametrize("tries", [20, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.nightly])])
def test_damaged_parquet_footer_is_refused_and_nothing_written(parquet, tmp_path, tries):
    inner = StructType().add("x", "long").add("l", ArrayType(StringType()))
    nested = StructType().add("n", "long").add("o", inner).add("m", MapType(StringType(), LongType()))
    row = {"n": [1], "o": [{"x": 2, "l": ["a"]}], "m": [[("k", 3)]]}
    parquet.options["taskMessageBytes"] = "64KiB"
    writes = []
    for schema, rows in ((nested, row), (StructType([*nested, StructField("new", LongType())]), {**row, "new": [4]})):
        parquet.schema = schema
        writes.append((schema, parquet.tasks(None, pa.record_batch(rows, arrow_schema(schema)))))
    for _ in range(2):
        parquet.plans(nested)[0]().commit(writes[0][1])
    damaged = with_a_byte_of_the_footer_changed(parquet.fs.cat_file(parquet.target))
    damaged = random.Random(SEED).sample(damaged, tries)
    told: list[str] = []
    for nth, data in enumerate(damaged):
        for schema, receipts in writes:
            path = tmp_path / f"{nth}-{len(schema)}"
            path.write_bytes(data)
            parquet.options["path"] = str(path)
            try:
                parquet.plans(schema)[0]()
                RollingWriter(parse_options(parquet.options), schema, False).commit(receipts)
            except MalformedFooterError as error:
                told.append(str(error).removeprefix(f"{path}: "))
                assert path.read_bytes() == data
    assert len(told) > len(damaged)
    assert all(re.match("these rows cannot be appended to it as Parquet: .*nothing was written", text) for text in told)


def test_losing_parquet_writer_pauses_before_each_try(parquet, monkeypatch):
    slow = parquet.plan()
    mine = parquet.run(slow, None, numbers(1))
    pauses: list[float] = []
    monkeypatch.setattr(grow.time, "sleep", pauses.append)
    rivals = [0, 0, 0]

    def lose_next_race() -> None:
        beside(monkeypatch, SegmentCommit, "view", after=lose, once=True)

    def lose(_: SegmentCommit) -> None:
        parquet.write(numbers(rivals.pop()))
        if rivals:
            lose_next_race()

    lose_next_race()
    slow.commit(mine)
    assert [row["n"] for row in parquet.rows()] == [0, 0, 0, 1]
    assert len(pauses) == 3
