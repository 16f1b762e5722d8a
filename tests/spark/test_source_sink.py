"""What the sink sends in messages, stages, routes and commits, without a Spark session: requests, crashes, refusals."""

import asyncio
import datetime
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.cloudpickle import dumps
from pyspark.sql.types import StructType

from rollingfs import RollingFileSystem, RollingPolicy, SegmentSealedError
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import AppendOutcomeUnknown, FolderOccupiedError
from rollingfs.format.header import ATTRS_MAX
from rollingfs.segment.commit.chunk_files import Staged
from rollingfs.segment.read import ends
from rollingfs.spark.source import places, segments
from rollingfs.spark.source.datasource import RollingDataSource
from rollingfs.spark.source.places import worker_folder
from rollingfs.spark.source.sink import commits
from rollingfs.spark.source.sink.commits import SegmentCommit
from rollingfs.spark.source.sink.task_writer import NAME_BYTES_MAX, task_bytes_max
from tests.support.backends import Counting, Scripted, private_memory
from tests.support.faults import CRASHES, Crashed, Fault, Faulty, Store, hurry
from tests.support.schedules import beside
from tests.support.spark_source import QUERY, Sink, Task, record_batch

ROUTED = StructType().add("device", "string").add("value", "string")
KIB = 1024
WAIT_S_MAX = 60
SEED = 20261122
OF_JOB = {"txnAppId": "job", "txnVersion": "7"}


@pytest.fixture
def store() -> Counting:
    return Counting(private_memory())


@pytest.fixture
def sink(store: Counting, monkeypatch: pytest.MonkeyPatch) -> Sink:
    return Sink(monkeypatch, store)


@pytest.fixture
def routed(store: Counting, monkeypatch: pytest.MonkeyPatch) -> Sink:
    return Sink(monkeypatch, store, ROUTED, segmentBy="device")


# -- what a message may carry ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "batch"), [(64 * KIB, 8 * KIB * KIB), (1, 1), (1000, 10), (0, 100), (7, 100_000)])
def test_task_messages_stay_within_the_batchs_bytes(task, batch):
    shares = [task_bytes_max(nth, task, batch) for nth in range(20_000)]
    assert sum(shares) <= batch
    assert max(shares) <= task
    assert shares == sorted(shares, reverse=True)


def test_default_message_sizes_fall_with_the_number_of_tasks():
    shares = [task_bytes_max(nth, 64 * KIB, 8 * KIB * KIB) for nth in range(512)]
    assert (shares[63], shares[127], shares[511]) == (64 * KIB, 16 * KIB, KIB)
    assert 62 * KIB < shares[64] < 64 * KIB


# -- requests ----------------------------------------------------------------------------------------------------


FOOTERS = ["read_range"] * 2
"""At the plan and at the commit."""


@pytest.mark.parametrize(
    ("format_", "expected"),
    [("text", [[], ["write"]]), ("parquet", [[*FOOTERS, "write"]] * 2)],  # a chunk of tail and batch, or the tail
)
def test_batch_of_200_tasks_makes_one_extra_request(store, monkeypatch, format_, expected):
    monkeypatch.setattr(ends, "WASTED_PART_MAX", 1)  # else Parquet is written anew
    sink = Sink(monkeypatch, store, format=format_)
    # another process commits; the writers of tasks need not be others
    sink.pickled = lambda one: pickle.loads(dumps(one)) if isinstance(one, RollingDataSource) else one
    chooser = random.Random(SEED)  # of bytes that do not get smaller: a batch of Parquet does not fit into the tail
    tasks = [[chooser.randbytes(16).hex() for _ in range(31)] for _ in range(200)]
    for batch in range(3):
        store.clear()
        sink.stream(batch, *tasks)
        besides = [verb for verb, path in store.calls if not path.endswith("$header")]
        if batch:  # the first makes the segment
            assert besides == expected[batch % 2]
            assert Counter(store.verbs)["replace"] == 1
            assert len(store.calls) - len(besides) <= 4
    assert sink.rows() == [row for _ in range(3) for task in tasks for row in task]
    assert len(sink.chunk_files()) == (1 if format_ == "text" else 3)


