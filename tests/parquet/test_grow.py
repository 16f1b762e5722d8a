"""`rollingfs.parquet.append`: one file for every reader after each commit, whoever appends."""

import io
import itertools
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.support.servers import require_module

for name in ("pyarrow", "duckdb", "pandas", "polars"):
    require_module(name)

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.parquet_waste import wasted
from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.errors import AppendInterrupted, BadOffsetError, SegmentSealedError
from rollingfs.fs.core import core
from rollingfs.parquet import append, files, grow, rewrite
from rollingfs.parquet_footer.footer import ended
from rollingfs.parquet_footer.thrift import BINARY, MalformedFooterError, decode, encode
from rollingfs.segment.read import ends
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.upkeep import Upkeep, Upkept, with_rewritten
from tests.support.backends import Scripted, private_memory
from tests.support.examples import slowly
from tests.support.schedules import interrupt


@pytest.fixture
def fs() -> RollingFileSystem:
    return RollingFileSystem("file", sync=False, header_cache_s=0, policy=RollingPolicy(max_bytes=3000))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def numbers(fs: RollingFileSystem, path: Any) -> list[int]:
    return [row["n"] for row in rows(fs, path)]


def worn(fs: RollingFileSystem, path: str) -> tuple[str, ...]:
    """What a round of upkeep finds worn."""
    return core(fs).run(Upkeep(core(fs).client).segments([path], Ledger()))[0].worn


def with_long_names(fs: RollingFileSystem, path: str) -> None:
    """A file whose footers take more room than its rows."""
    for nth in range(6):
        append(fs, path, {f"a long name of column {column}": [nth] for column in range(40)})


def rows(fs: RollingFileSystem, path: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(fs.cat_file(str(path)))).to_pylist()
    return found


def test_every_reader_sees_one_file_after_each_append(fs, path):
    known = []
    database = duckdb.connect()
    database.register_filesystem(fs)
    for nth in range(4):
        new = [{"n": 10 * nth + i, "s": f"é{i}"} for i in range(10)]
        length = fs.segment(path).length if nth else 0
        assert append(fs, path, pa.Table.from_pylist(new)) == length
        known += new
        with fs.open(path) as file:
            assert pq.read_table(file).to_pylist() == known
        with fs.open(path) as file:
            assert polars.read_parquet(file).to_dicts() == known
        assert pandas.read_parquet(f"rolling+file://{path}").to_dict("records") == known
        found = database.sql(f"select n, s from read_parquet('rolling://{path}') order by n").fetchall()
        assert found == [tuple(row.values()) for row in known]
    assert pq.ParquetFile(io.BytesIO(fs.cat_file(path))).num_row_groups == 4


def test_rows_follow_those_that_duckdb_wrote(fs, path, tmp_path):
    """DuckDB names types in the old way only, and also the type of plain integers."""
    types = {
        "tinyint": -1, "smallint": -2, "integer": -3, "bigint": -4, "utinyint": 1, "usmallint": 2, "uinteger": 3,
        "ubigint": 2**64 - 1, "varchar": "'é'", "date": "'2026-12-01'", "time": "'01:02:03'", "bigint[]": "[1, null]",
        "struct(a integer, b varchar)": "{a: 1, b: 'x'}", "map(varchar, date)": "map {'k': '2026-12-01'}",
    }  # fmt: skip
    chosen = ", ".join(f"{value}::{kind} c{nth}" for nth, (kind, value) in enumerate(types.items()))
    duckdb.sql(f"copy (select {chosen}) to '{tmp_path / 'theirs'}' (format parquet)")
    theirs = pq.read_table(tmp_path / "theirs")
    fs.pipe_file(path, (tmp_path / "theirs").read_bytes())
    append(fs, path, theirs)
    with fs.open(f"{path}-ours", "wb") as file:
        pq.write_table(theirs, file)
    fs.seal(f"{path}-ours")
    fs.concat(path, [f"{path}-ours"], as_format="parquet")
    for _ in range(2):
        (tmp_path / "all").write_bytes(fs.cat_file(path))
        assert pq.read_table(tmp_path / "all").to_pylist() == theirs.to_pylist() * 3
        assert (
            polars.read_parquet(tmp_path / "all").to_dicts() == polars.read_parquet(tmp_path / "theirs").to_dicts() * 3
        )
        found = duckdb.sql(f"select * from read_parquet('{tmp_path / 'all'}') where c7 = {2**64 - 1} and c0 < 0")
        assert found.fetchall() == duckdb.sql(f"select {chosen}").fetchall() * 3
        rewrite(fs, path)


