"""Columns that change from one write to the next: later nulls, other orders, added columns."""

import base64
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from rollingfs.parquet import append
from rollingfs.spark.source import rows
from tests.support.spark import arrow_stream, parquet_file
from tests.support.spark_source import batch_reader, read, rows_of

NOT_NULL = StructType([StructField("n", LongType(), False), StructField("l", ArrayType(LongType(), False), False)])


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_names_match_without_case_and_ambiguous_ones_are_refused(tmp_path, form):
    """`test_source_batch` compares with Spark, by the setting of its session."""
    maps = pa.array([[("k", {"Ef": 5})], None], pa.map_(pa.string(), pa.struct([("Ef", pa.int64())])))
    table = pa.table({"UserId": [1, 2], "S": [{"Ab": [{"Cd": 1}]}, None], "M": maps, "m2": [7, 8]})
    two = pa.table({"UserId": [1], "userid": [2]})
    for name, one in (("p", table), ("two", two)):
        data = parquet_file(one) if form == "parquet" else arrow_stream(*one.to_batches())
        (tmp_path / name).write_bytes(data)
    inner = StructType().add("aB", ArrayType(StructType().add("cD", LongType())))
    mapped = MapType(StringType(), StructType().add("eF", LongType()))
    schema = StructType().add("s", inner).add("USERID", LongType()).add("m", mapped).add("no", LongType())
    assert rows_of(batch_reader(tmp_path / "p", schema, format=form)) == [
        {"s": {"aB": [{"cD": 1}]}, "USERID": 1, "m": [("k", {"eF": 5})], "no": None},
        {"s": None, "USERID": 2, "m": None, "no": None},
    ]
    lacking = StructType().add("no", LongType())
    assert rows_of(batch_reader(tmp_path / "p", lacking, format=form)) == [{"no": None}] * 2
    with pytest.raises(ValueError, match=r"/two: column 'USERID' is ambiguous: .* UserId, userid; spark.sql.caseSens"):
        rows_of(batch_reader(tmp_path / "two", StructType().add("USERID", LongType()), format=form))


# -- nulls -------------------------------------------------------------------------------------------------------


def test_a_schema_that_is_inferred_is_nullable_however_deep():
    kind = StructType([StructField("s", NOT_NULL, False), StructField("m", MapType(StringType(), LongType(), False))])
    assert rows.spark_schema(rows.arrow_schema(kind)) == kind.toNullable()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (LongType(), None),
        (ArrayType(LongType(), False), [1, None]),
        (MapType(StringType(), LongType(), False), {"k": None}),
        (StructType([StructField("x", LongType(), False)]), {"x": None}),
        (ArrayType(StructType([StructField("x", ArrayType(LongType(), False))])), [{"x": [None]}]),
    ],
)
def test_null_in_a_not_null_column_is_refused(kind, value):
    """Spark would read any value there."""
    nullable = isinstance(kind, ArrayType) and kind.containsNull
    wanted = rows.arrow_schema(StructType([StructField("c", kind, nullable)]))
    open_schema = rows.arrow_schema(StructType([StructField("c", kind)]).toNullable())
    values = [list(value.items()) if isinstance(kind, MapType) else value]
    batch = pa.record_batch([pa.array(values, open_schema.field(0).type)], schema=open_schema)
    with pytest.raises(pa.ArrowInvalid, match="'c'"):
        rows.conform(batch, wanted)
    assert rows.conform(batch, open_schema) == batch
    assert rows.conform(batch.slice(0, 0), wanted).num_rows == 0


def test_json_null_in_a_not_null_column_is_refused(tmp_path):
    (tmp_path / "j").write_bytes(b'{"n": 1}\n{}\n')
    with pytest.raises(pa.ArrowInvalid, match="column 'n' has nulls"):
        read(tmp_path / "j", StructType([StructField("n", LongType(), False)]), format="json")


def test_value_that_does_not_fit_is_refused_by_column():
    batch = pa.record_batch({"word": ["x"]})
    with pytest.raises(pa.ArrowInvalid, match="column 'word' of type string is no int64"):
        rows.conform(batch, pa.schema([("word", pa.int64())]))


# -- Parquet -----------------------------------------------------------------------------------------------------


def test_writer_metadata_stays_except_what_hides_added_columns(fs, tmp_path):
    spark = b"org.apache.spark.sql.parquet.row.metadata"
    table = pa.table({"n": [1]}).replace_schema_metadata({b"mine": b"x", spark: b"a struct of n"})
    (tmp_path / "t").write_bytes(parquet_file(table))
    append(fs, f"{tmp_path}/t", {"n": [2], "new": ["y"]})
    data = io.BytesIO(fs.cat_file(f"{tmp_path}/t"))
    kept = pq.read_metadata(data).metadata
    assert kept[b"mine"] == b"x"
    assert spark not in kept
    assert pq.read_schema(data).names == ["n", "new"]
    stored = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(kept[b"ARROW:schema"])))
    assert (stored.names, stored.metadata) == (["n", "new"], {b"mine": b"x"})
