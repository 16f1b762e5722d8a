"""Columns in the names of folders: names, types, values, pruning, as Spark's own reader has them; and tables."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from rollingfs import RollingFileSystem
from rollingfs.spark import read_json
from rollingfs.spark.source import folder_columns, places
from tests.support.backends import Counting, private_memory
from tests.support.spark import arrow_stream
from tests.support.spark_source import batch_reader, inferred, rows_of

DAY = types.StructType().add("n", "long").add("day", "date")


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/log/day=2026-11-21/hour=07/a", {"day": "2026-11-21", "hour": "07"}),
        ("/log/b=1/a=2/x", {"b": "1", "a": "2"}),
        ("/log/day=1/sub/a", {}),  # Spark stops at the first folder that is no column, from below
        ("/log/sub/day=1/a", {"day": "1"}),
        ("/log/tag=a%3Ab/a", {"tag": "a:b"}),
        ("/log/tag=__HIVE_DEFAULT_PARTITION__/a", {"tag": None}),
        ("/log/a=1=2/a", {"a": "1=2"}),
        ("/log/day=1", {}),  # a name of a segment is no folder
        ("/day=1/log/a", {}),
        ("/logs/day=1/a", {}),
    ],
)
def test_folders_right_above_segment_are_columns_in_their_order(path, values):
    assert [*folder_columns.values_of(path, ["/log"]).items()] == [*values.items()]


@pytest.mark.parametrize("folder", ["=1", "day=", "day=1/day=2"])
def test_folder_without_column_is_refused_by_its_path(folder):
    with pytest.raises(ValueError, match=f"/log/{folder}/a"):
        folder_columns.values_of(f"/log/{folder}/a", ["/log"])


def test_folders_of_different_columns_are_refused_with_both_paths():
    with pytest.raises(ValueError, match=r"/log/day=1/a name the columns \(day\), and those of /log/b \(\)"):
        folder_columns.columns_of(["/log/day=1/a", "/log/b"], ["/log"])


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "07"], pa.int32()),
        (["1", "3000000000"], pa.int64()),
        (["1", "9" * 20, "0" * 9 + "1" * 19], pa.decimal128(20, 0)),
        (["1.5"], pa.float64()),
        (["1", "1.5"], pa.float64()),
        (["3000000000", "1.5"], pa.string()),
        (["2026-11-21", None], pa.date32()),
        (["2026-11-31"], pa.string()),
        (["2026-11-21 10:00:00"], pa.timestamp("us", "UTC")),
        (["2026-11-21", "2026-11-21 10:00:00"], pa.timestamp("us", "UTC")),
        (["2026-11-21", "1"], pa.string()),
        (["a"], pa.string()),
        (["\u0661"], pa.string()),
        ([None], pa.string()),
    ],
)
def test_the_type_of_a_column_holds_all_its_values(texts, kind):
    assert folder_columns.type_of(texts) == kind


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("07", pa.int32(), 7),
        ("1.5", pa.float64(), 1.5),
        ("12", pa.decimal128(20, 0), Decimal(12)),
        ("2026-11-21", pa.date32(), date(2026, 11, 21)),
        ("2026-11-21 10:00:00", pa.timestamp("us", "UTC"), datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2026-11-21T10:00:00+02:00", pa.timestamp("us", "UTC"), datetime(2026, 11, 21, 8, tzinfo=UTC)),
        ("2026-11-21 10:00:00", pa.timestamp("us"), datetime(2026, 11, 21, 10)),
        ("TRUE", pa.bool_(), True),
        ("07", pa.string(), "07"),
        (None, pa.date32(), None),
    ],
)
def test_a_value_has_the_type_of_its_column(text, kind, value):
    assert folder_columns.scalar_of(text, kind).as_py() == value


@pytest.mark.parametrize("kind", [pa.int32(), pa.date32(), pa.bool_(), pa.decimal128(3, 0), pa.timestamp("us", "UTC")])
def test_a_value_of_another_type_is_refused(kind):
    with pytest.raises(ValueError, match="seven"):
        folder_columns.scalar_of("seven", kind)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for day in (20, 21):
        folder = tmp_path / f"day=2026-11-{day}"
        folder.mkdir()
        (folder / "part").write_text(f'{{"n": {day}}}\n')
    return tmp_path


def test_rows_have_folder_columns_unless_switched_off(log):
    days = rows_of(batch_reader(log, DAY, format="json"))
    assert days == [{"n": day, "day": date(2026, 11, day)} for day in (20, 21)]
    text = types.StructType().add("day", "string")
    assert rows_of(batch_reader(log, text, format="json", partitionColumns="false")) == [{"day": None}] * 2


def test_text_has_folder_columns_and_refuses_others_early(log):
    schema = types.StructType().add("value", "string").add("day", "date")
    assert rows_of(batch_reader(log, schema))[0] == {"value": '{"n": 20}', "day": date(2026, 11, 20)}
    with pytest.raises(ValueError, match="one column of strings"):
        batch_reader(log, schema.add("more", types.IntegerType())).partitions()


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"path": "{}/day=2026-11-20"}, ""),
        ({"path": "{}/day=2026-11-20", "basePath": "{}"}, ",day:date"),
        ({"path": "{}/day=2026-11-2*"}, ",day:date"),
        ({"path": "{}"}, ",day:date"),
        ({"path": "{}", "partitionColumns": "false"}, ""),
    ],
)
def test_columns_begin_below_what_is_read_or_below_base(log, options, columns):
    found = inferred(**{name: text.format(log) for name, text in options.items()})
    assert found.simpleString() == f"struct<value:string{columns}>"


def test_a_base_that_lies_elsewhere_is_refused(log):
    with pytest.raises(ValueError, match="option basePath is '/elsewhere'"):
        inferred(log, basePath="/elsewhere")


def test_value_of_the_wrong_type_is_refused_with_segment(log):
    schema = types.StructType().add("day", types.IntegerType())
    with pytest.raises(ValueError, match="part: its folder says day=2026-11-20, which is no int: give the column"):
        rows_of(batch_reader(log, schema, format="json"))


@pytest.mark.parametrize(
    ("kind", "data"), [("text", b'{"a": 1}\n'), ("arrow", arrow_stream(pa.record_batch({"a": [1]})))]
)
def test_columns_are_inferred_with_one_listing_of_each_folder(kind, data, monkeypatch):
    store = Counting(private_memory())
    fs = RollingFileSystem(backend=store, header_cache_s=0)
    for day in (1, 2):
        fs.overwrite(f"log/day={day}/events", data)
    monkeypatch.setattr(places, "filesystem", lambda options: fs)
    store.clear()
    inferred("memory://log", format=kind)
    listed = [path for verb, path in store.calls if verb.startswith("list") and "$" not in path]
    assert sorted(path.strip("/") for path in listed) == ["log", "log/day=1", "log/day=2"]


# -- in a session ------------------------------------------------------------------------------------------------

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DAYS = ("2026-11-20", "2026-11-21", "__HIVE_DEFAULT_PARTITION__")


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A folder of columns in columns."""
    for nth, day in enumerate(DAYS):
        folder = tmp_path / f"day={day}" / f"hour=0{nth}" / "tag=a%3Ab"
        folder.mkdir(parents=True)
        (folder / "part").write_text(f'{{"n": {nth}}}\n')
    return tmp_path


