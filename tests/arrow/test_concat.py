"""`concat(as_format="arrow-stream")`: one stream of many, of which no row is copied."""

import io
from typing import Any

import pytest

from tests.support.servers import require_module

require_module("pyarrow")

import pyarrow as pa

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.arrow import append
from rollingfs.format.arrow_stream import END_MARK, MalformedStreamError
from rollingfs.segment.verbs import concat as concats
from tests.support.backends import Counting, private_memory

CHUNKS = RollingPolicy(max_bytes=100, inline_bytes=0)
TARGET = "/x/all"


def stream(rows: list[int], kind: Any = None, *, is_ended: bool = True, **metadata: str) -> bytes:
    table, sink = pa.table({"n": pa.array(rows, kind or pa.int32())}).replace_schema_metadata(metadata), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue() if is_ended else sink.getvalue().removesuffix(END_MARK)


def sealed(fs: RollingFileSystem, path: str, *streams: bytes, policy: RollingPolicy | None = None) -> str:
    fs.create(path, policy)
    for data in streams:
        fs.append(path, data)
    fs.seal(path)
    return path


def numbers(fs: RollingFileSystem, path: str = TARGET) -> list[int]:
    found: list[int] = pa.ipc.open_stream(fs.cat_file(path)).read_all()["n"].to_pylist()
    return found


@pytest.mark.parametrize("policy", [None, CHUNKS, RollingPolicy(max_bytes=100)], ids=["inline", "chunks", "both"])
def test_streams_become_one_that_grows(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concats, "MARKS_MAX", 3)
    store = Counting(private_memory())
    fs = RollingFileSystem(backend=store)
    sources = [
        sealed(fs, "/x/empty", stream([]), policy=policy),
        sealed(fs, "/x/two", stream([1, 2], pandas="one"), stream([3], pandas="other"), policy=policy),
        sealed(fs, "/x/open", stream([4, 5], is_ended=False), policy=policy),
        sealed(fs, "/x/like", stream([-1, 0], is_ended=False), policy=policy),
        sealed(fs, "/x/last", stream([6]), policy=policy),
    ]
    store.clear()
    assert fs.concat(TARGET, sources, as_format="arrow-stream", create=True) == 0
    if policy is CHUNKS:
        assert store.count("write") == 0
    assert numbers(fs) == [1, 2, 3, 4, 5, -1, 0, 6]
    append(fs, TARGET, {"n": pa.array([7], pa.int32())})
    sealed(fs, "/x/more", stream([8]), policy=policy)
    fs.concat(TARGET, ["/x/more"], as_format="arrow-stream")
    assert numbers(fs) == [1, 2, 3, 4, 5, -1, 0, 6, 7, 8]
    fs.segment(TARGET).consolidate()
    assert numbers(fs) == [1, 2, 3, 4, 5, -1, 0, 6, 7, 8]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"text\n", "no Arrow message begins at offset 0"),
        (stream([1], pa.int64()), "its schema is not that of /x/a"),
        (stream([1]) + stream([1], pa.int64()), "it holds streams of several schemas"),
        (stream([1])[:-20], "is not whole"),
        (stream([1])[len(stream([])) - 8 :], "begins without a schema"),
    ],
)
def test_what_does_not_fit_is_refused(data: bytes, message: str) -> None:
    fs = RollingFileSystem(backend=private_memory())
    sources = [sealed(fs, "/x/a", stream([1])), sealed(fs, "/x/b", data)]
    with pytest.raises(MalformedStreamError, match=rf"^/x/b: it cannot be joined as an Arrow stream: .*{message}"):
        fs.concat(TARGET, sources, as_format="arrow-stream", create=True)
    assert not fs.exists(TARGET)
    assert [fs.segment(path).state for path in sources] == ["sealed"] * 2
    fs.pipe_file(TARGET, stream([0]))
    with pytest.raises(MalformedStreamError, match=rf"^{TARGET}: .*an end mark is last in it"):
        fs.concat(TARGET, sources[:1], as_format="arrow-stream")


def test_no_own_file_is_named_twice() -> None:
    fs = RollingFileSystem("memory", skip_instance_cache=True)
    fs.create(TARGET, RollingPolicy(max_bytes=4096, inline_bytes=0))
    fs.append(TARGET, stream([1]) + stream([2]))
    fs.mv(TARGET, "/x/moved")
    fs.seal("/x/moved")
    with pytest.raises(MalformedStreamError, match=r"a file of its own folder holds several streams"):
        fs.concat(TARGET, ["/x/moved"], as_format="arrow-stream", create=True)
    fs.concat("/x/other", ["/x/moved"], as_format="arrow-stream", create=True)
    assert numbers(fs, "/x/other") == [1, 2]
    fs.rm("/x", recursive=True)
