"""`concat` refuses formats that do not join, by every face, and changes nothing; `as_bytes` joins them."""

import bz2
import contextlib
import io
import json
import random
import tarfile
from functools import partial
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.errors import WholeFileError
from rollingfs.parquet_footer.thrift import MalformedFooterError
from rollingfs.segment.verbs import concat as concats
from tests.support.backends import Scripted, private_memory
from tests.support.cli import done, failed
from tests.support.servers import require_module
from tests.support.spark import parquet_file

require_module("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from rollingfs.parquet import append

PARQUET = parquet_file(pa.table({"a": [1, 2, 3]}))
TEXT = b"line\n"


@pytest.fixture(params=[None, RollingPolicy(max_bytes=100, inline_bytes=0)], ids=["inline", "chunks"])
def folder(request: Any, tmp_path: Any) -> tuple[RollingFileSystem, str]:
    fs, root = RollingFileSystem("file", sync=False), str(tmp_path)
    for name, data in (("a", PARQUET), ("b", PARQUET), ("text", TEXT)):
        fs.create(f"{root}/{name}", request.param)
        fs.append(f"{root}/{name}", data)
        fs.seal(f"{root}/{name}")
    fs.create(f"{root}/all", request.param)
    return fs, root


@pytest.mark.parametrize("index", range(4))
def test_a_changed_source_is_looked_at_again(index: int) -> None:
    store = Scripted(private_memory())
    fs, other = (RollingFileSystem(backend=one, max_bytes=10, inline_bytes=0) for one in (store, store.inner))
    for name in ("/all", "/erased", "/replaced"):
        other.create(name)
    for source, act in (
        ("/erased", partial(other.truncate, "/erased", 15, erase=True)),
        ("/replaced", lambda: (other.overwrite("/replaced", b"new"), other.seal("/replaced"))),
    ):
        other.append(source, TEXT * 4)
        other.seal(source)
        store.plan(before=act, skips=index)
        fs.concat("/all", [source])
    assert fs.cat_file("/all").endswith((TEXT + b"new", TEXT * 4 + b"new"))


@pytest.mark.parametrize("was_sealed", [False, True])
def test_no_old_header_refuses_a_source(was_sealed: bool) -> None:
    store = private_memory()
    fs, other = RollingFileSystem(backend=store, header_cache_s=60), RollingFileSystem(backend=store)
    other.create("/all")
    other.create("/log")
    other.append("/log", PARQUET)
    if was_sealed:
        other.seal("/log")
    assert fs.cat_file("/log") == PARQUET
    fs.append("/all", TEXT)
    other.overwrite("/log", TEXT)
    other.seal("/log")
    assert fs.concat("/all", ["/log"]) == len(TEXT)


@pytest.mark.parametrize("before", [b"rows\n", PARQUET, b""])
def test_a_target_that_changes_is_looked_at_again(before: bytes) -> None:
    store = Scripted(private_memory())
    fs, other = (RollingFileSystem(backend=one, max_bytes=10, inline_bytes=0) for one in (store, store.inner))
    for index in range(20):
        fs.overwrite("/all", before)
        fs.overwrite("/part", b"more\n")
        fs.seal("/part")
        after = TEXT if before == PARQUET else PARQUET
        store.plan(before=lambda content=after: other.overwrite("/all", content), skips=index)
        with contextlib.suppress(WholeFileError):
            fs.concat("/all", ["/part"])
        store.plans.clear()
        found = fs.cat_file("/all")
        assert found in (before, after) or (found.endswith(b"more\n") and not found.startswith(PARQUET)), index
        assert found.endswith(b"more\n") != fs.exists("/part") or found == after


def test_truncate_finds_a_tar_in_a_long_block(folder: Any) -> None:
    fs, root = folder
    sink, member = io.BytesIO(), tarfile.TarInfo("x")
    member.size = 50_000
    with tarfile.open(fileobj=sink, mode="w") as archive:
        archive.addfile(member, io.BytesIO(random.Random(0).randbytes(member.size)))
    fs.append(f"{root}/all", bz2.compress(sink.getvalue()))
    with pytest.raises(WholeFileError, match="is a compressed tar file"):
        fs.truncate(f"{root}/all", 9)
    fs.truncate(f"{root}/all", 9, as_bytes=True)


def test_newline_ends_the_lines_of_parts(folder: Any) -> None:
    fs, root = folder
    for name, data in (("x", b"1,2"), ("y", b"3,4\n"), ("z", b"5,6")):
        fs.pipe_file(f"{root}/{name}", data)
        fs.seal(f"{root}/{name}")
    fs.append(f"{root}/all", b"a\nb")
    with pytest.raises(WholeFileError, match=r"is text without a line feed at its end.*newline=True"):
        fs.concat(f"{root}/all", [f"{root}/x"])
    assert fs.info(f"{root}/x")["type"] == "file"
    with pytest.raises(ValueError, match="newline=True goes with neither"):
        fs.concat(f"{root}/all", [f"{root}/x"], as_bytes=True, newline=True)
    assert fs.concat(f"{root}/all", [f"{root}/x", f"{root}/y"], newline=True) == len(b"a\nb\n")
    done("concat", "--newline", f"{root}/all", f"{root}/z")
    assert fs.cat_file(f"{root}/all") == b"a\nb\n1,2\n3,4\n5,6"


def test_the_command_refuses_and_leaves_no_target(folder: Any) -> None:
    fs, root = folder
    new, sources = f"{root}/new", (f"{root}/a", f"{root}/b")
    assert "is a Parquet file" in (text := failed("concat", "--create", new, *sources))
    assert "--as-bytes" in text
    assert not fs.exists(new)
    done("concat", "--create", "--as-bytes", new, *sources)
    assert fs.cat_file(new) == 2 * PARQUET


# -- as one Parquet file -----------------------------------------------------------------------------------------


def table(numbers: list[int]) -> pa.Table:
    return pa.table({"a": numbers, "s": [str(nth) for nth in numbers]})


def sealed(fs: RollingFileSystem, path: str, content: pa.Table, **options: Any) -> str:
    fs.pipe_file(path, parquet_file(content, **options))
    fs.seal(path)
    return path


def numbers(fs: RollingFileSystem, path: str) -> list[int]:
    return pq.read_table(path, filesystem=fs)["a"].to_pylist()


def test_sealed_parquet_files_join_without_copied_row_groups(folder: Any) -> None:
    fs, root = folder
    parts = [table([*range(9 * nth, 9 * nth + 9)]) for nth in range(3)]
    sources = [sealed(fs, f"{root}/p{nth}", part, row_group_size=4) for nth, part in enumerate(parts)]
    old = [fs.cat_file(path) for path in sources]
    assert fs.concat(f"{root}/all", sources[:2], as_format="parquet") == 0
    assert numbers(fs, f"{root}/all") == [*range(18)]
    data = fs.cat_file(f"{root}/all")
    assert data.startswith(old[0] + old[1])
    sealed(fs, f"{root}/more", table([27]))
    length = fs.segment(f"{root}/all").length
    assert done("concat", "--as-format", "parquet", f"{root}/all", sources[2], f"{root}/more")
    assert numbers(fs, f"{root}/all") == [*range(28)]
    assert fs.cat_file(f"{root}/all").startswith(data + old[2])
    assert pq.ParquetFile(io.BytesIO(fs.cat_file(f"{root}/all"))).num_row_groups == 10
    assert length == len(data)
    assert not any(map(fs.exists, sources))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("text", None, "does not end as a Parquet file does; nothing was joined"),
        ("other", pa.table({"a": ["x", "y"]}), "their columns are not those of the file.*; nothing was joined"),
        ("odd", PARQUET[:-40] + b"\xff" * 32 + PARQUET[-8:], "a value of the unknown type 15; nothing was joined"),
        ("cut", pa.table({"a": list(range(5000))}), "its head was truncated"),
    ],
)
def test_unfitting_sources_are_refused_by_name_and_stay_sealed(folder: Any, name: str, data: Any, message: str):
    fs, root = folder
    if data is not None:
        fs.pipe_file(f"{root}/{name}", parquet_file(data) if isinstance(data, pa.Table) else data)
        fs.seal(f"{root}/{name}")
    if name == "cut":
        fs.truncate(f"{root}/cut", 1000, as_bytes=True)
    with pytest.raises(MalformedFooterError, match=f"^{root}/{name}: it cannot be joined as Parquet: .*{message}"):
        fs.concat(f"{root}/all", [f"{root}/a", f"{root}/{name}"], as_format="parquet")
    assert fs.info(f"{root}/all")["size"] == 0
    assert all(fs.segment(f"{root}/{one}").state == "sealed" for one in ("a", name))
    for options in ({"as_format": "orc"}, {"as_format": "parquet", "as_bytes": True}):
        with pytest.raises(ValueError, match="it must be 'parquet' or 'arrow-stream', and without as_bytes"):
            fs.concat(f"{root}/all", [f"{root}/a"], **options)


