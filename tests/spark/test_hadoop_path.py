"""``rolling+file://`` and ``rolling+s3://`` in Spark: segments read as files, plain files written."""

import io
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, orc

from rollingfs.policy import RollingPolicy
from rollingfs.segment.verbs.delete import delete
from rollingfs.spark import doctor, jar
from tests.support.segment_verbs import append
from tests.support.spark import Place, run_query, wants_s3a

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROWS = [{"id": index, "name": f"naïve name {index}", "value": index / 8} for index in range(120)]


COLUMNS: dict[str, Callable[[pa.Table, io.BytesIO], object]] = {
    "csv": csv.write_csv,
    "parquet": partial(pq.write_table, row_group_size=40),
    "orc": orc.write_table,
}


def content(kind: str = "text") -> bytes:
    """A file of the rows; one of text has the lines of JSON."""
    if kind not in COLUMNS:
        return b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    file = io.BytesIO()
    COLUMNS[kind](pa.Table.from_pylist(ROWS), file)
    return file.getvalue()


def rows(place: Place, kind: str, url: str) -> list[Any]:
    return sorted(tuple(row) for row in place.spark.read.format(kind).load(url).collect())


@pytest.mark.parametrize("kind", ["text", "json", *COLUMNS])
def test_segments_give_the_rows_of_the_same_plain_file(place, kind):
    data = content(kind)
    expected = rows(place, kind, place.plain("plain", data))
    assert len(expected) == len(ROWS) + (kind == "csv")  # which has a line of names
    split = place.segment("split", data, piece=170)
    assert len(place.header("split").entries) > 3
    assert place.header("split").tail
    cut = place.segment("cut", data, head=b"these bytes are truncated away\n" * 9, piece=400)
    inline = place.segment("inline", data, RollingPolicy(), piece=4000)
    assert not place.header("inline").entries
    for url in (split, cut, inline):
        assert rows(place, kind, url) == expected


def test_mixed_folder_of_segments_and_files_is_one_table(place):
    place.segment("in/one", b"1\n22\n")
    place.segment("in/empty", b"")
    place.plain("in/plain", b"333\n")
    place.segment("in/gone", b"4444\n")
    place.run(delete(place.client, f"{place.path}/in/gone"))
    assert place.listed("in") == {"one": 5, "empty": 0, "plain": 4}
    assert rows(place, "text", f"{place.url}/in") == [("1",), ("22",), ("333",)]
    assert rows(place, "text", f"{place.url}/in/{{one,pl*}}") == [("1",), ("22",), ("333",)]


@pytest.mark.parametrize("version", [1, 2])
def test_job_writes_plain_files_that_python_and_spark_read(place, version):
    url = f"{place.url}/table"
    frame = place.spark.range(100).selectExpr("id", "id % 3 as part")
    option = "mapreduce.fileoutputcommitter.algorithm.version"
    for _ in range(2):
        frame.write.mode("overwrite").option(option, str(version)).partitionBy("part").parquet(url)
    assert sorted(row.id for row in place.spark.read.parquet(url).collect()) == list(range(100))
    assert set(place.listed("table")) == {"part=0", "part=1", "part=2", "_SUCCESS"}
    [name, *_] = place.listed("table/part=0")
    assert place.content(f"table/part=0/{name}")[:4] == b"PAR1"
    with pytest.raises(FileNotFoundError):
        place.run(place.client.backend.read(f"{place.path}/table/part=0/{name}$header"))


MODES = ("errorifexists", "ignore", "append", "overwrite")


def save(place: Place, kind: str, mode: str, name: str, value: str) -> None:
    frame = place.spark.createDataFrame([(value,)], "value string").coalesce(1)
    frame.write.format(kind).mode(mode).save(f"{place.url}/{name}")