@pytest.mark.parametrize("kind", ["pandas", "polars", "mapping"])
def test_frames_are_taken_as_tables_are(fs, tmp_path, kind):
    columns = {"n": [1, 2], "s": ["a", None]}
    make: Any = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "mapping": dict}[kind]
    for _ in range(2):
        append(fs, str(tmp_path / "t"), make(columns))
    append(fs, str(tmp_path / "t"), make({"n": [3], "s": [None]}))  # nulls alone tell no type
    assert rows(fs, tmp_path / "t") == [{"n": 1, "s": "a"}, {"n": 2, "s": None}] * 2 + [{"n": 3, "s": None}]


def test_new_columns_are_null_in_old_rows(fs, path):
    append(fs, path, pa.table({"n": [1], "o": [{"x": 1, "y": "a"}]}), compression="zstd")
    append(fs, path, pa.table({"more": [[2]], "o": [{"y": "b", "x": 2}], "n": [2]}), row_group_size=1)
    append(fs, path, pa.table({"n": [3, 4], "o": pa.nulls(2, pa.struct({"x": pa.int64(), "y": pa.string()})),
                               "more": pa.array([[], None], pa.list_(pa.int64()))}), row_group_size=1)  # fmt: skip
    assert rows(fs, path) == [
        {"n": 1, "o": {"x": 1, "y": "a"}, "more": None},
        {"n": 2, "o": {"x": 2, "y": "b"}, "more": [2]},
        {"n": 3, "o": None, "more": []},
        {"n": 4, "o": None, "more": None},
    ]
    metadata = pq.read_metadata(io.BytesIO(fs.cat_file(path)))
    assert metadata.num_row_groups == 4
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def seconds(numbers: list[int], unit: str) -> dict[str, Any]:
    return {"d": pa.array(numbers, pa.duration(unit))}


@pytest.mark.parametrize(
    ("first", "table", "message"),
    [
        ({"n": [1]}, {"n": ["x"]}, r"column 'n' is string, but int64 in the file; nothing was written"),
        ({"n": [1]}, {"s": ["x"]}, "'n' is missing among s; nothing was written"),
        (seconds([1], "s"), seconds([1000], "ms"), r"column 'd' is duration\[ms\], but duration\[s\] in the file"),
    ],
    ids=["another type", "a column less", "another unit"],
)
def test_a_table_of_other_columns_is_refused(fs, path, first, table, message):
    append(fs, path, first)
    before = fs.cat_file(path)
    with pytest.raises(MalformedFooterError, match=f"^{path}: .*{message}"):
        append(fs, path, table)
    assert fs.cat_file(path) == before


def test_what_is_no_parquet_or_sealed_is_refused(fs, tmp_path):
    fs.overwrite(str(tmp_path / "text"), b"no parquet\n")
    with pytest.raises(MalformedFooterError, match="text: these rows cannot be appended to it as Parquet"):
        append(fs, str(tmp_path / "text"), {"n": [1]})
    append(fs, str(tmp_path / "t"), {"n": [1]})
    fs.seal(str(tmp_path / "t"))
    with pytest.raises(SegmentSealedError):
        append(fs, str(tmp_path / "t"), {"n": [1]})


def test_a_table_without_rows_makes_an_empty_file(fs, path):
    none = pa.table({"n": pa.array([], pa.int64())})
    fs.create(path)
    append(fs, path, none)
    assert rows(fs, path) == []
    append(fs, path, {"n": [1]})
    length = fs.segment(path).length
    assert append(fs, path, none) == length == fs.segment(path).length
    assert rows(fs, path) == [{"n": 1}]


def test_an_append_gives_up_after_many_lost_races(fs, path, monkeypatch):
    monkeypatch.setattr(grow, "GROWTHS_MAX", 2)
    monkeypatch.setattr(grow, "commit", mock.Mock(side_effect=BadOffsetError("late")))
    with pytest.raises(BadOffsetError, match=r"before each of 2 tries; nothing was written\. Try again"):
        append(fs, path, {"n": [1]})