def test_target_rows_before_the_commit_are_in_the_footer(folder: Any, monkeypatch: Any) -> None:
    fs, root = folder
    fs.append(f"{root}/all", parquet_file(table([0])))
    sources = [sealed(fs, f"{root}/p{nth}", table([nth])) for nth in (1, 2)]
    real = concats.one_footer

    async def beaten(*given: Any) -> bytes:
        found = await real(*given)
        monkeypatch.setattr(concats, "one_footer", real)
        other = RollingFileSystem("file", header_cache_s=0, skip_instance_cache=True)
        append(other, f"{root}/all", {"a": [10], "s": ["x"]})
        return found

    monkeypatch.setattr(concats, "one_footer", beaten)
    fs.concat(f"{root}/all", sources, as_format="parquet")
    assert numbers(fs, f"{root}/all") == [0, 10, 1, 2]


def test_target_replaced_before_its_footer_read_is_read_again() -> None:
    store = Scripted(private_memory())
    fs, other = (RollingFileSystem(backend=one, inline_bytes=0) for one in (store, store.inner))
    other.pipe_file("/all", parquet_file(table([0])))
    sealed(other, "/p", table([1]))
    for act in (
        lambda: append(other, "/all", {"a": [5], "s": ["5"]}),
        lambda: other.pipe_file("/all", parquet_file(table([10]))),
    ):
        store.plan("read_range", lambda path: path.startswith("/all$chunks"), before=act)
    fs.concat("/all", ["/p"], as_format="parquet")
    assert not store.plans
    assert numbers(fs, "/all") == [10, 1]


