"""Columns that change from one write to the next: later nulls, other orders, added columns."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest

from tests.support.servers import require_module
from tests.support.spark import parquet_file

require_module("pyarrow")
require_module("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructField, StructType

from rollingfs.format import parquet_footer as footer
from rollingfs.parquet import encoding, files
from rollingfs.spark.source import rows
from rollingfs.spark.source.batch_reader import RowReader
from rollingfs.spark.source.formats import arrow_streams, parquet
from rollingfs.spark.source.inference import infer_schema
from rollingfs.spark.source.partitions import Extent, Range

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


def test_a_null_that_comes_later_is_read_behind_arrow_that_said_that_it_had_none(tmp_path):
    from rollingfs.spark.source.options import parse_options

    first = pa.record_batch([[1], [[2]]], rows.arrow_schema(NOT_NULL))
    later = pa.record_batch([[None], [[None]]], rows.arrow_schema(NOT_NULL.toNullable()))
    path = tmp_path / "a"
    path.write_bytes(b"".join([*arrow_streams.encode(iter([first])), *arrow_streams.encode(iter([later]))]))
    options = parse_options({"path": str(path), "format": "arrow"})
    schema = infer_schema(options)
    assert schema == NOT_NULL.toNullable()
    data = path.read_bytes()
    extent = Extent("a", "i", 0, len(data))
    found = [
        row
        for batch in arrow_streams.batches(lambda start, end: data[start:end], Range(extent, 0, len(data)))
        for row in rows.conform(batch, rows.arrow_schema(schema)).to_pylist()
    ]
    assert found == [{"n": 1, "l": [2]}, {"n": None, "l": [None]}]


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
    from rollingfs.spark.source.batch_reader import RollingReader
    from rollingfs.spark.source.options import parse_options

    path = tmp_path / "j"
    path.write_bytes(b'{"n": 1}\n{}\n')
    options = parse_options({"path": str(path), "format": "json"})
    reader = RollingReader(options, StructType([StructField("n", LongType(), False)]))
    [part] = reader.partitions()
    with pytest.raises(pa.ArrowInvalid, match="column 'n' has nulls"):
        list(reader.read(part))
    assert RowReader(options, NOT_NULL)


def test_a_value_that_does_not_fit_its_column_is_refused_by_the_columns_name():
    batch = pa.record_batch({"word": ["x"]})
    with pytest.raises(pa.ArrowInvalid, match="column 'word' of type string is no int64"):
        rows.conform(batch, pa.schema([("word", pa.int64())]))


# -- Parquet -----------------------------------------------------------------------------------------------------


def test_parquet_rows_come_in_the_files_order_and_with_its_nulls():
    inner = pa.struct([pa.field("y", pa.int64(), False), pa.field("x", pa.string())])
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), False),
            pa.field("s", inner),
            pa.field("l", pa.list_(pa.field("element", pa.int64(), False))),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64(), False))),
        ]
    )
    first = {"n": 1, "s": {"y": 2, "x": "a"}, "l": [3], "m": [("k", 4)]}
    data = parquet_file(pa.Table.from_pylist([first], schema))
    spark = StructType(
        [
            StructField("m", MapType(StringType(), LongType())),
            StructField("l", ArrayType(LongType())),
            StructField("n", LongType()),
            StructField("s", StructType([StructField("x", StringType()), StructField("y", LongType())])),
        ]
    )
    more = rows.arrow_schema(spark)
    second = {"m": [("z", 9)], "l": [8], "n": 7, "s": {"x": None, "y": 6}}
    data = grown(data, pa.RecordBatch.from_pylist([second], more))
    assert rows_of(data) == [first, {**second, "s": {"y": 6, "x": None}}]
    assert pq.read_schema(io.BytesIO(data)).equals(schema)
    for name, value in (("n", None), ("l", [None]), ("m", [("k", None)]), ("s", {"x": "a", "y": None})):
        with pytest.raises(pa.ArrowInvalid, match=f"column '{name}'"):
            grown(data, pa.RecordBatch.from_pylist([{**second, name: value}], more))


@pytest.mark.parametrize("options", [{}, {"row_group_size": 2, "write_page_index": True}])
def test_a_column_that_is_added_is_null_in_the_rows_that_were_there(options):
    data = parquet_file(pa.table({"n": [1, 2, 3], "s": ["a", None, "c"]}), **options)
    batch = pa.RecordBatch.from_pylist(
        [{"new": {"x": [1]}, "s": "d", "n": 4, "t": "z"}],
        pa.schema(
            [
                ("new", pa.struct([("x", pa.list_(pa.int64()))])),
                ("s", pa.string()),
                ("n", pa.int64()),
                ("t", pa.string()),
            ]
        ),
    )
    data = grown(data, batch, batch)
    old = [{"n": n, "s": s, "new": None, "t": None} for n, s in ((1, "a"), (2, None), (3, "c"))]
    new = {"n": 4, "s": "d", "new": {"x": [1]}, "t": "z"}
    assert rows_of(data) == [*old, new, new]
    assert pq.read_table(io.BytesIO(data), columns=["t"], filters=[("n", ">=", 3)])["t"].to_pylist() == [None, "z", "z"]
    metadata = pq.read_metadata(io.BytesIO(data))
    assert {metadata.row_group(nth).num_columns for nth in range(metadata.num_row_groups)} == {4}
    again = grown(data, batch.select(["t", "n", "s", "new"]))
    assert rows_of(again) == [*old, new, new, new]
    found = [
        row
        for one in (Range(Extent("x", "i", 0, len(again)), *cut) for cut in ((0, 200), (200, len(again))))
        for part in parquet.batches(io.BytesIO(again), one, ["t", "n"])
        for row in part.to_pylist()
    ]
    assert [(row["n"], row["t"]) for row in found] == [(1, None), (2, None), (3, None), *[(4, "z")] * 3]


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


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (StructType([StructField("s", StringType())]), "'n' is missing among s"),
        (
            StructType([StructField("s", StringType()), StructField("n", IntegerType())]),
            "'n' is int32, but int64",
        ),
        (StructType([StructField("n", LongType()), StructField("s", LongType())]), "'s' is int64, but string"),
    ],
)
def test_a_column_that_parquet_cannot_take_is_named(kind, message):
    data = parquet_file(pa.table({"n": [1], "s": ["a"]}))
    with pytest.raises(footer.MalformedFooterError, match=message):
        files.aligned(footer_of(data), rows.arrow_schema(kind))


def test_parts_whose_columns_were_not_taken_over_are_refused_by_the_column_that_differs():
    one, other = parquet_file(pa.table({"n": [1], "s": ["a"]})), parquet_file(pa.table({"s": ["a"], "n": [1]}))
    with pytest.raises(
        footer.MalformedFooterError, match="not those of the file: they have 's' where the file has 'n'"
    ):
        footer.ended(footer.join([footer.JoinedFile(footer_of(one), 0), footer.JoinedFile(footer_of(other), len(one))]))
