"""Cuts of Arrow streams, which need the schema that they begin with, and streams whose chunks move."""

import io
import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.support.servers import require_module

require_module("pyarrow")

import pyarrow as pa

import rollingfs.arrow as growing
from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.arrow import append
from rollingfs.errors import WholeFileError
from rollingfs.format.arrow_stream import END_MARK
from rollingfs.format.header import Page
from rollingfs.fs.core import core
from tests.support.backends import private_memory
from tests.support.places import tiered
from tests.support.small import shrink_pages

PATH = "/x/rows"


def stream(rows: list[int], *, columns: int = 1) -> bytes:
    table, sink = pa.table({f"n{nth or ''}": rows for nth in range(columns)}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def numbers(fs: RollingFileSystem, path: str) -> list[int]:
    """Return the rows of streams in a row, as a reader of one after the other finds them."""
    found: list[int] = []
    source = pa.BufferReader(fs.cat_file(path))
    while source.tell() < source.size():
        found += pa.ipc.open_stream(source).read_all()["n"].to_pylist()
    return found


@pytest.mark.parametrize("policy", [None, RollingPolicy(max_bytes=100, inline_bytes=0)], ids=["inline", "chunks"])
def test_streams_are_cut_where_one_begins(policy: Any) -> None:
    fs = RollingFileSystem(backend=private_memory())
    fs.create(PATH, policy)
    begins = [fs.append(PATH, stream(rows)) for rows in ([1], [2, 3], [4])]
    end = fs.segment(PATH).length
    for offset in {*range(1, end, 7), *(begin + step for begin in begins for step in (-1, 1) if begin)} - {*begins}:
        for erase in (False, True):
            with pytest.raises(WholeFileError, match=f"^{PATH} is an Arrow stream file, .* from offset {offset} on"):
                fs.truncate(PATH, offset, erase=erase)
    assert fs.segment(PATH).start == 0
    fs.truncate(PATH, begins[1])
    assert numbers(fs, PATH) == [2, 3, 4]
    fs.truncate(PATH, begins[2], erase=True)
    assert numbers(fs, PATH) == [4]
    fs.truncate(PATH, end)
    append(fs, PATH, {"n": [5]})
    assert numbers(fs, PATH) == [5]


def test_a_stream_that_grows_goes_whole() -> None:
    fs = RollingFileSystem(backend=private_memory())
    begins = [append(fs, PATH, {"n": [nth]}) for nth in range(3)]
    for offset in begins[1:]:
        with pytest.raises(WholeFileError, match="a cut where a stream begins is allowed"):
            fs.truncate(PATH, offset)
    cut = fs.stream("/x").cut()
    append(fs, PATH, {"n": [3]})
    did = fs.stream("/x").trim(cut)
    assert (list(did.left), did.bytes) == ([PATH], 0)
    assert numbers(fs, PATH) == [0, 1, 2, 3]
    fs.truncate(PATH, begins[1], as_bytes=True)
    fs.truncate(PATH, begins[1] + 1)  # nothing is left to keep whole


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<8i", -1, 8, 16, *range(5)),
        stream([1])[len(stream([])) - len(END_MARK) :],
        stream([1])[:-20],
        b"\xff\xff\xff",
    ],
    ids=["numbers", "rows", "torn", "short"],
)
def test_other_bytes_are_cut_by_byte(data: bytes) -> None:
    fs = RollingFileSystem(backend=private_memory())
    fs.pipe_file(PATH, data)
    fs.truncate(PATH, 2)
    assert fs.cat_file(PATH) == data[2:]


def test_a_schema_of_many_columns_is_found() -> None:
    fs = RollingFileSystem(backend=private_memory())
    wide = stream([1], columns=1500)
    assert wide[4:8] > b"\0\0\1\0", "longer than a block"
    offset = len(wide)
    fs.pipe_file(PATH, wide + wide)
    with pytest.raises(WholeFileError):
        fs.truncate(PATH, offset - 8)
    fs.truncate(PATH, offset)
    assert numbers(fs, PATH) == [1]


# -- chunks that move ------------------------------------------------------------------------------------------------


def offload(fs: RollingFileSystem, path: str) -> str:
    fs.offload(path, "cold", after_bytes=0)
    return path


def consolidate(fs: RollingFileSystem, path: str) -> str:
    fs.segment(path).consolidate()
    return path


def rebuild(fs: RollingFileSystem, path: str) -> str:
    MemoryFileSystem().rm_file(f"{path}$header")
    fs.rebuild(path, f"{path}-found", 0)
    return f"{path}-found"


def move(fs: RollingFileSystem, path: str) -> str:
    fs.mv(path, f"{path}-moved")
    return f"{path}-moved"


@pytest.mark.parametrize("act", [offload, consolidate, rebuild, move])
def test_a_stream_grows_after_its_chunks_moved(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[RollingFileSystem, str], str]
) -> None:
    shrink_pages(monkeypatch)
    root = f"/{uuid.uuid4().hex}"
    fs, path, target = tiered(root, inline_bytes=0), f"{root}/rows", f"{root}/all"
    for nth in range(12):
        append(fs, path, {"n": [nth]})
    assert any(isinstance(entry, Page) for entry in core(fs).run(core(fs).client.headers.view(path)).header.entries)
    path = act(fs, path)
    growing._known.clear()
    append(fs, path, {"n": [12]})
    assert numbers(fs, path) == [*range(13)]
    fs.seal(path)
    fs.concat(target, [path], as_format="arrow-stream", create=True)
    append(fs, target, {"n": [13]})
    assert pa.ipc.open_stream(fs.cat_file(target)).read_all()["n"].to_pylist() == [*range(14)]
    fs.rm(root, recursive=True)