def test_few_bytes_between_staged_ones_share_one_file(sink, store):
    sink.options |= {"taskMessageBytes": "10", "inlineBytes": "0"}
    sink.fs.create("log/t", RollingPolicy(inline_bytes=0))
    writer = sink.plan()
    tasks = [["few"] if nth % 2 else ["x" * 20] for nth in range(10)]
    receipts = sink.run(writer, None, *tasks)
    store.clear()
    writer.commit(receipts)
    assert store.count("write") == 1
    assert sink.rows() == [row for [row] in tasks]


# -- the policy of a new segment ---------------------------------------------------------------------------------


def test_options_are_new_segments_policy_old_ones_keep_theirs(sink):
    sink.options |= {"maxBytes": "1MiB", "inlineBytes": "1000", "maxAge": "1h"}
    sink.fs = RollingFileSystem(backend=sink.fs._backend, max_bytes="1MiB", inline_bytes=1000, max_age="1h")
    sink.write(["a"])
    sink.stream(0, ["b"])
    assert sink.fs.segment("log/t").policy == RollingPolicy("1MiB", "1h", 1000)
    sink.options["maxBytes"] = "2MiB"
    for plan in sink.plans():
        with pytest.raises(ValueError, match=r"log/t has RollingPolicy.*maxBytes.*nothing was written"):
            plan()
    assert sink.rows() == ["a", "b"]


def test_segment_before_its_folders_policy_takes_matching_options(sink):
    sink.fs.create("log/other")
    sink.fs.set_policy("log", max_bytes="3MiB")
    RollingFileSystem(backend=sink.fs._backend, max_bytes="1MiB").create("elsewhere/t")
    sink.fs.mv("elsewhere/t", "log/t")
    for option in ("1MiB", "2MiB"):
        sink.options |= {"maxBytes": option}
        sink.write([option])
    assert sink.fs.segment("log/t").policy.max_bytes == 2**20
    assert sink.rows() == ["1MiB", "2MiB"]


# -- rows by segment ---------------------------------------------------------------------------------------------


def test_rows_go_to_segments_by_column_and_keep_order(routed):
    routed.stream(0, [("a", "1"), ("b", "2"), ("a", "3")], [("b", "4"), ("c d", "5")])
    routed.stream(1, [("b", "6")], [])
    routed.stream(2, [])
    assert routed.routed() == {"a": ["1", "3"], "b": ["2", "4", "6"], "c d": ["5"]}


@pytest.mark.parametrize("message_bytes", ["64KiB", "0"])
@pytest.mark.parametrize("format_", ["arrow", "parquet"])
def test_every_format_is_routed(store, monkeypatch, format_, message_bytes):
    schema = StructType().add("n", "long").add("day", "date").add("s", "string")
    sink = Sink(monkeypatch, store, schema, segmentBy="day", format=format_, taskMessageBytes=message_bytes)
    one, two = datetime.date(2026, 11, 21), datetime.date(2026, 11, 22)
    for batch in range(2):
        sink.stream(batch, [(1, one, "x"), (2, two, "y")], [(3, one, "z")])
    day = [{"n": 1, "s": "x"}, {"n": 3, "s": "z"}]
    assert sink.routed() == {"2026-11-21": day * 2, "2026-11-22": [{"n": 2, "s": "y"}] * 2}


def test_compressed_segments_name_in_lines_is_refused_unwritten(store, monkeypatch):
    sink = Sink(monkeypatch, store, ROUTED, segmentBy="device", taskMessageBytes="0")
    with pytest.raises(ValueError, match=r"^x\.gz: its name says .*nothing was written"):
        sink.tasks(0, [("a", "1"), ("x.gz", "2")])
    assert sink.routed() == {}
    assert sink.chunk_files("log/t/a") == []
    Sink(monkeypatch, store, ROUTED, segmentBy="device", format="parquet").write([("x.gz", "2")])
    assert sink.fs.exists("log/t/x.gz")
    sink.options["path"] = "memory://log/t.gz"  # a folder may have any name
    sink.write([("a", "1")])
    assert sink.rows("log/t.gz/a") == ["1"]