def test_many_sources_join_in_valid_files_or_not(folder: Any, monkeypatch: Any) -> None:
    fs, root = folder
    monkeypatch.setattr(concats, "MARKS_MAX", 2)
    sources = [sealed(fs, f"{root}/p{nth}", table([nth])) for nth in range(5)]
    other = sealed(fs, f"{root}/other", pa.table({"b": [1]}))
    with pytest.raises(MalformedFooterError, match="other"):
        fs.concat(f"{root}/all", [*sources, other], as_format="parquet")
    assert fs.info(f"{root}/all")["size"] == 0
    assert all(map(fs.exists, [*sources, other]))
    fs.concat(f"{root}/all", sources, as_format="parquet")
    assert numbers(fs, f"{root}/all") == [*range(5)]


def test_joined_files_lose_page_indexes_with_old_offsets() -> None:
    fs, root = RollingFileSystem("memory"), "/paged"
    tables = [pa.table({"n": list(range(part * 5000, part * 5000 + 5000))}) for part in range(3)]
    paged = {"write_page_index": True, "data_page_size": 1024, "use_dictionary": False}
    sources = [sealed(fs, f"{root}/{nth}", table, **paged) for nth, table in enumerate(tables)]
    assert pq.read_metadata(io.BytesIO(fs.cat_file(sources[0]))).row_group(0).column(0).has_offset_index
    fs.create(f"{root}/all")
    fs.concat(f"{root}/all", sources, as_format="parquet")
    data = io.BytesIO(fs.cat_file(f"{root}/all"))
    metadata = pq.read_metadata(data)
    columns = [metadata.row_group(nth).column(0) for nth in range(3)]
    assert [(one.has_offset_index, one.has_column_index) for one in columns] == [(True, True), *[(False, False)] * 2]
    assert pq.read_table(data).equals(pa.concat_tables(tables))
    for low in (100, 7000, 14995):
        found = pq.read_table(data, filters=[("n", ">=", low), ("n", "<", low + 5)])
        assert found["n"].to_pylist() == list(range(low, low + 5))


def geometries(numbers: list[int], **more: Any) -> pa.Table:
    """Rows as GeoParquet, whose bounds are the numbers."""
    column = {"encoding": "WKB", "geometry_types": ["Point"], "bbox": [min(numbers), 0.5, max(numbers), 1e2], **more}
    document = {"version": "1.1.0", "primary_column": "g", "columns": {"g": column}}
    rows = pa.table({"a": numbers, "g": [b"%d" % number for number in numbers]})
    return rows.replace_schema_metadata({"geo": json.dumps(document)})


def geometry(fs: RollingFileSystem, path: str) -> Any:
    """What Arrow knows of the geometries, from its own schema in the footer or from the footer itself."""
    with fs.open(path) as file:
        mine, footer = pq.read_schema(file).metadata, pq.read_metadata(file).metadata
    documents = [json.loads(found[b"geo"])["columns"]["g"] for found in (mine, footer)]
    assert documents[0] == documents[1]
    return documents[0]


