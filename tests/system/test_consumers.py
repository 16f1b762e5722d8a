"""Tools that open segments by URL or handle: they read, write and append, before and after a truncation.

A table of 3,000 rows is spread over many chunks. A truncation must leave a whole file of the tool's format: a text cut
between two lines, or one binary file behind another.
"""

import io
from typing import Any

import fsspec
import numpy as np
import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from tests.support.places import new_folder
from tests.support.servers import require_module

for module in ("dask", "duckdb", "pandas", "polars", "pyarrow", "upath", "zarr"):
    require_module(module)

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

ROWS = 3_000
POLICY = RollingPolicy(max_bytes=4_000, inline_bytes=1_000)
FRAME = pd.DataFrame({"id": range(ROWS), "name": [f"name {index % 97}" for index in range(ROWS)]})
HEAD = pd.DataFrame({"other": ["a", "b"]})


class Place:
    """A root folder, by filesystem and by URL."""

    def __init__(self, protocol: str, options: dict[str, Any], root: str) -> None:
        self.protocol, self.root = protocol, root
        # the options that a user of URLs gives
        self.storage_options = {"rolling": {"policy": POLICY}, **({protocol: options} if options else {})}
        self.target_options = options
        # the instance that the URLs lead to: it may see commits of others a second late
        self.fs, _ = fsspec.core.url_to_fs(self.url("x"), **self.storage_options)

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def url(self, name: str) -> str:
        return f"rolling::{self.protocol}://{self.path(name)}"

    @property
    def arrow(self) -> Any:
        return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(self.fs))

    def behind_a_head(self, name: str, head: bytes, data: bytes) -> str:
        """A segment with `data` behind a `head` that is truncated away."""
        path = self.path(name)
        self.fs.create(path)
        self.fs.append(path, head)
        self.fs.append(path, data)
        self.fs.truncate(path, len(head), as_bytes=True)  # the head looks as if it belonged to the Parquet file
        assert self.fs.info(path)["start_offset"] == len(head)
        assert self.fs.info(path)["chunks"] > 2
        return path


