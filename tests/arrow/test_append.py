"""`rollingfs.arrow.append`: one stream for every reader after each commit, whoever appends."""

import io
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import require_module

for name in ("pyarrow", "pandas", "polars"):
    require_module(name)

import pandas
import polars
import pyarrow as pa

from rollingfs import RollingFileSystem
from rollingfs.arrow import MalformedStreamError, append
from rollingfs.errors import AppendOutcomeUnknown, SegmentSealedError
from rollingfs.format.arrow_stream import END_MARK, SCHEMA
from rollingfs.fs.core import core
from rollingfs.segment.files.join_looks import messages_of
from tests.support.backends import private_memory
from tests.support.faults import Fault, Faulty, Store, hurry

PATH = "/rows"
WORDS = pa.array(["a", "b"]).dictionary_encode()


@pytest.fixture
def fs() -> RollingFileSystem:
    return RollingFileSystem(backend=private_memory())


def stream(rows: Any, *, is_ended: bool = True) -> bytes:
    """Return a stream as another program writes it."""
    table, sink = pa.table(rows), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue() if is_ended else sink.getvalue().removesuffix(END_MARK)


def numbers(fs: RollingFileSystem, path: str = PATH) -> list[Any]:
    """Return the rows that a reader finds; a single schema is in the stream."""
    view = core(fs).run(core(fs).client.headers.view(path, fresh=True))
    found = core(fs).run(messages_of(core(fs).client.fetcher, view))
    assert [message.kind for message in found].count(SCHEMA) == 1
    rows: list[Any] = pa.ipc.open_stream(fs.cat_file(path)).read_all()["n"].to_pylist()
    return rows


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, dict], ids=["pandas", "polars", "mapping"])
def test_rows_of_each_library_make_one_stream(fs, make) -> None:
    for nth in range(3):
        offset = append(fs, PATH, make({"n": [nth, 10 + nth], "s": ["x", "é"]}), compression=[None, "zstd", "lz4"][nth])
        assert (offset > 0) == (nth > 0)
    append(fs, PATH, make({"s": [None], "n": [3]}))
    append(fs, PATH, make({"s": [], "n": []}) if make is dict else make({"n": [0], "s": ["y"]})[:0])
    assert numbers(fs) == [0, 10, 1, 11, 2, 12, 3]
    assert polars.read_ipc_stream(io.BytesIO(fs.cat_file(PATH)))["s"].to_list() == ["x", "é"] * 3 + [None]


def test_each_append_brings_its_dictionaries(fs) -> None:
    append(fs, PATH, {"n": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["a", "b"])})
    append(fs, PATH, {"n": pa.array([str(nth) for nth in range(300)]).dictionary_encode()})
    append(fs, PATH, pa.table({"n": pa.chunked_array([WORDS, pa.array(["c"]).dictionary_encode()])}))
    assert numbers(fs) == ["a", "b", *map(str, range(300)), "a", "b", "c"]
    found = polars.read_ipc_stream(io.BytesIO(fs.cat_file(PATH)))["n"]
    assert found.cast(polars.String).to_list() == numbers(fs)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"n": ["x"]}, "column 'n' is string, but int64 in the stream"),
        ({"m": [1]}, "their columns are not those of the stream: 'n' is missing"),
        ({"n": [1], "m": [1]}, "their columns are not those of the stream: 'm' is not in the stream"),
        ({"n": WORDS}, "column 'n' is dictionary.* but int64 in the stream"),
    ],
)
def test_another_schema_is_refused(fs, rows, message) -> None:
    append(fs, PATH, {"n": [1]})
    before = fs.cat_file(PATH)
    with pytest.raises(MalformedStreamError, match=f"^{PATH}: these rows .*: {message}.*; nothing was written"):
        append(fs, PATH, rows)
    assert fs.cat_file(PATH) == before


ENDS_LIKE_A_MARK = {"n": pa.array([-1, 0], pa.int32())}


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (b"text\n", "no Arrow message begins at offset 0"),
        (stream({"n": [1]})[-16:], "no Arrow message begins|begins without a schema"),
        (stream({"n": [1]}), "an end mark is last in it, and readers read no row after that"),
        (stream(ENDS_LIKE_A_MARK), "an end mark is last in it"),
        (stream({"n": [1]}, is_ended=False)[:-1], "is not whole"),
        (stream(pa.table([[1]], pa.schema([pa.field("n", pa.int64(), False)])), is_ended=False), "'n' has nulls"),
    ],
)
def test_other_segments_stay_as_they_are(fs, before, message) -> None:
    fs.pipe_file(PATH, before)
    with pytest.raises(MalformedStreamError, match=f"^{PATH}: these rows cannot be appended .*(?:{message})"):
        append(fs, PATH, {"n": pa.array([None], pa.int64())})
    assert fs.cat_file(PATH) == before
    fs.seal(PATH)
    with pytest.raises((SegmentSealedError, MalformedStreamError)):
        append(fs, PATH, {"n": [1]})