@pytest.mark.parametrize("mode", MODES)
def test_job_over_folder_that_holds_segment_overwrites_nothing(place, mode):
    place.segment("table/deep/log", b"live\n" * 50)
    place.plain("table/plain", b"old\n")
    before = place.tree()
    reasons = {"errorifexists": "(?i)already exists", "overwrite": r"holds the segment \S+/table/deep/log; .*rm -r"}
    with pytest.raises(Exception, match=reasons[mode]) if mode in reasons else nullcontext():
        save(place, "text", mode, "table", "new")
    after = place.tree()
    assert {path: after[path] for path in before} == before
    assert place.content("table/deep/log") == b"live\n" * 50
    if mode == "append":
        assert rows(place, "text", f"{place.url}/table") == [("new",), ("old",)]
    else:
        assert after == before


def test_file_stream_goes_through_a_checkpoint_to_a_sink(place):
    place.segment("in/one", b"1\n2\n")
    for name in ("two", "three"):
        writer = place.spark.readStream.text(f"{place.url}/in").writeStream.format("parquet")
        assert run_query(writer, f"{place.url}/checkpoint", f"{place.url}/out").exception() is None
        place.segment(f"in/{name}", f"{name}\n".encode())
    assert rows(place, "parquet", f"{place.url}/out") == [("1",), ("2",), ("two",)]


def test_doctor_finds_nothing_missing_and_names_a_class(spark, monkeypatch):
    assert [found for found in doctor(spark) if wants_s3a() or "S3 connector" not in found] == []
    monkeypatch.setattr(jar, "FILE_SYSTEM", "rollingfs.hadoop.Missing")
    assert any("rollingfs.hadoop.Missing" in found for found in doctor(spark))


def test_corrupt_header_is_named_and_its_neighbours_listed(place):
    place.segment("in/log", b"data")
    place.segment("in/other", b"other\n")
    place.plain("in/plain", b"plain\n")
    place.rewrite("in/log", b"start 0", b"start 1", sealed=False)
    reason = r"in/log\$header: the text does not have the checksum"
    listed = place.listed("in")
    assert set(listed) == {"log", "other", "plain"}
    assert (listed["other"], listed["plain"]) == (6, 6)
    assert listed["log"] > 0  # an empty file is one that Spark would pass over
    assert rows(place, "text", f"{place.url}/in/{{other,plain}}") == [("other",), ("plain",)]
    for look in (
        lambda: place.read("in/log"),
        lambda: place.fs.getFileStatus(place.hadoop_path("in/log")),
        lambda: rows(place, "text", f"{place.url}/in"),
    ):
        with pytest.raises(Exception, match=reason):
            look()


# -- plain files -----------------------------------------------------------------------------------------------


def test_plain_files_are_created_and_renamed_without_header(place):
    """`test_hadoop_faults` has what a rename, a delete and an overwrite leave."""
    place.create("one", b"1")
    place.create("folder/two", b"22")
    assert place.fs.rename(place.hadoop_path("one"), place.hadoop_path("folder"))
    assert place.listed("folder") == {"one": 1, "two": 2}
    assert not place.fs.delete(place.hadoop_path("one"), False)
    with pytest.raises(Exception, match=r"(?i)not empty|PathIsNotEmpty"):
        place.fs.delete(place.hadoop_path("folder"), False)
    assert place.held() == []


@pytest.mark.s3
def test_tombstoned_plain_file_is_dead_and_yields_to_another(s3):
    """The tombstone names the plain file that still lies there; on a disk a delete leaves no tombstone."""
    s3.plain("log", b"plain")
    s3.run(append(s3.client, f"{s3.path}/log", b" and more"))
    s3.run(delete(s3.client, f"{s3.path}/log"))
    assert s3.tree()["log"] == b"plain"
    assert not s3.fs.exists(s3.hadoop_path("log"))
    assert s3.listed() == {}
    assert not s3.fs.delete(s3.hadoop_path("log"), False)
    s3.create("other", b"renamed over it")
    assert s3.fs.rename(s3.hadoop_path("other"), s3.hadoop_path("log"))
    assert s3.read("log") == s3.content("log") == b"renamed over it"
    assert s3.header("log").deleted
    s3.create("log", b"plain again")
    assert s3.read("log") == s3.content("log") == b"plain again"