@pytest.fixture(params=["memory", "file", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    folder = new_folder(request.param, request)
    return Place(folder.protocol, folder.target, folder.path)


def as_csv(frame: Any) -> bytes:
    return frame.to_csv(index=False).encode()


def as_parquet(frame: Any) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def assert_same(found: Any, expected: Any = FRAME) -> None:
    pd.testing.assert_frame_equal(found.reset_index(drop=True), expected.reset_index(drop=True), check_dtype=False)


# -- pandas --------------------------------------------------------------------------------------------------


def test_pandas_handles_csv_by_url_around_a_truncation(place: Place) -> None:
    url, options = place.url("table.csv"), place.storage_options
    FRAME[:1000].to_csv(url, index=False, storage_options=options)
    FRAME[1000:].to_csv(url, index=False, header=False, mode="a", storage_options=options)
    assert_same(pd.read_csv(url, storage_options=options))
    data = place.fs.cat_file(place.path("table.csv"))
    place.fs.truncate(place.path("table.csv"), data.index(b"\n2000,") + 1)
    assert_same(pd.read_csv(url, names=["id", "name"], storage_options=options), FRAME[2000:])
    FRAME[:5].to_csv(url, index=False, header=False, mode="a", storage_options=options)
    found = pd.read_csv(url, names=["id", "name"], storage_options=options)
    assert_same(found, pd.concat([FRAME[2000:], FRAME[:5]]))


# -- pyarrow -------------------------------------------------------------------------------------------------


def test_pyarrow_handles_parquet_by_handler_around_a_truncation(place: Place) -> None:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    pa.parquet.write_table(table, place.path("table.parquet"), filesystem=place.arrow, row_group_size=500)
    found = pa.parquet.read_table(place.path("table.parquet"), filesystem=place.arrow, columns=["name"])
    assert found.equals(table.select(["name"]))
    path = place.behind_a_head("cut.parquet", as_parquet(HEAD), as_parquet(FRAME))
    assert_same(pa.parquet.read_table(path, filesystem=place.arrow).to_pandas())
    assert_same(pa.parquet.read_table(path, filesystem=place.fs).to_pandas())


def test_pyarrow_writes_and_reads_a_partitioned_dataset(place: Place) -> None:
    table = pa.table({"id": range(ROWS), "part": [index % 3 for index in range(ROWS)]})
    part = pa.dataset.partitioning(pa.schema([("part", pa.int64())]), flavor="hive")
    how = {"filesystem": place.arrow, "format": "parquet", "partitioning": part}
    for _ in range(2):  # the second time, what is there is deleted first
        pa.dataset.write_dataset(table, place.path("set"), existing_data_behavior="delete_matching", **how)
    found = pa.dataset.dataset(place.path("set"), **how)
    assert found.to_table().sort_by("id").to_pydict() == table.to_pydict()
    assert found.count_rows(filter=pa.dataset.field("part") == 1) == ROWS // 3
    listed = place.arrow.get_file_info(pa.fs.FileSelector(place.path("set")))
    assert [info.base_name for info in listed] == ["part=0", "part=1", "part=2"]


def test_pyarrow_handles_ipc_streams_around_a_truncation(place: Place) -> None:
    path = place.path("table.arrows")
    batches = pa.Table.from_pandas(FRAME, preserve_index=False).to_batches(max_chunksize=500)
    offsets = []
    for batch in batches:  # each append is a stream of its own
        with place.arrow.open_append_stream(path) as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        offsets.append(place.fs.segment(path).length)
    with place.arrow.open_input_stream(path) as source:
        assert pa.ipc.open_stream(source).read_all().equals(pa.Table.from_batches(batches[:1]))
    place.fs.truncate(path, offsets[2])
    with place.arrow.open_input_file(path) as source:
        found = []
        while source.tell() < source.size():
            found += pa.ipc.open_stream(source)
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(batches[3:]))
    with place.arrow.open_output_stream(path) as sink, pa.ipc.new_file(sink, batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)
    with place.arrow.open_input_file(path) as source:
        assert pa.ipc.open_file(source).get_batch(4).equals(batches[4])


# -- DuckDB, polars, dask ------------------------------------------------------------------------------------


def test_duckdb_handles_urls_around_a_truncation(place: Place) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.register_filesystem(place.fs)
        connection.register("frame", FRAME)
        for name in ("table.parquet", "table.csv"):
            url = f"rolling://{place.path(name)}"
            for _ in range(2):  # the second time it overwrites, by a temporary file
                connection.execute(f"COPY frame TO '{url}'")
            assert_same(connection.execute(f"SELECT * FROM '{url}' ORDER BY id").df())
        place.behind_a_head("cut/1.parquet", as_parquet(HEAD), as_parquet(FRAME))
        place.behind_a_head("cut/1.csv", as_csv(HEAD), as_csv(FRAME))
        for pattern in ("cut/*.parquet", "cut/1.csv"):
            found = connection.execute(f"SELECT * FROM 'rolling://{place.path(pattern)}' WHERE id % 7 = 3 ORDER BY id")
            assert_same(found.df(), FRAME[FRAME["id"] % 7 == 3])


def test_polars_handles_file_handles_around_a_truncation(place: Place) -> None:
    import polars as pl

    with place.fs.open(place.path("table.parquet"), "wb") as file:
        pl.from_pandas(FRAME).write_parquet(file)
    with place.fs.open(place.path("log.csv"), "wb") as file:
        pl.from_pandas(FRAME[:1000]).write_csv(file)
    with place.fs.open(place.path("log.csv"), "ab") as file:
        pl.from_pandas(FRAME[1000:]).write_csv(file, include_header=False)
    place.behind_a_head("cut.parquet", as_parquet(HEAD), as_parquet(FRAME))
    for name, read in (("table.parquet", pl.read_parquet), ("log.csv", pl.read_csv), ("cut.parquet", pl.read_parquet)):
        with place.fs.open(place.path(name), "rb") as file:
            assert_same(read(file).to_pandas())
    dataset = pa.dataset.dataset(place.path("cut.parquet"), filesystem=place.arrow)
    found = pl.scan_pyarrow_dataset(dataset).filter(pl.col("id") >= 2000).select("id").collect()
    assert found["id"].to_list() == list(range(2000, ROWS))


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index")  # dask's own use of pandas
def test_dask_handles_blocks_by_url_around_a_truncation(place: Place) -> None:
    import dask
    import dask.dataframe as dd

    options = place.storage_options
    with dask.config.set(scheduler="threads"):
        frame = dd.from_pandas(FRAME, npartitions=3)
        frame.to_csv(place.url("table.csv"), single_file=True, index=False, storage_options=options)
        assert_same(dd.read_csv(place.url("table.csv"), blocksize=5_000, storage_options=options).compute())
        frame.to_parquet(place.url("table.parquet"), write_index=False, storage_options=options)
        found = dd.read_parquet(place.url("table.parquet"), storage_options=options).compute()
        assert_same(found.sort_values("id"))
        place.behind_a_head("cut.csv", as_csv(HEAD), as_csv(FRAME))
        assert_same(dd.read_csv(place.url("cut.csv"), blocksize=5_000, storage_options=options).compute())


# -- zarr, universal_pathlib, rsync --------------------------------------------------------------------------


def test_zarr_handles_arrays_by_url_and_filesystem(place: Place) -> None:
    import zarr
    from zarr.storage import FsspecStore

    options = place.storage_options
    shape = {"shape": (50, 50), "chunks": (20, 20), "dtype": "int64"}
    array = zarr.create_array(place.url("group/a"), **shape, storage_options=options)
    array[:] = np.arange(2500).reshape(50, 50)
    array.resize((60, 50))
    array[50:] = 7
    found = zarr.open_array(place.url("group/a"), mode="r", storage_options=options)
    assert (found[:50] == np.arange(2500).reshape(50, 50)).all()
    assert (found[50:] == 7).all()
    asynchronous = RollingFileSystem(place.protocol, place.target_options, asynchronous=True)
    store = FsspecStore(asynchronous, path=place.path("group/a"), read_only=True)
    assert (zarr.open_array(store, mode="r")[40:] == found[40:]).all()


def test_rsync_brings_a_tree_to_another_place_and_back(place: Place, tmp_path: Any) -> None:
    from fsspec.generic import GenericFileSystem, rsync, set_generic_fs

    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "a").write_bytes(b"a" * 9_000)
    (source / "deep" / "b").write_bytes(b"b")
    set_generic_fs("rolling", target_protocol=place.protocol, target_options=place.target_options)
    set_generic_fs("file")
    generic = GenericFileSystem(default_method="generic", skip_instance_cache=True)
    rsync(f"file://{source}", f"rolling://{place.path('tree')}", fs=generic)
    assert place.fs.cat_file(place.path("tree/a")) == b"a" * 9_000
    place.fs.truncate(place.path("tree/a"), 1_000)
    place.fs.append(place.path("tree/deep/b"), b"more")
    rsync(f"rolling://{place.path('tree')}", f"file://{tmp_path / 'back'}", fs=generic)
    assert (tmp_path / "back/a").read_bytes() == b"a" * 8_000
    assert (tmp_path / "back/deep/b").read_bytes() == b"bmore"


# -- fsspec itself -------------------------------------------------------------------------------------------


def test_fsspec_opens_many_with_compression_text_and_prefetch(place: Place) -> None:
    from fsspec.parquet import open_parquet_file

    options = place.storage_options
    with fsspec.open(place.url("log.gz"), "wt", compression="gzip", **options) as file:
        file.write("line\n" * 1000)
    with fsspec.open(place.url("log.gz"), "rt", compression="infer", **options) as file:
        assert sum(1 for _ in file) == 1000
    path = place.behind_a_head("cut.parquet", as_parquet(HEAD), as_parquet(FRAME))
    with open_parquet_file(path, fs=place.fs, columns=["name"], engine="pyarrow") as file:
        assert_same(pd.read_parquet(file, columns=["name"]), FRAME[["name"]])