@pytest.mark.parametrize(
    ("options", "why"),
    [({"compression": "gzip"}, "rows are written as plain lines"), ({"path": "memory://log/a.gz"}, "its name says")],
)
def test_line_write_to_a_compressed_target_is_refused(sink, options, why):
    sink.options |= options
    with pytest.raises(ValueError, match=f"{why}.*nothing was written"):
        sink.write(["a"])
    assert sink.rows() == []


def test_task_stages_its_largest_segments_first(routed, store, monkeypatch):
    from rollingfs.spark.source.sink import task_writer

    routed.options["taskMessageBytes"] = "20"
    writer = routed.plan(0)
    rows = [("small", "1"), ("large", "x" * 50), ("middle", "y" * 10)]
    [receipt] = routed.run(writer, 0, rows)
    assert {name for name, _ in receipt.pieces} == {"small", "middle", "large"}
    assert [name for name, piece in receipt.pieces if isinstance(piece.data, Staged)] == ["large"]
    monkeypatch.setattr(task_writer, "HELD_BYTES_MAX", 1)  # the task stages what it holds, then goes on
    batch = record_batch(ROUTED, rows)
    with Task(0, QUERY, 0).running():
        receipt = writer.write(iter([batch, batch]))
    assert all(isinstance(piece.data, Staged) for _, piece in receipt.pieces)
    writer.commit([receipt], 0)
    assert routed.routed() == {"small": ["1"] * 2, "large": ["x" * 50] * 2, "middle": ["y" * 10] * 2}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is empty"),
        ("a/b", "it has a slash"),
        ("..", "begin with '_' or '.'"),
        ("_tmp", "begin with '_' or '.'"),
        ("a$header", "reserved"),
        ("a: b$header", r"can name no segment: '\$header' at the end"),
        ("a$chunks", "reserved"),
        ("$removed", "reserved"),
        ("$stream", "what rollingfs keeps in a folder"),
        ("$listing", "what rollingfs keeps in a folder"),
        ("a\nb", "line break"),
        ("é" * (NAME_BYTES_MAX // 2 + 1), "at most 248"),
        (None, "1 rows are null in column 'device'"),
    ],
)
def test_value_that_names_no_segment_is_refused_unwritten(routed, name, why):
    with pytest.raises(ValueError, match=why) as raised:
        routed.stream(0, [("ok", "1"), (name, "2")])
    assert "nothing was written" in str(raised.value)
    assert routed.fs.find("log/t") == []


def test_the_longest_name_can_be_written_to_a_disk(tmp_path):
    fs = RollingFileSystem("file", sync=False)
    path = f"{tmp_path}/{'é' * (NAME_BYTES_MAX // 2)}"
    fs.overwrite(path, b"x" * 10)
    assert fs.cat_file(path) == b"x" * 10


def spoiled(fs: RollingFileSystem) -> Iterator[tuple[str, Any]]:
    """Segments that take no batch, and what is said of them."""
    fs.create("log/t/sealed")
    fs.seal("log/t/sealed")
    yield "sealed", SegmentSealedError
    fs.overwrite("log/t/full", b"", attrs={f"spark/{nth}": "0" for nth in range(ATTRS_MAX)})
    yield "full", ValueError
    fs.overwrite("log/t/folder/below", b"x")
    yield "folder", FolderOccupiedError
    fs.create("log/t/other", RollingPolicy(max_bytes=10))
    yield "other", ValueError


