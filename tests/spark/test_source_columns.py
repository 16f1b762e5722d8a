"""Columns that change from one write to the next: later nulls, other orders, added columns."""

from __future__ import annotations

import base64
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from rollingfs.format import parquet_footer as footer
from rollingfs.parquet import encoding, files
from rollingfs.spark.source import rows
from rollingfs.spark.source.batch_reader import RowReader
from tests.support.spark import parquet_file
from tests.support.spark_source import batch_reader

NOT_NULL = StructType([StructField("n", LongType(), False), StructField("l", ArrayType(LongType(), False), False)])


def footer_of(data: bytes) -> bytes:
    return files.footer_in(data)


def grown(data: bytes, *batches: pa.RecordBatch, schema: pa.Schema | None = None) -> bytes:
    """A file with more rows behind it, as the tasks and the driver write them."""
    schema = files.aligned(footer_of(data), schema or batches[0].schema)
    parts, whole = [], data
    for batch in batches:
        encoder = encoding.Encoder(iter([rows.conform(batch, schema)]))
        at, whole = len(whole), whole + b"".join(encoder)
        assert encoder.footer is not None
        parts.append(footer.JoinedFile(encoder.footer, at))
    nulls, old = files.widened(footer_of(data), parts[0].footer, schema, len(whole))
    return whole + nulls + footer.ended(footer.join([footer.JoinedFile(old, 0), *parts]))


def rows_of(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
    return found


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
def test_a_null_where_a_schema_says_not_null_is_refused_by_its_column(kind, value):
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


def test_json_with_a_null_where_the_users_schema_says_not_null_is_refused_by_its_column(tmp_path):
    path = tmp_path / "j"
    path.write_bytes(b'{"n": 1}\n{}\n')
    reader = batch_reader(path, StructType([StructField("n", LongType(), False)]), format="json")
    [part] = reader.partitions()
    with pytest.raises(pa.ArrowInvalid, match="column 'n' has nulls"):
        list(reader.read(part))
    assert RowReader(reader.options, NOT_NULL)


def test_a_value_that_does_not_fit_its_column_is_refused_by_the_columns_name():
    batch = pa.record_batch({"word": ["x"]})
    with pytest.raises(pa.ArrowInvalid, match="column 'word' of type string is no int64"):
        rows.conform(batch, pa.schema([("word", pa.int64())]))


# -- Parquet -----------------------------------------------------------------------------------------------------


def test_a_column_added_to_a_pandas_file_is_seen_by_pandas():
    pandas = pytest.importorskip("pandas")
    sink = io.BytesIO()
    pandas.DataFrame({"n": [1, 2]}, index=["a", "b"]).to_parquet(sink)
    batch = pa.record_batch({"n": [3], "__index_level_0__": ["c"], "new": [0.5]})
    found = pandas.read_parquet(io.BytesIO(grown(sink.getvalue(), batch)))
    assert (list(found.index), list(found.columns)) == (["a", "b", "c"], ["n", "new"])
    assert found["new"].isna().tolist() == [True, True, False]


def test_what_a_writer_keeps_beside_the_columns_stays_but_for_what_would_hide_added_ones():
    spark = b"org.apache.spark.sql.parquet.row.metadata"
    table = pa.table({"n": [1]}).replace_schema_metadata({b"mine": b"x", spark: b"a struct of n"})
    data = grown(parquet_file(table), pa.record_batch({"n": [2], "new": ["y"]}))
    kept = pq.read_metadata(io.BytesIO(data)).metadata
    assert kept[b"mine"] == b"x"
    assert spark not in kept
    assert pq.read_schema(io.BytesIO(data)).names == ["n", "new"]
    stored = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(kept[b"ARROW:schema"])))
    assert (stored.names, stored.metadata) == (["n", "new"], {b"mine": b"x"})


def test_a_file_without_rows_gets_the_columns_that_come():
    for table in (pa.table({"n": pa.array([], pa.int64())}), None):
        data = encoding.empty(pa.schema([("n", pa.int64())])) if table is None else parquet_file(table)
        assert rows_of(grown(data, pa.record_batch({"n": [1], "s": ["x"]}))) == [{"n": 1, "s": "x"}]