def shown(frame: Any) -> list[str]:
    return sorted(map(str, frame.collect()))


def ours_of(source: Any, deep: Path) -> Any:
    # small enough for a task a segment
    return read_json(source, f"file://{deep}", partitionBytes="16")


@pytest.mark.slow
def test_columns_of_folders_are_those_of_spark(source, deep):
    own, ours = source.read.json(str(deep)), ours_of(source, deep)
    assert ours.dtypes == own.dtypes
    assert shown(ours) == shown(own)


@pytest.mark.slow
def test_filters_of_one_query_leave_nothing_out_of_another(source, deep):
    pytest.importorskip("pyspark.sql.worker.data_source_pushdown_filters")
    before = source.conf.get(PUSHDOWN)
    source.conf.set(PUSHDOWN, "true")
    try:
        found = ours_of(source, deep)
        days = [found.where(condition) for condition in ("day = date'2026-11-21'", "day is null", "hour < 1")]
        assert [day.count() for day in days] == [1, 1, 1]
        assert shown(found) == shown(source.read.json(str(deep)))
        assert len(shown(days[0].union(days[1]).union(days[2]))) == 3
    finally:
        source.conf.set(PUSHDOWN, before)


@pytest.mark.slow
def test_a_session_that_pushes_no_filters_reads_all_folders(source, deep):
    found = ours_of(source, deep).where("day = date'2026-11-21'")
    assert found.rdd.getNumPartitions() == len(DAYS)
    assert len(found.collect()) == 1


@pytest.mark.slow
def test_a_table_without_columns_is_refused_and_not_made(source, deep):
    with pytest.raises(Exception, match=r"cannot be a table, and none was made.*CREATE TEMPORARY VIEW"):
        source.sql(f"CREATE TABLE refused USING rolling OPTIONS (format 'json') LOCATION 'file://{deep}'")
    assert not source.catalog.tableExists("refused")


@pytest.mark.slow
def test_table_with_columns_is_read_and_written_by_path(source, tmp_path):
    where = f"WITH (path='file://{tmp_path}/rows', format='arrow')"
    source.sql("CREATE TABLE named (n BIGINT) USING rolling")
    try:
        source.sql(f"INSERT INTO named {where} VALUES (7)")
        assert [row.n for row in source.sql(f"SELECT n FROM named {where}").collect()] == [7]
        for refused in ("SELECT n FROM named", "INSERT INTO named VALUES (8)"):
            with pytest.raises(Exception, match=r"needs a path.*if this is a table, .*FROM table WITH"):
                source.sql(refused).collect()
    finally:
        source.sql("DROP TABLE named")