def test_rows_that_end_like_a_mark(fs) -> None:
    fs.pipe_file(PATH, stream(ENDS_LIKE_A_MARK, is_ended=False))
    assert fs.cat_file(PATH).endswith(END_MARK)
    append(fs, PATH, ENDS_LIKE_A_MARK)
    fs.append(PATH, stream(ENDS_LIKE_A_MARK, is_ended=False)[len(stream(pa.table(ENDS_LIKE_A_MARK)[:0])) - 8 :])
    append(fs, PATH, ENDS_LIKE_A_MARK)
    assert numbers(fs) == [-1, 0] * 4
    fs.append(PATH, END_MARK)
    with pytest.raises(MalformedStreamError, match="an end mark is last"):
        append(fs, PATH, ENDS_LIKE_A_MARK)


# -- other writers -----------------------------------------------------------------------------------------------


def others(store: Store) -> dict[str, Callable[[], object]]:
    """Return what another client does during an append."""
    other = RollingFileSystem(backend=store)
    return {
        "append": lambda: append(other, PATH, {"n": [7]}),
        "new": lambda: (other.rm_file(PATH), append(other, PATH, {"n": [7]})),
        "cut": lambda: other.truncate(PATH, other.segment(PATH).length, as_bytes=True),
        "gone": lambda: other.rm_file(PATH),
    }


@pytest.mark.parametrize("act", ["append", "new", "cut", "gone"])
@pytest.mark.parametrize("is_there", [True, False])
def test_another_client_acts_at_any_point(monkeypatch, act, is_there) -> None:
    hurry(monkeypatch)
    for index in range(8):
        store = Store()
        faulty, other = Faulty(store), RollingFileSystem(backend=store)
        fs = RollingFileSystem(backend=faulty)
        if is_there:
            append(fs, PATH, {"n": [0]})
        acts = others(store)
        faulty.prepare(between={index: acts[act] if is_there else acts["append"]})
        append(fs, PATH, {"n": [1]})
        faulty.prepare()
        found = numbers(other)
        assert found.count(1) == 1
        assert act in ("new", "cut", "gone") or not is_there or found[0] == 0
        append(fs, PATH, {"n": [2]})
        assert numbers(other) == [*found, 2]


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.LOST, Fault.LATE, Fault.CONFLICT, Fault.BUSY])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_fault_of_any_call(monkeypatch, fault, is_there) -> None:
    hurry(monkeypatch)
    for index in range(6):
        store = Store()
        faulty, other = Faulty(store), RollingFileSystem(backend=store)
        fs = RollingFileSystem(backend=faulty)
        before = [0] if is_there else []
        if is_there:
            append(other, PATH, {"n": [0]})
        faulty.prepare({index: fault})
        outcomes = [[*before, 1]]
        try:
            append(fs, PATH, {"n": [1]})
        except AppendOutcomeUnknown:
            outcomes = [before, [*before, 1]]
        except OSError:
            outcomes = [before]
        faulty.prepare()
        store.land()
        assert (numbers(other) if other.exists(PATH) else []) in outcomes, index
        append(other, PATH, {"n": [2]})
        assert numbers(other)[-1] == 2


WRITERS, APPENDS = 4, 12


def append_many(path: str, writer: int, start: Any) -> None:
    """Append by a process of its own."""
    fs = RollingFileSystem("file", header_cache_s=0)
    start.wait()
    for nth in range(APPENDS):
        append(fs, path, {"n": [100 * writer + nth], "s": [pandas.Categorical([f"{writer}"])[0]]})


@pytest.mark.slow
def test_processes_make_one_stream(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, path = context.Barrier(WRITERS), str(tmp_path / "rows")
    writers = [context.Process(target=append_many, args=(path, nth, start), daemon=True) for nth in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    found = numbers(RollingFileSystem("file"), path)
    each = [[n for n in found if n // 100 == writer] for writer in range(WRITERS)]
    assert each == [[100 * writer + nth for nth in range(APPENDS)] for writer in range(WRITERS)]