def test_segment_that_refuses_a_batch_stops_it_unwritten(routed):
    for name, error in spoiled(routed.fs):
        routed.options |= {"maxBytes": "64MiB"} if name == "other" else {}
        with pytest.raises(error, match=r"othing was written|sealed at"):
            routed.stream(0, [("a", "1"), (name, "2"), ("zz", "3")])
        assert not routed.fs.exists("log/t/a")
        assert not routed.fs.exists("log/t/zz")


def test_partly_failed_batch_write_says_what_was_written(routed, monkeypatch):
    commit = SegmentCommit.commit

    def failing(one: SegmentCommit, *args: Any) -> None:
        if one.path.endswith("/b"):
            raise AppendOutcomeUnknown("the answer was lost")
        commit(one, *args)

    monkeypatch.setattr(SegmentCommit, "commit", failing)
    told = r"2 of 3 segments \(/log/t/a, /log/t/c\), and not, or perhaps not, to /log/t/b \(the answer was lost\); "
    with pytest.raises(OSError, match=told):
        routed.write([("a", "1"), ("b", "2"), ("c", "3")])
    assert routed.routed() == {"a": ["1"], "c": ["3"]}


@pytest.mark.parametrize("message_bytes", ["64KiB", "0"])
def test_a_write_commits_to_several_segments_at_once(monkeypatch, message_bytes):
    store = Scripted(private_memory(), suspends=True)
    sink = Sink(monkeypatch, store, ROUTED, segmentBy="device", taskMessageBytes=message_bytes)
    rows = [(f"{nth:02d}", str(nth)) for nth in range(20)]
    sink.stream(0, rows)
    second = asyncio.Event()

    async def wait() -> None:
        await asyncio.wait_for(second.wait(), WAIT_S_MAX)

    store.plan("replace", before=wait)
    store.plan("replace", before=second.set)  # it comes while the first waits, or the first fails
    sink.stream(1, rows)
    assert second.is_set()
    assert sink.routed() == {name: [value] * 2 for name, value in rows}


# -- exactly once ------------------------------------------------------------------------------------------------


BATCHES = [
    ([("a", "1"), ("b", "2")], [("a", "3" * 9)]),
    ([("b", "4"), ("c", "5")], [("c", "6")]),
    ([("a", "7" * 9), ("b", "8"), ("c", "9")],),
]
EXPECTED = {"a": ["1", "3" * 9, "7" * 9], "b": ["2", "4", "8"], "c": ["5", "6", "9"]}


def has_met(sink: Sink, index: int, fault: Fault) -> bool:
    """Run all batches; one call of the store meets a fault, and the driver starts again if that ends it."""
    store = Store()
    faulty = Faulty(store)
    faulty.prepare({index: fault})
    sink.restart(faulty)
    for number, tasks in enumerate(BATCHES):
        try:
            sink.stream(number, *tasks)
        except (Crashed, OSError):
            sink.restart(store)
            sink.stream(number, *tasks)
    sink.restart(store)
    store.land()
    return not faulty.plan


FAULTS = (*CRASHES, Fault.BEFORE, Fault.AFTER, Fault.LOST, Fault.LATE, Fault.CONFLICT)


@pytest.mark.parametrize(
    ("fault", "message_bytes", "step"),
    [
        (Fault.CRASH_AFTER, "64KiB", 7),
        *(pytest.param(fault, size, 1, marks=pytest.mark.slow) for fault in FAULTS for size in ("64KiB", "8")),
    ],
)
def test_driver_with_any_fault_writes_rows_once(monkeypatch, fault, message_bytes, step):
    hurry(monkeypatch)
    monkeypatch.setattr(commits, "COMMITS_MAX", 1)  # otherwise the requests come in any order
    sink = Sink(monkeypatch, Store(), ROUTED, segmentBy="device", taskMessageBytes=message_bytes)
    sink.pickled = lambda one: one
    index = 0
    while has_met(sink, index, fault):
        assert sink.routed() == EXPECTED
        index += step
    assert index > 30