# -- what appends leave behind ---------------------------------------------------------------------------------------


def test_many_small_appends_waste_little(fs, path, monkeypatch):
    monkeypatch.setattr(ends, "WASTED_BYTES_MIN", 4096)
    parts = []
    for nth in range(150):
        append(fs, path, {"n": range(100 * nth, 100 * nth + 100), "s": [f"row {nth}"] * 100})
        parts.append(wasted(fs.cat_file(path)) if fs.segment(path).size > 50_000 else 0)
    assert max(parts) <= 0.1
    assert numbers(fs, path) == [*range(15_000)]
    assert pq.ParquetFile(io.BytesIO(fs.cat_file(path))).num_row_groups < 30
    assert fs.segment(path).start > 0


def small_appends(fs: RollingFileSystem, path: str, **options: Any) -> None:
    for nth in range(5):
        append(fs, path, {"n": [nth], "s": [str(nth)]}, **options)


def test_a_rewrite_is_a_row_group_after_old_bytes(fs, path):
    small_appends(fs, path, compression={"n": "zstd", "s": "none"})
    fs.append(path, b"", attrs={"spark/q": "7"})
    before = fs.segment(path)
    freed = rewrite(fs, path)
    after = fs.segment(path)
    assert (after.start, freed) == (before.length, before.size - after.size)
    assert after.attrs == {"spark/q": "7"}
    before.refresh()
    assert (before.start, before.length) == (after.start, after.length), "the handle is on the same segment"
    assert rows(fs, path) == [{"n": nth, "s": str(nth)} for nth in range(5)]
    metadata = pq.read_metadata(io.BytesIO(fs.cat_file(path)))
    assert metadata.num_row_groups == 1
    assert [metadata.row_group(0).column(nth).compression for nth in range(2)] == ["ZSTD", "UNCOMPRESSED"]
    assert (rewrite(fs, path), fs.segment(path).version) == (0, after.version)
    append(fs, path, {"n": [5], "s": ["5"]})
    assert len(rows(fs, path)) == 6
    assert all(row.ok for row in fs.segment(path).verify())


def test_a_lost_rewrite_is_not_repeated_with_each_append(fs, path, monkeypatch):
    late = mock.Mock(side_effect=BadOffsetError("late"))
    monkeypatch.setattr(grow, "rewrite", late)
    monkeypatch.setattr(ends, "WASTED_BYTES_MIN", 0)
    for n in range(40):
        append(fs, path, {"n": [n]})
    assert 1 <= late.call_count <= 10  # after each loss once the waste has doubled


WORDS = pa.array(["a", "b"]).dictionary_encode()
VIEWS = pa.DictionaryArray.from_arrays([0, 1], pa.array(["a", "b"], pa.string_view()))
WRITTEN: list[Any] = [
    *(polars.Series(["a", None], dtype=kind) for kind in (polars.Categorical, polars.Enum(["a", "b"]), polars.String)),
    polars.Series([["a"], None], dtype=polars.List(polars.Categorical)),
    polars.Series([{"a": "x"}, {"a": None}], dtype=polars.Struct({"a": polars.Enum(["x"])})),
    polars.Series([[1, 2], None], dtype=polars.Array(polars.Int64, 2)),
    *(pandas.Series(["a", None], dtype=kind) for kind in ("category", "string")),
    pandas.Series(["a", "b"], dtype=pandas.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
    pandas.Series(pandas.period_range("2020", periods=2, freq="D")),
    WORDS,
    pa.StructArray.from_arrays([WORDS], ["a"]),
    pa.ListArray.from_arrays([0, 1, 2], WORDS),
    pa.ListArray.from_arrays([0, 1, 2], pa.StructArray.from_arrays([WORDS], ["a"])),
    pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), WORDS),
    pa.array([1, None], pa.timestamp("s", "Europe/Berlin")),
    pa.array([1, None], pa.duration("ms")),
    pa.array([[1], None], pa.large_list_view(pa.int64())),
    pa.array([b"a", None], pa.binary_view()),
]
REFUSED: list[Any] = [
    *(polars.Series([1, None], dtype=kind) for kind in (polars.Int128, polars.UInt128)),
    pandas.Series(["a", 1], dtype=object),
    pandas.Series(pandas.arrays.SparseArray([0, 1])),
    pandas.Series([1j, 2j]),
    VIEWS,
    pa.StructArray.from_arrays([VIEWS], ["a"]),
    pa.array([pa.MonthDayNano([1, 2, 3]), None]),
    pa.array([{}, None], pa.struct([])),
    pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"]),
]


