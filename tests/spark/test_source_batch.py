"""Batch reads and writes of ``format("rolling")`` give and take the same rows as Spark's own formats."""

import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from rollingfs.policy import RollingPolicy
from rollingfs.segment.verbs.collect import collect
from rollingfs.spark import to_json
from tests.support.spark import Place, arrow_stream, parquet_file

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("source")]

PAGES = RollingPolicy(max_bytes=40, inline_bytes=20)
"""So small chunks that their map needs index pages."""
NAMES = [
    "a",
    "_b",
    ".c",
    "x._COPYING_",
    "_metadata",
    "_k=v",
    "_tmp/t",
    "_region=eu/r",
    ".h/z",
    "p=1/_x",
    "p=1/y",
    "s/_metadata/m",
]
SHOWN = {"a", "_k=v", "_region=eu/r", "p=1/y", "s/_metadata/m"}
PATTERNS = {
    "": SHOWN,
    "/*": {*SHOWN, "_tmp/t", ".h/z"},
    "/**": {*SHOWN, "_tmp/t", ".h/z"},
    "/_tmp": {"_tmp/t"},
    "/_*": {"_k=v", "_region=eu/r", "_tmp/t"},
    "/[^_.]*": {"a", "p=1/y", "s/_metadata/m"},
    "/[!_]": {"a", "s/_metadata/m"},
    "/[_.]b": set(),
    "/[.-_]b": set(),
    "/?": {"a", "s/_metadata/m"},
    "/{_tmp,a}": {"_tmp/t", "a"},
    "/{_tmp/t,a,s/{_meta,no}*/m}": {"_tmp/t", "a", "s/_metadata/m"},
    "/_region={eu,us}": {"_region=eu/r"},
    "/*/[rty]": {"_tmp/t", "_region=eu/r", "p=1/y"},
    "/p\\=1/y": {"p=1/y"},
    "/p=[0-9]/*": {"p=1/y"},
}
"""Patterns, with the files of `NAMES` that Spark reads by them; `test_source_follow` asks ours."""


def options_of(place: Place) -> dict[str, str]:
    """The options that a read or write needs besides the URL."""
    options = getattr(place.client.backend, "fs", None)
    storage = options.storage_options if options is not None else {}
    known = {key: storage[key] for key in ("endpoint_url", "key", "secret") if key in storage}
    return {"storage_options": json.dumps(known)}


def url(place: Place, name: str) -> str:
    return f"{place.url}/{name}"


def load(place: Place, name: str | list[str], schema: Any = None, **options: Any) -> Any:
    reader = place.spark.read.format("rolling").options(**options_of(place), **options)
    reader = reader if schema is None else reader.schema(schema)
    return reader.load(url(place, name) if isinstance(name, str) else [url(place, one) for one in name])


def rows(frame: Any) -> list[Any]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def values(frame: Any) -> list[Any]:
    return [row[0] for row in frame.collect()]


def save(frame: Any, place: Place, name: str, mode: str = "append", **options: Any) -> None:
    frame.write.format("rolling").options(**options_of(place), **options).mode(mode).save(url(place, name))


def plain_twin(tmp_path: Path, data: bytes, suffix: str = "") -> str:
    """The same bytes in a file that Spark reads by itself."""
    path = tmp_path / f"plain{suffix}"
    path.write_bytes(data)
    return f"file://{path}"


# -- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_bytes", [50, 10_000])
def test_chunked_and_truncated_text_equals_a_plain_files(place, tmp_path, partition_bytes):
    chooser = random.Random(7)
    ends = ["\n", "\r\n", "\r", "\n\n"]
    data = "".join("é" * chooser.randrange(9) + chooser.choice(ends) for _ in range(60)).encode() + b"no end"
    place.segment("chunks", data, head=b"gone, " * 20)
    place.segment("pages", data, PAGES, piece=40)
    expected = values(place.spark.read.text(plain_twin(tmp_path, data)))
    assert values(load(place, "chunks", partitionBytes=partition_bytes)) == expected
    assert values(load(place, "pages", partitionBytes=max(partition_bytes, 100))) == expected


def test_every_url_folder_glob_and_list_name_same_segments(disk):
    for name, data in (("f/a", b"1\n2\n"), ("f/b", b""), ("f/in/c", b"3"), ("f/_hidden", b"no\n"), ("g/d", b"4\n")):
        disk.segment(name, data)
    read = disk.spark.read.format("rolling")
    for scheme in ("rolling::file://", "rolling+file://", "file://", ""):
        assert values(read.load(f"{scheme}{disk.path}/f")) == ["1", "2", "3"]
    assert values(load(disk, "*/[ad]")) == ["1", "2", "4"]
    assert values(load(disk, ["g/d", "f/a"])) == ["1", "2", "4"]
    assert values(load(disk, "f/b")) == []
    with pytest.raises(Exception, match=r"not exist|No such|FileNotFound"):
        load(disk, "nowhere").collect()


