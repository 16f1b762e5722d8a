"""Heads of whole files: Parquet goes by row group, other formats stay or go whole; text goes by byte."""

import contextlib
import io
import itertools
import zipfile
from collections.abc import Callable
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

from rollingfs import RetentionPolicy, RollingFileSystem, RollingPolicy
from rollingfs.errors import BadOffsetError, RollingError, WholeFileError
from rollingfs.fs.core import core
from rollingfs.parquet import append, rewrite, truncate
from rollingfs.segment.at import At
from rollingfs.stream.upkeep import Upkeep
from tests.support.backends import Scripted, private_memory
from tests.support.cli import done, failed
from tests.support.examples import slowly
from tests.support.life import Turned

KINDS = [{}, {"max_bytes": 100, "inline_bytes": 0}, {"max_bytes": 1000}]


@pytest.fixture(params=KINDS, ids=["inline", "small chunks", "chunks"])
def fs(request: Any) -> RollingFileSystem:
    return RollingFileSystem(backend=private_memory(), **request.param)


def numbers(fs: RollingFileSystem, path: str) -> list[int]:
    data = fs.cat_file(path)
    assert data.startswith(b"PAR1"), "some readers look for the magic at the beginning"
    found = pq.read_table(io.BytesIO(data))["n"].to_pylist()
    assert polars.read_parquet(data)["n"].to_list() == found
    assert pandas.read_parquet(io.BytesIO(data))["n"].tolist() == found
    database = duckdb.connect()
    database.register_filesystem(fs)
    assert [n for (n,) in database.sql(f"select n from read_parquet('rolling://{path}')").fetchall()] == found
    return found


def grown(fs: RollingFileSystem, path: str, count: int, first: int = 0) -> list[int]:
    """A file of as many appends; returns where each begins, and the end."""
    numbers = range(first, first + count)
    return [append(fs, path, {"n": [n, n]}, compression="none") for n in numbers] + [fs.info(path)["size"]]


def test_row_groups_before_an_offset_go(fs):
    at = grown(fs, "/t", 6)
    start = fs.segment("/t").start
    assert truncate(fs, "/t", at[2]) == fs.segment("/t").start - start > 0
    assert numbers(fs, "/t") == [2, 2, 3, 3, 4, 4, 5, 5]
    assert truncate(fs, "/t", at[2] + 9) == truncate(fs, "/t", 0) == 0
    append(fs, "/t", {"n": [6], "s": ["new"]})
    assert truncate(fs, "/t", at[4]) > 0, "nulls of a column that came later do not keep a row group"
    assert numbers(fs, "/t") == [4, 4, 5, 5, 6]
    rewrite(fs, "/t", row_group_size=1)
    assert rewrite(fs, "/t") == 0, "the magics between row groups are no waste"
    footer = pq.read_metadata(io.BytesIO(fs.cat_file("/t")))
    begins = fs.segment("/t").start + footer.row_group(3).column(0).data_page_offset - 100
    length = fs.segment("/t").length
    truncate(fs, "/t", begins + 90)
    assert numbers(fs, "/t") == [5, 5, 6][-len(numbers(fs, "/t")) :]
    assert fs.segment("/t").length - length < 2000, "no row was written anew"
    truncate(fs, "/t", fs.segment("/t").length)
    with pytest.raises(BadOffsetError):
        truncate(fs, "/t", 2**60)
    assert numbers(fs, "/t") == []
    append(fs, "/t", {"n": [7], "s": ["again"]})
    assert numbers(fs, "/t") == [7]


@pytest.mark.parametrize("is_worn", [True, *slowly(False)])
def test_row_groups_that_another_program_wrote_are_copied(fs, is_worn):
    """No magic stands before them, and many footers behind them would look as whole files do."""
    data = io.BytesIO()
    pq.write_table(pa.table({"n": range(40)} | {f"{nth}": range(40) for nth in range(20)}), data, row_group_size=1)
    fs.pipe_file("/t", data.getvalue())
    for first in (10, 20, 30):
        footer = pq.read_metadata(io.BytesIO(fs.cat_file("/t")))
        group = footer.row_group(footer.num_row_groups - (40 - first)).column(0)
        truncate(fs, "/t", fs.segment("/t").start + group.dictionary_page_offset)
        assert pq.read_table(io.BytesIO(fs.cat_file("/t")))["n"].to_pylist() == [*range(first, 40)]
    if is_worn:
        append(fs, "/t", pq.read_table(io.BytesIO(fs.cat_file("/t"))).slice(0, 1))
    assert fs.cat_file("/t").startswith(b"PAR1")