def test_batch_is_committed_once_in_partition_order(sink):
    receipts, again = (sink.tasks(0, ["a"], ["b"]) for _ in range(2))  # a restarted driver runs the tasks again
    for of_batch in (receipts[::-1], receipts, again):
        sink.commit(of_batch, 0)
    sink.stream(1, ["c"])
    sink.stream(0, ["other"], query="r")
    assert sink.rows() == ["a", "b", "c", "other"]
    assert sink.fs.segment("log/t").attrs == {f"spark/{QUERY}": "1", "spark/r": "0"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_batch_of_an_older_checkpoint_is_refused_unwritten(sink, caplog, overwrite):
    """Its number is that of other rows, which would be lost if it counted as committed."""
    for batch in range(3):
        sink.stream(batch, [str(batch)], overwrite=overwrite)
    before = sink.rows()
    writer = sink.plan(1, overwrite)
    receipts = sink.run(writer, 1, ["1", "2", "new"])
    with pytest.raises(ValueError, match=r"has batch 2 of the query already, and this is batch 1: an older copy"):
        sink.commit(receipts, 1, overwrite)
    writer.abort(receipts, 1)
    assert "perhaps committed" in caplog.text
    assert sink.rows() == before


def test_routed_batch_of_an_older_checkpoint_writes_no_segment(routed):
    routed.stream(0, [("a", "1"), ("b", "1")])
    routed.stream(1, [("b", "2")])
    with pytest.raises(ValueError, match="log/t/b has batch 1"):
        routed.stream(0, [("a", "1"), ("b", "1"), ("c", "new")])
    assert routed.routed() == {"a": ["1"], "b": ["1", "2"]}


def test_twins_that_commit_at_the_same_moment_commit_once(sink, monkeypatch):
    sink.stream(0, ["a"])
    mine = sink.tasks(1, ["b"])
    beside(monkeypatch, segments, "look", after=lambda *_: sink.stream(1, ["b"]), once=True)
    sink.commit(mine, 1)
    assert sink.rows() == ["a", "b"]


def test_batch_that_is_there_counts_once_it_is_flushed(tmp_path, monkeypatch):
    """The driver may have died before it flushed the folder, and a loss of power would take the batch back."""
    sink, flushed = Sink(monkeypatch, LocalBackend(), path=f"file://{tmp_path}/t"), []
    sink.stream(0, ["a"])

    async def flush(_: LocalBackend, path: str) -> None:
        flushed.append(path)

    monkeypatch.setattr(LocalBackend, "flush", flush)
    sink.stream(0, ["a"])
    assert flushed == [f"{tmp_path}/t$header"]


@pytest.mark.parametrize("took_place", [True, False])
def test_unknown_commit_is_looked_up_and_not_doubled(sink, monkeypatch, took_place):
    commit, calls = SegmentCommit.commit, []

    def unsure(*args: Any) -> None:
        calls.append(args)
        if took_place or len(calls) > 1:
            commit(*args)
        if len(calls) == 1:
            raise AppendOutcomeUnknown("the answer was lost")

    monkeypatch.setattr(SegmentCommit, "commit", unsure)
    sink.stream(0, ["a"])
    assert (sink.rows(), len(calls)) == (["a"], 1 if took_place else 2)


def test_tasks_without_query_are_refused_and_none_are_nothing(sink):
    with pytest.raises(RuntimeError, match="must name one query"):
        sink.commit([*sink.tasks(0, ["a"]), *sink.tasks(0, ["b"], query="r")], 0)
    assert sink.tasks(0, [])[0].pieces == ()
    sink.commit([], 0)
    assert not sink.fs.exists("log/t")


def test_batch_without_tasks_empties_target_in_complete_mode(sink):
    sink.fs.overwrite("log/t", b"old\n", attrs={"spark/query": "3"})
    sink.commit([], 4, overwrite=True)
    assert (sink.rows(), sink.fs.segment("log/t").attrs) == ([], {"spark/query": "4"})
    sink.commit([], 5)  # an append of nothing
    assert sink.fs.segment("log/t").attrs == {"spark/query": "4"}


# -- transactions: the batches of foreachBatch -------------------------------------------------------------------


ONE = ("sink", [["a"], ["b"]], "log/t", ["a", "b"])
MANY = ("routed", [[("a", "1"), ("b", "2")]], "log/t/b", ["2"])


@pytest.mark.parametrize(("kind", "rows", "path", "found"), [ONE, MANY], ids=["one segment", "many"])
def test_a_write_of_a_transaction_takes_effect_once(request, kind, rows, path, found):
    """A query in update mode writes its batches so, by `foreachBatch`."""
    sink = request.getfixturevalue(kind)
    for version in (0, 0, 1, 0, 1):
        sink.options |= {"txnAppId": "counts", "txnVersion": str(version)}
        sink.write(*rows)
    assert sink.rows(path) == found * 2
    assert sink.fs.segment(path).attrs == {"spark/counts": "1"}
    sink.fs.seal(path)
    sink.write(*rows)
    sink.options["txnVersion"] = "2"
    with pytest.raises(SegmentSealedError):
        sink.write(*rows)


def test_transactions_overwrite_takes_effect_once_and_streams_take_none(sink):
    sink.options |= {"txnAppId": "counts", "txnVersion": "3"}
    sink.write(["a"], overwrite=True)
    sink.fs.append("log/t", b"later\n")
    sink.write(["b"], overwrite=True)
    assert sink.rows() == ["a", "later"]
    sink.options["txnVersion"] = "4"
    sink.write(["b"], overwrite=True)
    assert sink.rows() == ["b"]
    with pytest.raises(ValueError, match="a stream counts its batches itself"):
        sink.plan(0)


@pytest.mark.parametrize("format_", ["text", "parquet"])
@pytest.mark.parametrize(
    ("overwriter", "attrs"), [("write", {}), ("transaction", {"spark/job": "7"}), ("stream", {"spark/complete": "0"})]
)
def test_batch_overwritten_by_another_job_does_not_return(store, monkeypatch, overwriter, attrs, format_):
    sink = Sink(monkeypatch, store, format=format_)
    sink.fs.overwrite("log/t", b"", attrs={"of": "the content"})
    sink.stream(0, ["a"])
    sink.stream(1, ["b"])  # the driver dies before Spark notes that the batch is done
    other = Sink(monkeypatch, store, format=format_, **(OF_JOB if overwriter == "transaction" else {}))
    if overwriter == "stream":
        other.stream(0, ["new"], query="complete", overwrite=True)
    else:
        other.write(["new"], overwrite=True)
    assert sink.fs.segment("log/t").attrs == {f"spark/{QUERY}": "1", **attrs}
    sink.stream(1, ["b"])
    sink.stream(2, ["c"])
    assert sink.rows() == ["new", "c"]


def test_overwrite_keeps_a_batch_from_before_its_commit(sink):
    sink.stream(0, ["a"])
    overwriter = sink.plan(overwrite=True)
    receipts = sink.run(overwriter, None, ["new"])
    sink.stream(1, ["b"])
    sink.stream(0, ["late"], query="another")
    overwriter.commit(receipts)
    sink.stream(1, ["b"])
    sink.stream(0, ["late"], query="another")
    assert sink.rows() == ["new"]


# -- the verdict of the probe --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mode", "is_shared"),
    [("blockmgr-1", 0o755, True), ("blockmgr-1", 0o775, False), ("blockmgr-1", 0o757, False), ("mine", 0o755, False)],
)
def test_workers_share_verdict_of_probe_in_private_folder(tmp_path, monkeypatch, name, mode, is_shared):
    folder = tmp_path / name
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'blockmgr-gone'},{folder}")
    assert worker_folder() == (str(folder) if is_shared else None)
    fs = places.filesystem(RollingDataSource({"path": f"file://{tmp_path}/t"})._parsed())
    assert fs._client.verdicts._cache == (str(folder) if is_shared else True)