def test_spark_itself_shows_the_same_pattern_names(disk):
    for name in NAMES:
        disk.plain(f"names/{name}", f"{name}\n".encode())
    reader = disk.spark.read.option("recursiveFileLookup", "true")
    for pattern, names in PATTERNS.items():
        listed = reader.text(f"file://{disk.path}/names{pattern}").inputFiles()
        found = {one.partition("/names/")[2] for one in listed}
        assert found - {"_metadata"} == names, pattern  # of this file Spark reads no row
    assert sorted(values(load(disk, "names/*", partitionColumns="false"))) == sorted(PATTERNS["/*"])
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        reader.text(f"file://{disk.path}/names/no*")


def test_sound_json_gives_the_rows_of_spark_itself(place, tmp_path):
    lines = [{"n": n, "s": f"é{n}", "nested": {"x": [n, n / 2]}, "odd": str(n)} for n in range(80)]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    place.segment("j", data, head=b'{"gone": 1}\n')
    twin = plain_twin(tmp_path, data)
    for schema in ("s string, n int", "nested struct<x: array<float>>, absent boolean, odd string"):
        expected = place.spark.read.schema(schema).json(twin)
        assert rows(load(place, "j", schema, format="json", partitionBytes=999)) == rows(expected)


def test_arrow_streams_of_appends_are_pruned_and_cast(place):
    def stream(start: int) -> bytes:
        batch = pa.record_batch({"n": list(range(start, start + 100)), "s": [f"s{n}" for n in range(100)]})
        return arrow_stream(batch.slice(0, 50), batch.slice(50))

    place.segment("a", stream(0) + stream(100), RollingPolicy(max_bytes=1000, inline_bytes=300), piece=777)
    found = load(place, "a", format="arrow", partitionBytes=1500)
    assert found.schema.simpleString() == "struct<n:bigint,s:string>"
    assert [row["n"] for row in rows(found)] == list(range(200))
    pruned = load(place, "a", "s string, n double, more date", format="arrow")
    assert rows(pruned)[100] == {"s": "s0", "n": 100.0, "more": None}


def test_parquet_in_segment_is_read_by_its_row_groups(place, tmp_path):
    table = pa.table({"n": list(range(1000)), "s": [f"s{n % 7}" for n in range(1000)]})
    data = parquet_file(table, row_group_size=100)
    place.segment("p", data, RollingPolicy(max_bytes=1000, inline_bytes=300), piece=3000)
    found = load(place, "p", format="parquet", partitionBytes=2000)
    assert rows(found) == rows(place.spark.read.parquet(plain_twin(tmp_path, data)))
    assert [row["s"] for row in rows(load(place, "p", "s string", format="parquet"))] == table["s"].to_pylist()


@pytest.mark.parametrize("is_sensitive", ["false", "true"])
def test_column_names_match_by_the_sessions_setting(disk, is_sensitive):
    table = pa.table({"UserId": [1, 2], "Ns": [{"Ab": 1}, None], "L": [[{"Qq": 1}], []], "Same": [3, 4]})
    disk.plain("p/Day=2026-11-28/file", parquet_file(table))
    disk.plain("a/Day=2026-11-28/file", arrow_stream(*table.to_batches()))
    disk.plain("two", parquet_file(pa.table({"UserId": [1], "userid": [2]})))
    schema = "userid long, ns struct<aB: long>, l array<struct<qq: long>>, Same long, nope string, DAY date"
    disk.spark.conf.set("spark.sql.caseSensitive", is_sensitive)
    try:
        own = (
            disk.spark.read.schema(schema)
            .parquet(f"file://{disk.path}/p")
            .drop("Day" if is_sensitive == "true" else "")
        )
        for name, form in (("p", "parquet"), ("a", "arrow")):
            assert rows(load(disk, name, schema, format=form)) == rows(own), form
            assert load(disk, name, "nope string", format=form).count() == 2
        found = load(disk, "two", "userid long", format="parquet")
        if is_sensitive == "true":
            assert values(found) == [2]
        else:
            with pytest.raises(
                Exception, match="two: column 'userid' is ambiguous: the data has the columns UserId, userid"
            ):
                found.collect()
    finally:
        disk.spark.conf.unset("spark.sql.caseSensitive")


def test_binary_gives_one_row_per_segment_as_spark(disk):
    disk.segment("b/one", b"\x00\xff" * 100, head=b"gone" * 30)
    disk.plain("b/two", b"")
    found = rows(load(disk, "b", format="binary"))
    assert [(row["path"], row["length"], row["content"]) for row in found] == [
        (f"rolling+file://{disk.path}/b/one", 200, b"\x00\xff" * 100),
        (f"rolling+file://{disk.path}/b/two", 0, b""),
    ]
    assert all(row["modificationTime"].year >= 2024 for row in found)


# -- writing -----------------------------------------------------------------------------------------------------


