"""What every PySpark from 4.0 on has, also those that do not let a data source read streams."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.datasource import InputPartition

from rollingfs import RollingFileSystem
from rollingfs.spark import to_json
from rollingfs.spark.source import rows
from rollingfs.spark.source.datasource import RollingDataSource
from tests.spark import matrix
from tests.support.spark import run_python, run_query

BATCHES = 3


def test_times_of_a_schema_are_in_utc():
    schema = types.StructType().add("at", types.TimestampType())
    assert rows.arrow_schema(schema).field("at").type == pa.timestamp("us", tz="UTC")


def test_schema_converts_on_a_pyspark_without_time_zones(monkeypatch):
    def convert(schema: Any, error_on_duplicated_field_names_in_struct: bool = False) -> Any:
        return schema

    monkeypatch.setattr("pyspark.sql.pandas.types.to_arrow_schema", convert)
    assert rows.arrow_schema(schema := types.StructType()) is schema


def test_unsupported_stream_read_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    source = RollingDataSource({"path": "/x"})
    with pytest.raises(NotImplementedError, match=r"reads streams with PySpark 4\.2 or later, and this is .*install"):
        source.streamReader(types.StructType())


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_partition_that_spark_invents_has_no_rows(tmp_path, partition):
    schema = types.StructType().add("value", types.StringType())
    assert list(RollingDataSource({"path": str(tmp_path)}).reader(schema).read(partition)) == []


def test_tests_of_older_pysparks_import_no_stream_reads():
    modules = [one for area, names in matrix.AREAS.items() if area != "stream, read" for one in names]
    program = "import importlib, sys, pyspark.sql.datasource; sys.modules['pyspark.sql.streaming.datasource'] = None; "
    run_python("-c", program + f"[importlib.import_module('tests.spark.' + name) for name in {modules}]")


@pytest.mark.slow
def test_stream_of_files_is_written_once_and_repeats_nothing(source: Any, tmp_path: Path):
    (tmp_path / "in").mkdir()

    def run() -> None:
        rows = to_json(source.readStream.schema("n long").json(f"{tmp_path}/in"))
        run_query(rows.writeStream.format("rolling"), tmp_path / "checkpoint", f"file://{tmp_path}/out")

    for nth in range(BATCHES):
        (tmp_path / "in" / f"{nth}.json").write_text(f'{{"n": {nth}}}\n')
        run()
    newest = max((tmp_path / "checkpoint" / "commits").iterdir(), key=lambda path: path.name)
    newest.unlink()  # as if the driver had been killed behind the commit of the sink
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    lines = RollingFileSystem("file", sync=False).cat_file(f"{tmp_path}/out").splitlines()
    assert sorted(json.loads(line)["n"] for line in lines) == list(range(BATCHES))


STRUCT = pa.struct([pa.field("x", pa.int64(), nullable=False)])
NOT_NULL = [
    (STRUCT, [{"x": 1}, None, {"x": 2}]),
    (pa.list_(pa.field("item", STRUCT, nullable=False)), [[{"x": 1}, {"x": 2}], None, []]),
    (pa.map_(pa.string(), pa.field("value", STRUCT, nullable=False)), [[("a", {"x": 1})], None, []]),
]


@pytest.mark.parametrize(("kind", "values"), NOT_NULL)
def test_rows_fit_not_null_fields_without_casts(kind, values):
    found = pa.array(values * 2, rows._nullable(kind)).slice(1, 4)
    labelled = pa.array(rows._As(found, kind))  # what pyarrow 18 is given
    labelled.validate(full=True)
    assert labelled.type == kind
    assert labelled.to_pylist() == found.to_pylist()
    batch = rows.conform(pa.record_batch([found], names=["c"]), pa.schema([pa.field("c", kind)]))
    assert batch.column(0).equals(labelled)