def framed(column: Any) -> Any:
    """A frame of the library of a column."""
    make: Any = {polars.Series: polars.DataFrame, pandas.Series: pandas.DataFrame}.get(type(column), pa.table)
    return make({"n": [1, 2], "column": column})


@pytest.mark.parametrize("column", WRITTEN, ids=lambda one: str(getattr(one, "dtype", getattr(one, "type", ""))))
def test_each_type_of_frames_round_trips_through_a_rewrite(fs, path, column):
    frame = framed(column)
    given = frame if isinstance(frame, pa.Table) else pa.table(frame)
    for _ in range(2):
        append(fs, path, frame)
    for _ in range(2):
        assert rows(fs, path) == given.to_pylist() * 2
        rewrite(fs, path)


@pytest.mark.parametrize("column", REFUSED, ids=lambda one: str(getattr(one, "dtype", getattr(one, "type", ""))))
def test_an_unwritable_column_is_refused_by_name(fs, path, column):
    with pytest.raises(MalformedFooterError, match=r"column .column. cannot be written.*nothing was written"):
        append(fs, path, framed(column))
    assert not fs.exists(path)


def test_no_error_after_the_commit_fails_an_append(fs, path, monkeypatch):
    """A caller that repeats the append would have its rows twice."""
    monkeypatch.setattr(ends, "WASTED_BYTES_MIN", 0)
    for n, error in enumerate(
        (pa.ArrowNotImplementedError("no"), RuntimeError("no"), OSError("no"), MemoryError()) * 9
    ):
        monkeypatch.setattr(grow, "rewrite", mock.Mock(side_effect=error))
        append(fs, path, {"n": [n]})
    monkeypatch.setattr(grow, "live_bytes", mock.Mock(side_effect=TypeError("no")))
    append(fs, path, {"n": [36]})
    assert numbers(fs, path) == [*range(37)]


def test_upkeep_goes_on_after_any_error_of_a_rewrite():
    rewritten = mock.Mock(side_effect=[pa.ArrowNotImplementedError("no"), KeyError("no"), 7])
    did = with_rewritten(Upkept("/", is_stream=True, worn=("/a", "/b", "/c")), rewritten)
    assert (did.rewritten_bytes, [*did.failed]) == (7, ["rewrite /a", "rewrite /b"])