def test_sparks_text_and_json_are_appended_in_partition_order(place):
    frame = place.spark.range(1000, numPartitions=4)
    save(frame.selectExpr("cast(id as string) value"), place, "w/text", format="text")
    save(place.spark.createDataFrame([("last",)], "value string"), place, "w/text")
    assert place.content("w/text").decode().split() == [*map(str, range(1000)), "last"]
    save(to_json(frame.selectExpr("id", "nullif(id % 2, 0) odd")), place, "w/json")
    assert [json.loads(line) for line in place.content("w/json").splitlines()][:2] == [{"id": 0}, {"id": 1, "odd": 1}]
    save(frame.limit(1).selectExpr("cast(id as string) value"), place, "w/text", "overwrite")
    assert place.content("w/text") == b"0\n"
    assert place.header("w/text").start == 0


def test_parquet_appended_by_tasks_and_jobs_stays_one_file(place):
    frame = place.spark.range(300, numPartitions=3).selectExpr("id", "concat('s', id) s")
    save(frame, place, "grown", format="parquet")
    save(frame.filter("id >= 250"), place, "grown", format="parquet")
    expected = [*range(300), *range(250, 300)]
    assert pq.read_table(io.BytesIO(place.content("grown")))["id"].to_pylist() == expected
    assert [row["id"] for row in rows(load(place, "grown", format="parquet"))] == expected
    save(frame.filter("false"), place, "nothing", format="parquet")
    assert load(place, "nothing", format="parquet").count() == 0
    with pytest.raises(Exception, match="columns are not those"):
        save(frame.select("s"), place, "grown", format="parquet")
    assert load(place, "grown", format="parquet").count() == 350


def test_parquet_with_reordered_and_added_columns_stays_valid(place):
    frame = place.spark.range(100, numPartitions=2).selectExpr("id", "concat('s', id) s", "named_struct('a', id) o")
    save(frame, place, "wide", format="parquet")
    more = ("cast(id / 4 as decimal(38,10)) p", "timestamp'1969-12-31 23:59:59' at", "map('k', date'0001-01-01') m")
    wider = frame.selectExpr("array(id) added", "o", "s", "id", "date'2024-02-29' day", *more)
    save(wider, place, "wide", format="parquet")
    save(wider.filter("id < 10"), place, "wide", format="parquet")
    nulls = {"added": "array<bigint>", "day": "date", "p": "decimal(38,10)", "at": "timestamp", "m": "map<string,date>"}
    first = frame.selectExpr("*", *(f"cast(null as {kind}) {name}" for name, kind in nulls.items()))
    expected = rows(first) + rows(wider.select(first.columns)) + rows(wider.filter("id < 10").select(first.columns))
    assert rows(load(place, "wide", format="parquet")) == expected
    for vectorized in ("true", "false"):
        place.spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        found = place.spark.read.parquet(url(place, "wide"))
        assert sorted(map(str, rows(found))) == sorted(map(str, expected))
        assert found.filter("day is null").count() == 100
        assert found.filter("id >= 90 and added[0] = id").count() == 10
    with pytest.raises(Exception, match=r"column 's' is .*, but .*string in the file; nothing was written"):
        save(frame.selectExpr("id", "id s", "o"), place, "wide", format="parquet")


def test_failed_job_shows_nothing_and_its_staging_is_collected(disk):
    disk.segment("t", b"before\n")
    # the session runs two tasks at once: the third, which fails, begins when another has staged its rows
    good = disk.spark.range(90, numPartitions=3).selectExpr("if(id < 60, string(id), raise_error('broken')) value")
    with pytest.raises(Exception, match="broken"):
        save(good, disk, "t", taskMessageBytes=0)
    assert disk.content("t") == b"before\n"
    staged = list(Path(f"{disk.path}/t$chunks").glob("stage-*"))
    assert staged
    collected = disk.run(collect(disk.client, f"{disk.path}/t", grace_s=0))
    assert {str(path) for path in staged} <= set(collected.files)
    with pytest.raises(Exception, match="broken"):
        save(good, disk, "unmade")
    assert not Path(f"{disk.path}/unmade$header").exists()


def test_a_frame_may_overwrite_the_segment_that_it_reads(disk):
    disk.segment("self", b"3\n1\n2\n")
    save(load(disk, "self").sort("value"), disk, "self", "overwrite")
    assert disk.content("self") == b"1\n2\n3\n"


def test_what_cannot_be_written_is_refused_before_any_task(disk):
    frame = disk.spark.range(3)
    with pytest.raises(Exception, match="one column of strings"):
        save(frame, disk, "no")
    with pytest.raises(Exception, match="one column of binary"):
        save(frame, disk, "no", format="binary")
    save(frame.selectExpr("cast(string(id) as binary) b"), disk, "yes", format="binary")
    assert disk.content("yes") == b"012"


# -- SQL ----------------------------------------------------------------------------------------------------------


def test_a_temporary_view_keeps_its_options_in_sql(disk):
    disk.segment("v", b'{"n": 1}\n{"n": 2}\n')
    disk.spark.sql(
        f"create or replace temporary view v (n long) using rolling options (path '{url(disk, 'v')}', format 'json')"
    )
    assert values(disk.spark.sql("select sum(n) from v")) == [3]