def replace(fs: RollingFileSystem, at: list[int], _: int) -> None:
    """Make another file of the very length: only its incarnation tells."""
    fs.rm("/t")
    assert grown(fs, "/t", 4, first=4) == at


ACTS: dict[str, Callable[[RollingFileSystem, list[int], int], object]] = {
    "append": lambda fs, _, n: append(fs, "/t", {"n": [n]}),
    "rewrite": lambda fs, _at, _n: rewrite(fs, "/t"),
    "truncate": lambda fs, at, n: truncate(fs, "/t", at[n - 6]),
    "truncate all": lambda fs, _at, _n: fs.truncate("/t", fs.segment("/t").length),
    "replace": replace,
}


def after(*acts: tuple[str, int], beside: str = "append", skips: int | None = None) -> tuple[list[int], bool]:
    """The rows after some acts, and whether another client has acted before one of their calls."""
    store = Scripted(private_memory())
    fs, other = (RollingFileSystem(backend=one, max_bytes=500, inline_bytes=0) for one in (store, store.inner))
    at = grown(other, "/t", 4)
    if skips is not None:
        store.plan(before=lambda: ACTS[beside](other, at, 9), skips=skips)
    for act, n in acts:
        with contextlib.suppress(*[RollingError, FileNotFoundError][: 2 * (act != "append")]):
            ACTS[act](fs, at, n)
    data = other.cat_file("/t")
    return pq.read_table(io.BytesIO(data))["n"].to_pylist() if data else [], not store.plans


@pytest.mark.parametrize("beside", ACTS)
@pytest.mark.parametrize("verb", ["append", "rewrite", "truncate"])
def test_a_write_beside_another_is_there_once(verb, beside):
    """At each call, the rows are those of one after the other; a cut or a rewrite may also be too late."""
    mine, its = (verb, 8), (beside, 9)
    expected = [after(*acts)[0] for acts in ([mine, its], [its, mine], *[[its]] * (verb != "append"))]
    for nth in itertools.count():
        rest, is_met = after(mine, beside=beside, skips=nth)
        if not is_met:
            break
        assert rest in expected, nth
    assert nth > 5


def made_zip() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a", bytes(3000))
    return data.getvalue()


@pytest.mark.parametrize("policy", [{"keep_bytes": 900}, {"keep_age": 50}, {"max_bytes": 900, "min_bytes": 0}])
@pytest.mark.parametrize("by", ["retain", "upkeep"])
def test_retention_leaves_files_that_can_be_read(policy, by):
    clock, store = Turned(), Scripted(private_memory())
    fs = RollingFileSystem(backend=store)
    core(fs).client = At.of(store, RollingPolicy(max_bytes=500, inline_bytes=0), clock=clock)
    stream, zipped = fs.stream("/s"), made_zip()
    fs.pipe_file("/s/zip", zipped)
    append(fs, "/s/sealed", {"n": [0]})
    fs.seal("/s/sealed")
    fs.create("/s/log")
    grown(fs, "/s/t", 1)
    stream.retention = RetentionPolicy(**policy, every=0)
    for n in range(1, 8):
        clock.now_s += 10
        append(fs, "/s/t", {"n": [n, n]}, compression="none")
        fs.append("/s/log", b"%d\n" % n * 50)
        if by == "upkeep":
            upkeep = Upkeep(core(fs).client)
            [did] = core(fs).run(upkeep.keep(core(fs).run(upkeep.folders("/s"))[0]))
            assert not did.failed
        else:
            expected, did = stream.retain(dry_run=True), stream.retain()
            assert (expected.bytes, expected.left, expected.deleted) == (did.bytes, did.left, did.deleted)
        rest = numbers(fs, "/s/t")
        newest = [k for k in range(n, -1, -1) for _ in "nn"]
        assert rest[::-1] == newest[: len(rest)], "the newest stay"
        assert not fs.exists("/s/zip") or fs.cat_file("/s/zip") in (zipped, b"")
    assert 0 not in rest
    assert not fs.exists("/s/sealed"), "it went as a whole"