@pytest.mark.parametrize("verb", ["append", "rewrite"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_at_any_call_reports_the_truth(verb, when, monkeypatch):
    monkeypatch.setattr(ends, "WASTED_BYTES_MIN", 0)
    if verb == "rewrite":
        monkeypatch.setattr(grow, "REWRITTEN_BYTES_MAX", 0)  # the appends leave it to the rewrite
    outcomes = set()
    for nth in itertools.count():
        store = Scripted(private_memory())
        fs, other = (RollingFileSystem(backend=one, inline_bytes=0) for one in (store, store.inner))
        for n in range(3):
            append(other, "/t", {f"a long name of column {column}": [n] for column in range(40)})
        segment = other.segment("/t")
        before = (segment.start, segment.length)
        column = "a long name of column 0"
        plan = store.plan(skips=nth, **{when: interrupt})
        interrupted = None
        try:
            if verb == "append":
                append(fs, "/t", {f"a long name of column {column}": [3] for column in range(40)})
            else:
                rewrite(fs, "/t")
        except AppendInterrupted as caught:
            interrupted = caught
        if plan in store.plans:
            break
        assert interrupted is not None
        outcomes.add(interrupted.outcome)
        found = pq.read_table(io.BytesIO(other.cat_file("/t")))[column].to_pylist()
        segment = other.segment("/t")
        is_there = found == [0, 1, 2, 3] if verb == "append" else (segment.start, segment.length) != before
        assert interrupted.outcome in ("unknown", "committed" if is_there else "not committed")
    assert {"committed", "not committed"} <= outcomes


def test_a_wrong_option_of_a_rewrite_is_named(fs, path):
    for n in range(3):
        append(fs, path, {"n": [n] * 4})
    assert rewrite(fs, path, row_group_size=5) > 0
    assert pq.read_metadata(io.BytesIO(fs.cat_file(path))).num_row_groups == 3
    with pytest.raises(TypeError, match="no_such_option"):
        append(fs, path, {"n": [9]}, no_such_option=1)
    assert numbers(fs, path) == [0] * 4 + [1] * 4 + [2] * 4


def test_a_file_that_cannot_be_rewritten_stays(fs, tmp_path):
    path = tmp_path / "t"
    for name in "ab":
        rows = pa.table({"t": pa.array([0], pa.timestamp("us"))})
        pq.write_table(rows, tmp_path / name, use_deprecated_int96_timestamps=True)
        fs.seal(str(tmp_path / name))
    fs.create(str(path))
    fs.concat(str(path), [str(tmp_path / name) for name in "ab"], as_format="parquet")
    before = fs.cat_file(str(path))
    with pytest.raises(MalformedFooterError, match="other types; nothing was written"):
        rewrite(fs, str(path))
    assert fs.cat_file(str(path)) == before
    with pytest.raises(FileNotFoundError):
        rewrite(fs, str(tmp_path / "nothing"))


@pytest.mark.parametrize("columns", [2, *slowly(3000)])
def test_a_log_of_whole_files_takes_no_rows(fs, path, columns):
    """The last footer names offsets of its own file: by them the first one would be read, and the rest dropped."""
    data = io.BytesIO()
    rows = 100_000 // columns
    table = pa.table({str(nth): [os.urandom(8) for _ in range(rows)] for nth in range(columns)})
    pq.write_table(table, data)
    fs.create(path)
    for _ in range(4):
        fs.append(path, data.getvalue())
    assert rewrite(fs, path) == 0
    with pytest.raises(MalformedFooterError, match=r"several whole Parquet files.*nothing was written"):
        append(fs, path, table)
    assert fs.cat_file(path) == data.getvalue() * 4
    assert not worn(fs, path)


def test_an_unknown_compression_is_refused_before_arrow_aborts(fs, path):
    for nth in range(3):
        append(fs, path, {"n": [nth]}, compression="zstd")
    data = fs.cat_file(path)
    footer = files.footer_in(data)
    kind, zstd, unknown = b"\x19\x18\x01n\x15", b"\x0c", b"\x7e"  # the path of the column, then its compression
    assert footer.count(kind + zstd) == 3
    fs.pipe_file(path, data.replace(kind + zstd, kind + unknown))
    with pytest.raises(MalformedFooterError, match="KeyError: 63"):
        rewrite(fs, path)


def test_a_footer_with_a_mistyped_size_is_not_worn(fs, path, tmp_path, monkeypatch):
    torn = str(tmp_path / "torn")
    monkeypatch.setattr(grow, "REWRITTEN_BYTES_MAX", 0)
    with_long_names(fs, path)
    footer = files.footer_in(fs.cat_file(path))
    table = decode(footer)
    table[4][1][1][0][1][1][1][0][5] = (BINARY, b"5")  # the size of the offset index of a column
    fs.pipe_file(torn, fs.cat_file(path)[: -8 - len(footer)] + ended(encode(table)))
    assert (worn(fs, path), worn(fs, torn)) == ((path,), ())
    with pytest.raises(MalformedFooterError):
        rewrite(fs, torn)


@pytest.mark.parametrize("kept", ["", "by an owner", "by the policy"])
def test_owned_and_kept_files_are_not_worn(fs, path, monkeypatch, kept):
    monkeypatch.setattr(grow, "REWRITTEN_BYTES_MAX", 0)
    with_long_names(fs, path)
    if kept == "by an owner":
        fs.segment(path).acquire("me")
    elif kept:
        fs.set_policy(path, consolidate=False)
    assert worn(fs, path) == (() if kept else (path,))
