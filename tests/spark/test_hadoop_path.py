"""``rolling+file://`` and ``rolling+s3://`` in Spark: segments read and written as files."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollingfs.header import PlainCopy
from rollingfs.policy import RollingPolicy
from tests.servers import require_module
from tests.spark.world import Place

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROWS = [{"id": index, "name": f"naïve name {index}", "value": index / 8} for index in range(120)]
PAGED = RollingPolicy(max_bytes=12, inline_bytes=10)
"""So small that the map outgrows the header."""


def text_lines() -> bytes:
    return "".join(f"{row['id']} {row['name']}\n" for row in ROWS).encode()


def json_lines() -> bytes:
    return "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def csv() -> bytes:
    return "".join(f"{row['id']},{row['name']},{row['value']}\n" for row in ROWS).encode()


def parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), file, row_group_size=40)
    return file.getvalue()


def orc() -> bytes:
    import pyarrow as pa
    from pyarrow import orc as pyarrow_orc

    file = io.BytesIO()
    pyarrow_orc.write_table(pa.Table.from_pylist(ROWS), file)
    return file.getvalue()


FORMATS: dict[str, Callable[[], bytes]] = {
    "text": text_lines,
    "json": json_lines,
    "csv": csv,
    "parquet": parquet,
    "orc": orc,
}


def rows(place: Place, kind: str, url: str) -> list[Any]:
    return sorted(tuple(row) for row in place.spark.read.format(kind).load(url).collect())


@pytest.mark.parametrize("kind", FORMATS)
def test_segments_give_the_rows_of_the_same_plain_file(place, kind):
    if kind in ("parquet", "orc"):
        require_module("pyarrow")
    data = FORMATS[kind]()
    expected = rows(place, kind, place.plain("plain", data))
    assert len(expected) == len(ROWS)
    split = place.segment("split", data, piece=170)
    assert len(place.header("split").entries) > 3
    assert place.header("split").tail
    assert rows(place, kind, split) == expected
    cut = place.segment("cut", data, head=b"these bytes are truncated away\n" * 9, piece=400)
    assert rows(place, kind, cut) == expected
    inline = place.segment("inline", data, RollingPolicy(), piece=4000)
    assert not place.header("inline").entries
    assert rows(place, kind, inline) == expected


def test_a_segment_with_index_pages_gives_its_rows(place):
    data = text_lines()
    url = place.segment("paged", data, PAGED, piece=30, head=b"gone\n" * 10)
    header = place.header("paged")
    assert header.chunk_count > len(header.entries)
    assert rows(place, "text", url) == sorted((line,) for line in data.decode().splitlines())


def test_a_folder_of_segments_plain_files_and_empty_segments_is_one_table(place):
    place.segment("in/one", b"1\n22\n")
    place.segment("in/empty", b"")
    place.plain("in/plain", b"333\n")
    place.segment("in/gone", b"4444\n")
    assert place.fs.delete(place.hadoop_path("in/gone"), False)
    assert place.listed("in") == {"one": 5, "empty": 0, "plain": 4}
    assert rows(place, "text", f"{place.url}/in") == [("1",), ("22",), ("333",)]
    assert rows(place, "text", f"{place.url}/in/{{one,pl*}}") == [("1",), ("22",), ("333",)]


def test_many_small_partitions_of_one_segment_miss_no_record_and_double_none(place):
    url = place.segment("lines", text_lines())
    place.spark.conf.set("spark.sql.files.maxPartitionBytes", "97b")
    try:
        frame = place.spark.read.text(url)
        assert frame.rdd.getNumPartitions() > 5
        assert sorted(row[0] for row in frame.collect()) == sorted(text_lines().decode().splitlines())
    finally:
        place.spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_binary_file_reads_a_segment_whole(place):
    url = place.segment("blob", bytes(range(256)) * 3)
    [row] = place.spark.read.format("binaryFile").load(url).collect()
    assert bytes(row.content) == bytes(range(256)) * 3
    assert row.length == 768


@pytest.mark.parametrize("version", [1, 2])
def test_a_job_writes_plain_files_that_python_and_spark_read(place, version):
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


def test_a_table_is_saved_queried_appended_to_and_overwritten(place):
    spark, url = place.spark, f"{place.url}/saved"
    spark.sql("DROP TABLE IF EXISTS saved")
    try:
        spark.range(10).write.option("path", url).saveAsTable("saved")
        spark.range(10, 15).write.mode("append").saveAsTable("saved")
        assert spark.sql("SELECT sum(id) FROM saved").collect()[0][0] == sum(range(15))
        spark.range(3).write.mode("overwrite").option("path", url).saveAsTable("saved")
        assert spark.sql("SELECT sum(id) FROM saved").collect()[0][0] == 3
    finally:
        spark.sql("DROP TABLE IF EXISTS saved")


def test_a_table_of_segments_is_overwritten_by_a_job(place):
    url = f"{place.url}/table"
    place.segment("table/old", b"old\n" * 100)
    place.spark.createDataFrame([("new",)], "value string").write.mode("overwrite").text(url)
    assert rows(place, "text", url) == [("new",)]
    assert "old" not in place.listed("table")


def test_a_file_stream_goes_from_a_folder_of_segments_through_a_checkpoint_into_a_sink(place):
    place.segment("in/one", b"1\n2\n")
    for name in ("two", "three"):
        query = (
            place.spark.readStream.text(f"{place.url}/in")
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{place.url}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{place.url}/out")
        )
        query.awaitTermination()
        assert query.exception() is None
        place.segment(f"in/{name}", f"{name}\n".encode())
    assert rows(place, "parquet", f"{place.url}/out") == [("1",), ("2",), ("two",)]


def test_pandas_opens_the_same_urls(place):
    pandas = pytest.importorskip("pandas")
    options = place.client.backend.fs.storage_options if "s3" in place.url else {}
    place.segment("frame.csv", csv())
    frame = pandas.read_csv(
        f"{place.url}/frame.csv", names=["id", "name", "value"], storage_options=options and {"s3": dict(options)}
    )
    assert frame["id"].tolist() == [row["id"] for row in ROWS]


# -- by header -------------------------------------------------------------------------------------------------


def test_an_append_by_java_is_seen_by_python_and_goes_on_by_the_segments_policy(place):
    place.segment("log", b"first\n")
    place.append("log", b"second\n")
    place.append("log", b"x" * 250)
    assert place.content("log") == b"first\nsecond\n" + b"x" * 250
    header = place.header("log")
    assert [entry.length for entry in header.entries] == [100, 100, 63]  # the rest is longer than inline_bytes
    assert place.read("log") == place.content("log")


def test_a_large_append_goes_into_chunks_and_an_empty_one_changes_nothing(place):
    place.segment("log", b"first\n", RollingPolicy(max_bytes=1_000_000))
    place.append("log", b"y" * 2_500_000)
    header = place.header("log")
    assert [entry.length for entry in header.entries] == [6, 1_000_000, 1_000_000, 500_000]
    place.append("log", b"")
    assert place.header("log") == header
    assert place.content("log") == b"first\n" + b"y" * 2_500_000


def test_many_appends_by_java_fold_the_map_into_pages_that_python_reads(disk):
    disk.segment("log", b"", RollingPolicy(max_bytes=4, inline_bytes=0))
    for index in range(20):
        disk.append("log", f"{index:03d};".encode() * 10)
    header = disk.header("log")
    assert header.chunk_count > len(header.entries)
    assert disk.content("log") == b"".join(f"{index:03d};".encode() * 10 for index in range(20))


def test_an_append_to_a_plain_file_adopts_it(place):
    place.plain("log", b"plain, ")
    place.append("log", b"and more")
    assert place.content("log") == b"plain, and more"
    header = place.header("log")
    assert header.adopted is not None
    info = place.run(place.client.backend.stat(f"{place.path}/log"))
    assert header.adopted.token == info.token
    assert header.origin_ms == header.adopted.modified_ms


def test_an_append_to_what_is_sealed_held_or_missing_is_refused(place):
    place.segment("sealed", b"done\n")
    place.run(place.client.segments.seal(f"{place.path}/sealed"))
    place.segment("held", b"mine\n")
    place.run(place.client.segments.acquire(f"{place.path}/held", "somebody"))
    for name, error in {"sealed": "sealed at length 5", "held": "held exclusively", "missing": "No such"}.items():
        with pytest.raises(Exception, match=error):
            place.append(name, b"more")
    assert place.content("sealed") == b"done\n"
    assert place.content("held") == b"mine\n"


def test_overwriting_a_segment_makes_a_new_incarnation_and_deletes_the_old_chunks(place):
    place.segment("log", b"old" * 200)
    old = place.header("log")
    place.create("log", b"new")
    new = place.header("log")
    assert place.content("log") == b"new"
    assert new.version == old.version + 1
    assert new.segment != old.segment
    assert new.policy == old.policy
    assert place.chunk_files("log") == []


def test_an_output_that_is_given_up_leaves_the_segment_as_it_was(place):
    place.segment("log", b"old", RollingPolicy(max_bytes=1_000_000))
    before = place.header("log")
    stream = place.fs.create(place.hadoop_path("log"), True)
    stream.write(b"z" * 3_000_000)
    stream.abort()
    assert place.header("log") == before
    assert place.content("log") == b"old"
    assert place.chunk_files("log") == []


def test_a_rename_by_header_moves_no_bytes_and_python_goes_on_with_it(place):
    place.segment("old", b"abc" * 100, head=b"gone" * 10)
    before = place.header("old")
    assert place.fs.rename(place.hadoop_path("old"), place.hadoop_path("new"))
    after = place.header("new")
    assert (after.start, after.length, after.policy) == (before.start, before.length, before.policy)
    assert [entry.size for entry in after.entries] == [entry.size for entry in before.entries]
    assert all(entry.file.startswith("old$chunks/") for entry in after.entries)
    assert place.header("old").merged is not None
    assert place.listed() == {"new": 300}
    place.run(place.client.segments.append(f"{place.path}/new", b"more"))
    assert place.read("new") == b"abc" * 100 + b"more"
    place.run(place.client.collector.collect(f"{place.path}/old", grace_s=0))
    assert place.read("new") == b"abc" * 100 + b"more"


def test_a_rename_onto_a_file_that_is_there_is_refused_and_into_a_folder_goes_below_it(place):
    place.segment("one", b"1")
    place.segment("two", b"2")
    place.plain("folder/plain", b"3")
    assert not place.fs.rename(place.hadoop_path("one"), place.hadoop_path("two"))
    assert not place.fs.rename(place.hadoop_path("folder/plain"), place.hadoop_path("two"))
    assert not place.fs.rename(place.hadoop_path("missing"), place.hadoop_path("three"))
    assert place.fs.rename(place.hadoop_path("one"), place.hadoop_path("folder"))
    assert place.listed("folder") == {"plain": 1, "one": 1}
    assert place.content("two") == b"2"


def test_a_deleted_segment_leaves_a_tombstone_that_yields_to_a_plain_file(place):
    place.segment("log", b"old" * 100)
    version = place.header("log").version
    assert place.fs.delete(place.hadoop_path("log"), False)
    assert not place.fs.delete(place.hadoop_path("log"), False)
    assert place.header("log").deleted
    assert place.header("log").version == version + 1
    assert not place.fs.exists(place.hadoop_path("log"))
    place.create("log", b"plain")
    assert place.read("log") == place.content("log") == b"plain"
    assert place.listed() == {"log": 5}


def begin_copy(place: Place, name: str, left: bytes = b"bytes" * 100) -> None:
    """A sealed segment whose plain copy somebody died at before its last commit, with a file under its plain name."""
    path = f"{place.path}/{name}"
    place.segment(name, b"bytes" * 100)
    place.run(place.client.segments.seal(path))

    async def step(base: Any, attempt: Any) -> Any:
        return dataclasses.replace(base.header, plain_copy=PlainCopy(base.header.segment, base.header.start, 1))

    place.run(place.client.committer.commit(path, step))
    place.plain(name, left)


CHANGES: dict[str, Callable[[Place], object]] = {
    "delete": lambda place: place.fs.delete(place.hadoop_path("log"), False),
    "rename": lambda place: place.fs.rename(place.hadoop_path("log"), place.hadoop_path("other")),
    "overwrite": lambda place: place.create("log", b"new"),
}


def test_a_segment_whose_plain_copy_was_broken_off_is_read_and_listed(place):
    begin_copy(place, "log")
    assert place.read("log") == b"bytes" * 100
    assert place.listed() == {"log": 500}
    with pytest.raises(Exception, match="log is sealed at length 500"):
        place.append("log", b"more")


@pytest.mark.parametrize("change", CHANGES)
def test_on_disk_java_gives_up_a_plain_copy_that_was_broken_off(disk, change):
    begin_copy(disk, "log")
    CHANGES[change](disk)
    expected = {"delete": {}, "rename": {"other": b"bytes" * 100}, "overwrite": {"log": b"new"}}[change]
    assert {name: disk.content(name) for name in disk.listed()} == expected
    header = disk.header("log")
    assert not header.is_copying
    assert header.adopted.token == disk.run(disk.client.backend.stat(f"{disk.path}/log")).token
    disk.run(disk.client.collector.collect(f"{disk.path}/log", grace_s=0))
    assert {name: disk.content(name) for name in disk.listed()} == expected


def test_on_disk_a_file_that_is_no_copy_comes_to_life_when_java_deletes_the_segment(disk):
    begin_copy(disk, "log", b"other" * 100)
    assert disk.read("log") == b"bytes" * 100
    assert disk.fs.delete(disk.hadoop_path("log"), False)
    assert disk.listed() == {"log": 500}
    assert disk.content("log") == disk.read("log") == b"other" * 100


@pytest.mark.s3
@pytest.mark.parametrize("change", CHANGES)
def test_on_s3_java_refuses_while_a_plain_copy_is_under_way_and_says_what_settles_it(s3, change):
    begin_copy(s3, "log")
    before = s3.header("log")
    command = f"rollingfs consolidate --plain s3a://{s3.path}/log"
    with pytest.raises(Exception, match=f"(?s)its plain copy is being written since 1970-01-01.*`{command}`"):
        CHANGES[change](s3)
    assert s3.header("log") == before
    s3.run(s3.client.plain_copies.write(f"{s3.path}/log"))
    CHANGES[change](s3)
    expected = {"delete": {}, "rename": {"other": b"bytes" * 100}, "overwrite": {"log": b"new"}}[change]
    assert {name: s3.content(name) for name in s3.listed()} == expected


def test_a_plain_file_that_was_adopted_stays_hidden_after_the_segment_is_deleted(place):
    place.plain("log", b"plain")
    place.append("log", b" and more")
    assert place.listed() == {"log": 14}
    assert place.fs.delete(place.hadoop_path("log"), False)
    assert not place.fs.exists(place.hadoop_path("log"))
    assert place.listed() == {}
    place.create("log", b"plain again")
    assert place.read("log") == b"plain again"


def test_a_folder_of_segments_is_renamed_and_deleted_segment_by_segment(place):
    place.segment("in/a/one", b"1" * 200)
    place.plain("in/a/b/plain", b"2")
    assert place.fs.rename(place.hadoop_path("in"), place.hadoop_path("out"))
    assert not place.fs.exists(place.hadoop_path("in"))
    assert place.listed("out/a") == {"one": 200, "b": 0}
    assert place.content("out/a/b/plain") == b"2"
    assert place.fs.delete(place.hadoop_path("out"), True)
    assert not place.fs.exists(place.hadoop_path("out"))
    assert not place.fs.listFiles(place.hadoop_path(), True).hasNext()
    assert place.fs.mkdirs(place.hadoop_path("in"))
    place.create("in/plain", b"again")
    assert place.listed("in")["plain"] == 5
    assert place.fs.delete(place.hadoop_path("in/plain"), False)
    place.fs.delete(place.hadoop_path("in"), False)  # on an object store it went with what was in it
    assert not place.fs.exists(place.hadoop_path("in"))


def test_names_that_are_reserved_do_not_exist_and_cannot_be_made(place):
    place.segment("log", b"data" * 100)
    for name in ("log$header", "log$chunks", "$removed"):
        assert not place.fs.exists(place.hadoop_path(name))
        with pytest.raises(Exception, match="reserved"):
            place.create(name, b"")
    assert [found.getPath().getName() for found in place.fs.globStatus(place.hadoop_path("*"))] == ["log"]


def test_doctor_finds_nothing_missing_here_and_names_a_class_that_is(spark, monkeypatch):
    from rollingfs.spark import doctor, jar
    from tests.spark.world import wants_s3a

    assert [found for found in doctor(spark) if wants_s3a() or "S3 connector" not in found] == []
    monkeypatch.setattr(jar, "FILE_SYSTEM", "rollingfs.hadoop.Missing")
    assert any("rollingfs.hadoop.Missing" in found for found in doctor(spark))


def test_a_corrupt_header_is_an_error_with_its_name_and_reason(disk):
    disk.segment("log", b"data")
    path = Path(f"{disk.path}/log$header")
    path.write_bytes(path.read_bytes().replace(b"start 0", b"start 1"))
    with pytest.raises(Exception, match=r"log\$header: the text does not have the checksum"):
        disk.read("log")