def test_a_whole_file_stays_unless_cut_as_bytes(tmp_path):
    fs, zipped = RollingFileSystem("file"), made_zip()
    for name, data in (("a.zip", zipped), ("b.parquet", None), ("text", b"line\n" * 1000)):
        fs.pipe_file(f"{tmp_path}/{name}", data) if data else grown(fs, f"{tmp_path}/{name}", 3)
    stream = fs.stream(str(tmp_path))
    cut = stream.cut()
    half = {path: offset // 2 for path, offset in cut.items()}
    half = type(cut)(half, cut.at, cut.size, cut.incarnations)
    for name, kind in (("a.zip", "zip"), ("b.parquet", "Parquet")):
        path, before = f"{tmp_path}/{name}", fs.cat_file(f"{tmp_path}/{name}")
        for erase in (False, True):
            with pytest.raises(WholeFileError, match=f"is a {kind} file.*nothing was dropped.*as_bytes=True"):
                fs.truncate(path, 300, erase=erase)
        assert "--as-bytes" in failed("truncate", path, 300)
        assert fs.cat_file(path) == before
    for did in (stream.trim(half, dry_run=True), stream.trim(half)):
        assert (list(did.left), did.failed) == ([f"{tmp_path}/a.zip"], {})
    assert fs.cat_file(f"{tmp_path}/a.zip") == zipped
    assert numbers(fs, f"{tmp_path}/b.parquet")[-1] == 2
    assert fs.info(f"{tmp_path}/text")["size"] == 2500
    told = done("trim", tmp_path, str(half), "--json")
    assert list(told.json["left"]) == [f"{tmp_path}/a.zip"]
    done("trim", tmp_path, str(half), "--as-bytes")
    assert fs.info(f"{tmp_path}/a.zip")["size"] == len(zipped) - len(zipped) // 2
    start = fs.segment(f"{tmp_path}/b.parquet").start
    done("truncate", f"{tmp_path}/b.parquet", start + 5, "--as-bytes")
    assert fs.segment(f"{tmp_path}/b.parquet").start == start + 5
    fs.truncate(f"{tmp_path}/a.zip", len(zipped))  # all of it


def test_a_cut_by_byte_cuts_the_newest_segment():
    zipped = made_zip()  # it has a date
    store, datas = Scripted(private_memory()), iter([b"a" * 100, zipped])
    fs, other = (RollingFileSystem(backend=one) for one in (store, store.inner))
    fs.pipe_file("/t", b"x" * 100)
    store.plan("replace", "/t$header", before=lambda: other.pipe_file("/t", next(datas)))
    fs.truncate("/t", 40)
    assert fs.cat_file("/t") == b"a" * 60
    store.plan("replace", "/t$header", before=lambda: other.pipe_file("/t", next(datas)))
    with pytest.raises(WholeFileError):
        fs.truncate("/t", 70)
    assert fs.cat_file("/t") == zipped


def test_sealed_and_other_files_lose_no_row_group(fs):
    at = grown(fs, "/sealed", 2)
    fs.seal("/sealed")
    fs.pipe_file("/text", b"text")
    fs.pipe_file("/several", fs.cat_file("/sealed")[: at[1]] * 2000)
    for path, why in (("/sealed", "sealed"), ("/text", "does not end as"), ("/several", "several whole")):
        offset = min(at[1], fs.info(path)["size"])
        before = fs.cat_file(path)
        with pytest.raises(WholeFileError, match=f"{why}.*nothing was dropped"):
            truncate(fs, path, offset)
        assert fs.cat_file(path) == before
    with pytest.raises(FileNotFoundError):
        truncate(fs, "/missing", 1)
