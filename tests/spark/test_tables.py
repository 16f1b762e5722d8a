"""Tables and columns of folders in a session: rows and types as Spark's own reader has them, or one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollingfs.spark import read_json

pytestmark = pytest.mark.slow

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DAYS = ("2026-11-20", "2026-11-21", "__HIVE_DEFAULT_PARTITION__")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for nth, day in enumerate(DAYS):
        folder = tmp_path / f"day={day}" / f"hour=0{nth}" / "tag=a%3Ab"
        folder.mkdir(parents=True)
        (folder / "part").write_text(f'{{"n": {nth}}}\n')
    return tmp_path


def _rows(frame: Any) -> list[str]:
    return sorted(map(str, frame.collect()))


def _rolling(source: Any, log: Path) -> Any:
    # small enough for a task a segment
    return read_json(source, f"file://{log}", partitionBytes="16")


def test_columns_of_folders_are_those_of_spark(source, log):
    own, ours = source.read.json(str(log)), _rolling(source, log)
    assert ours.dtypes == own.dtypes
    assert _rows(ours) == _rows(own)


def test_filters_of_one_query_leave_nothing_out_of_another(source, log):
    pytest.importorskip("pyspark.sql.worker.data_source_pushdown_filters")
    before = source.conf.get(PUSHDOWN)
    source.conf.set(PUSHDOWN, "true")
    try:
        found = _rolling(source, log)
        days = [found.where(condition) for condition in ("day = date'2026-11-21'", "day is null", "hour < 1")]
        assert [day.count() for day in days] == [1, 1, 1]
        assert _rows(found) == _rows(source.read.json(str(log)))
        assert len(_rows(days[0].union(days[1]).union(days[2]))) == 3
    finally:
        source.conf.set(PUSHDOWN, before)


def test_a_session_that_pushes_no_filters_reads_all_folders(source, log):
    found = _rolling(source, log).where("day = date'2026-11-21'")
    assert found.rdd.getNumPartitions() == len(DAYS)
    assert len(found.collect()) == 1


def test_a_table_without_columns_is_refused_and_not_made(source, log):
    with pytest.raises(Exception, match=r"cannot be a table, and none was made.*CREATE TEMPORARY VIEW"):
        source.sql(f"CREATE TABLE refused USING rolling OPTIONS (format 'json') LOCATION 'file://{log}'")
    assert not source.catalog.tableExists("refused")


def test_a_table_with_columns_is_read_and_written_with_a_path_in_the_query(source, tmp_path):
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