@pytest.mark.parametrize(
    "crs", [{}, {"crs": None}, {"crs": {"bbox": {"south": 1}, "id": {"authority": "A", "code": 1}}}]
)
def test_joined_geometries_lose_the_bounds_of_the_first(folder: Any, crs: Any) -> None:
    fs, root = folder
    sources = [sealed(fs, f"{root}/p{nth}", geometries([nth, nth + 1], **crs)) for nth in range(2)]
    assert geometry(fs, sources[0])["bbox"] == [0, 0.5, 1, 100]
    fs.concat(f"{root}/all", sources, as_format="parquet")
    assert geometry(fs, f"{root}/all") == {"encoding": "WKB", "geometry_types": [], **crs}
    fs.pipe_file(f"{root}/grown", parquet_file(geometries([1], **crs)))
    append(fs, f"{root}/grown", geometries([7], **crs))
    assert geometry(fs, f"{root}/grown") == {"encoding": "WKB", "geometry_types": [], **crs}
    assert numbers(fs, f"{root}/grown") == [1, 7]


def test_geometries_of_other_reference_systems_are_refused_by_name(folder: Any) -> None:
    fs, root = folder
    crs84 = {"name": "longitude and latitude", "id": {"authority": "OGC", "code": "CRS84"}}
    same = [sealed(fs, f"{root}/{nth}", geometries([nth], **more)) for nth, more in enumerate([{}, {"crs": crs84}])]
    fs.concat(f"{root}/all", same, as_format="parquet")
    other = sealed(fs, f"{root}/other", geometries([3], crs={"id": {"authority": "EPSG", "code": 3857}}))
    with pytest.raises(
        MalformedFooterError, match=r"/other: .*the crs of their geometries 'g' is .*3857.*nothing was joined"
    ):
        fs.concat(f"{root}/all", [other], as_format="parquet")
    with pytest.raises(MalformedFooterError, match=r"/all: .*the crs of .*3857.*nothing was written"):
        append(fs, f"{root}/all", geometries([3], crs={"id": {"authority": "EPSG", "code": 3857}}))
    assert fs.exists(other)
    assert numbers(fs, f"{root}/all") == [0, 1]


def geoarrow(number: int, crs: Any, name: str = "geoarrow.wkb") -> pa.Table:
    """A row of GeoArrow, whose reference system is in the metadata of its field."""
    more = {"ARROW:extension:name": name, "ARROW:extension:metadata": json.dumps({"crs": crs} if crs else {})}
    fields = pa.schema([pa.field("a", pa.int64()), pa.field("g", pa.binary(), metadata=more)])
    return pa.table({"a": [number], "g": [b"%d" % number]}, schema=fields)


A1, A2 = ({"id": {"authority": "A", "code": code}} for code in (1, 2))
OTHER_SYSTEM = "the crs of their geometries 'g' is A:2, but A:1 in the file; nothing was "


@pytest.mark.parametrize(
    ("first", "rows", "why"),
    [
        (geometries([1], crs=A1), geoarrow(7, A1), None),
        (geometries([1], crs=A1), geoarrow(7, A2), OTHER_SYSTEM),
        (geometries([1], crs=A1), geoarrow(7, A2, "other"), None),
        (geoarrow(1, A1), geometries([7], crs=A2), OTHER_SYSTEM),
        (geoarrow(1, A1), geoarrow(7, A1), None),
        (geoarrow(1, A1), geoarrow(7, "A:1"), None),
        (geoarrow(1, A1), geoarrow(7, 'PROJCRS["one"]'), None),
        (geoarrow(1, A1), geoarrow(7, None), None),
        (geoarrow(1, A1), geoarrow(7, A2), OTHER_SYSTEM),
        (geoarrow(1, A1), geoarrow(7, A1, "geoarrow.wkt"), "the encoding of their geometries 'g' is wkt, but wkb in"),
    ],
)
def test_geoarrow_of_another_reference_system_is_refused(folder: Any, first: Any, rows: Any, why: Any) -> None:
    fs, root = folder
    for name in ("grown", "joined"):
        fs.pipe_file(f"{root}/{name}", parquet_file(first))
    source = sealed(fs, f"{root}/source", rows)
    with pytest.raises(MalformedFooterError, match=why) if why else contextlib.nullcontext():
        append(fs, f"{root}/grown", rows)
    with pytest.raises(MalformedFooterError, match=why) if why else contextlib.nullcontext():
        fs.concat(f"{root}/joined", [source], as_format="parquet")
    assert [numbers(fs, f"{root}/{name}") for name in ("grown", "joined")] == [[1] if why else [1, 7]] * 2
