"""A query that writes into what it reads is refused; errors of URLs are sentences; no rows leave their columns."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rollingfs import RollingFileSystem
from rollingfs.spark.source import places
from rollingfs.spark.source.datasource import RollingDataSource
from rollingfs.spark.source.plain_errors import is_sentence
from tests.support.spark_source import (
    NUMBERS,
    TEXT,
    Task,
    batch_reader,
    first_column,
    given,
    inferred,
    put,
    read,
    reader,
    rows_of,
    saved,
)


@pytest.fixture
def worker_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that tasks on this machine share."""
    folder = tmp_path / f"{places.LOCAL_PREFIX}1"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv(places.LOCAL_FOLDERS, str(folder))
    return folder


def batch(source: Any, target: str, query: str, start: Any = None, number: int = 0) -> Any:
    """A batch of a query from a source to a target, as Spark runs it; where it ends."""
    start = saved(source.initialOffset()) if start is None else start
    end = saved(source.latestOffset(start, source.getDefaultReadLimit()))
    parts = source.partitions(start, end)
    writer = RollingDataSource(given(target)).streamWriter(TEXT, False)
    with Task(0, query, number).running():
        rows = pa.record_batch({"value": pa.array(first_column(source, parts), pa.string())})
        receipts = [writer.write(iter([rows]))]
    writer.commit(receipts, number)
    return end


@pytest.mark.parametrize(
    ("place", "target", "is_loop"),
    [
        ("f", "f/out", True),
        ("f", "f/in/out", True),
        ("f/*", "f/out", True),
        ("f/s", "f/s", True),
        ("f", "f/_out", False),
        ("f/s*", "f/out", False),
        ("f/s", "f/out", False),
        ("f", "g/out", False),
    ],
)
def test_query_into_its_own_source_is_refused_before_commits(
    fs: RollingFileSystem, tmp_path: Path, worker_folder: Path, place: str, target: str, is_loop: bool
) -> None:
    put(fs, tmp_path / "f" / "s", b"one\n")
    batch(reader(tmp_path / "f"), str(tmp_path / "other"), "another query")
    before = {path: fs.cat_file(path) for path in fs.find(str(tmp_path / "f"))}
    if not is_loop:
        batch(reader(tmp_path / place), str(tmp_path / target), "query")
        assert fs.cat_file(str(tmp_path / target)) == b"one\n"
        return
    with pytest.raises(ValueError, match=rf"{target}: the query writes into this segment and reads it.*nothing of"):
        batch(reader(tmp_path / place), str(tmp_path / target), "query")
    assert {path: fs.cat_file(path) for path in fs.find(str(tmp_path / "f"))} == before


def test_query_on_separate_machines_is_refused_at_its_rows(fs, tmp_path):
    put(fs, tmp_path / "f" / "s", b"one\n")
    source = reader(tmp_path / "f")
    end = batch(source, str(tmp_path / "f" / "out"), "query")
    with pytest.raises(ValueError, match="what earlier batches have written there stays"):
        batch(source, str(tmp_path / "f" / "out"), "query", end, 1)
    batch(source, str(tmp_path / "g"), "another query", end)  # it follows the output of the first
    assert fs.cat_file(str(tmp_path / "g")) == b"one\n"


@pytest.mark.parametrize("overwrite", [False, True])
def test_write_of_no_rows_as_arrow_leaves_columns(fs, tmp_path, overwrite):
    path = tmp_path / "a"

    def write(values: list[int], *, overwrite: bool = False) -> None:
        writer = RollingDataSource(given(path, format="arrow")).writer(NUMBERS, overwrite)
        with Task().running():
            receipt = writer.write(iter([pa.record_batch({"n": pa.array(values, pa.int64())})]))
        writer.commit([receipt])

    if overwrite:
        write([1])
    write([], overwrite=overwrite)
    assert inferred(path, format="arrow").names == ["n"]
    assert rows_of(batch_reader(path, NUMBERS, format="arrow")) == []
    size = fs.size(str(path))
    write([])
    assert fs.size(str(path)) == size > 0
    write([2])
    assert rows_of(batch_reader(path, NUMBERS, format="arrow")) == [{"n": 2}]


@pytest.mark.parametrize("url", ["hdfs://name:8020/x", "nope://x/y"])
def test_a_url_that_cannot_be_opened_gets_a_sentence(url, monkeypatch):
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/nowhere")
    with pytest.raises((ValueError, ImportError)) as found:
        read(url)
    assert is_sentence(found.value)
