"""`rollingfs.parquet.append`: one file for every reader after each commit, whoever appends."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import require_module

for name in ("pyarrow", "duckdb", "pandas", "polars"):
    require_module(name)

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.errors import BadOffsetError, SegmentSealedError
from rollingfs.parquet import append, grow
from rollingfs.parquet.footer import MalformedFooterError

PROCESSES, APPENDS = 4, 5
WRITER = """
import sys
import pyarrow as pa
from rollingfs import RollingFileSystem
from rollingfs.parquet import append

fs = RollingFileSystem("file", sync=False, header_cache_s=0)
for nth in range(int(sys.argv[3])):
    append(fs, sys.argv[1], pa.table({"writer": [int(sys.argv[2])] * 3, "n": [nth] * 3}))
"""


@pytest.fixture
def fs() -> RollingFileSystem:
    return RollingFileSystem("file", sync=False, header_cache_s=0, policy=RollingPolicy(max_bytes=3000))


def rows(fs: RollingFileSystem, path: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(fs.cat_file(str(path)))).to_pylist()
    return found


def test_every_reader_sees_one_file_after_each_append(fs, tmp_path):
    path, known = str(tmp_path / "t.parquet"), []
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


@pytest.mark.parametrize("kind", ["pandas", "polars", "mapping"])
def test_frames_are_taken_as_tables_are(fs, tmp_path, kind):
    columns = {"n": [1, 2], "s": ["a", None]}
    make: Any = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "mapping": dict}[kind]
    for _ in range(2):
        append(fs, str(tmp_path / "t"), make(columns))
    append(fs, str(tmp_path / "t"), make({"n": [3], "s": [None]}))  # nulls alone tell no type
    assert rows(fs, tmp_path / "t") == [{"n": 1, "s": "a"}, {"n": 2, "s": None}] * 2 + [{"n": 3, "s": None}]


def test_columns_are_told_by_name_and_new_ones_are_null_in_the_rows_that_were_there(fs, tmp_path):
    path = str(tmp_path / "t")
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


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"n": ["x"]}, r"column 'n' is string, but int64 in the file; nothing was written"),
        ({"s": ["x"]}, "'n' is missing among s; nothing was written"),
    ],
)
def test_a_table_of_other_columns_is_refused_and_nothing_is_written(fs, tmp_path, table, message):
    path = str(tmp_path / "t")
    append(fs, path, {"n": [1]})
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


def test_a_table_without_rows_makes_an_empty_file_and_adds_nothing_to_another(fs, tmp_path):
    path, none = str(tmp_path / "t"), pa.table({"n": pa.array([], pa.int64())})
    fs.create(path)
    append(fs, path, none)
    assert rows(fs, path) == []
    append(fs, path, {"n": [1]})
    length = fs.segment(path).length
    assert append(fs, path, none) == length == fs.segment(path).length
    assert rows(fs, path) == [{"n": 1}]


def test_a_plain_file_grows_and_a_file_whose_head_is_elsewhere_in_chunks_too(fs, tmp_path):
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"n": list(range(5000))}), path)
    for _ in range(2):
        append(fs, str(path), {"n": [7]})
    assert [row["n"] for row in rows(fs, path)] == [*range(5000), 7, 7]


def test_an_append_that_loses_a_race_is_repeated_on_what_is_there_then(fs, tmp_path, monkeypatch):
    path, other = str(tmp_path / "t"), RollingFileSystem("file", sync=False, header_cache_s=0)
    grown, losses = grow._grown, iter(range(3))

    def late(*given: Any) -> list[Any]:
        data = grown(*given)
        nth = next(losses, None)
        if nth is not None:
            monkeypatch.setattr(grow, "_grown", grown)
            if nth == 1:
                other.rm_file(path)
            append(other, path, {"n": [100 + nth]})
            monkeypatch.setattr(grow, "_grown", late)
        return data

    monkeypatch.setattr(grow, "_grown", late)
    append(fs, path, {"n": [1]})
    assert [row["n"] for row in rows(fs, path)] == [101, 102, 1]
    monkeypatch.setattr(grow, "GROWTHS_MAX", 2)
    monkeypatch.setattr(grow, "_create", lambda *given: (_ for _ in ()).throw(BadOffsetError("late")))
    with pytest.raises(BadOffsetError, match=r"before each of 2 tries; nothing was written\. Try again"):
        append(fs, str(tmp_path / "new"), {"n": [1]})


def test_rows_that_come_between_the_look_and_the_read_of_the_footer_stay(fs, tmp_path, monkeypatch):
    path, other = str(tmp_path / "t"), RollingFileSystem("file", sync=False, header_cache_s=0)
    append(fs, path, {"n": [0]})
    footer_of = grow.files.footer_of

    def after_another(*given: Any) -> bytes:
        monkeypatch.setattr(grow.files, "footer_of", footer_of)
        append(other, path, {"n": [1]})
        return footer_of(*given)

    monkeypatch.setattr(grow.files, "footer_of", after_another)
    append(fs, path, {"n": [2]})
    assert [row["n"] for row in rows(fs, path)] == [0, 1, 2]


def test_many_processes_append_to_one_file(fs, tmp_path):
    path = str(tmp_path / "t")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(nth), str(APPENDS)], cwd=Path(__file__).parents[2])
        for nth in range(PROCESSES)
    ]
    assert [writer.wait() for writer in writers] == [0] * PROCESSES
    found = rows(fs, path)
    assert len(found) == PROCESSES * APPENDS * 3
    for writer in range(PROCESSES):
        assert [row["n"] for row in found if row["writer"] == writer] == [n for n in range(APPENDS) for _ in range(3)]
