"""Java and Python write the same segments at once, meet each other's unfinished business, and exclude each other."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rollingfs import names, transitions
from rollingfs.backend.record_lock import record_lock
from rollingfs.client import Client
from rollingfs.header import Mark, Merge
from rollingfs.policy import RollingPolicy
from tests.spark.world import Place

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

HELD_S = 0.5
WAIT_S_MAX = 60
LONG_AGO_MS = 60_000


def started(call: Callable[[], Any]) -> tuple[threading.Event, threading.Thread]:
    done = threading.Event()

    def run() -> None:
        call()
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return done, thread


def test_a_commit_by_java_waits_for_the_lock_that_python_holds(disk):
    disk.segment("log", b"data")
    disk.append("log", b", more")
    with record_lock(f"{disk.path}/log$chunks/lock"):
        done, thread = started(lambda: disk.append("log", b", and more"))
        assert not done.wait(HELD_S)
        assert disk.content("log") == b"data, more"
    thread.join(WAIT_S_MAX)
    assert done.is_set()
    assert disk.content("log") == b"data, more, and more"


def test_a_commit_by_python_waits_for_the_lock_that_java_holds(disk):
    disk.segment("log", b"data")
    disk.append("log", b", more")
    jvm = disk.spark._jvm
    file = jvm.java.io.RandomAccessFile(f"{disk.path}/log$chunks/lock", "rw")
    lock = file.getChannel().lock()
    path = f"{disk.path}/log"
    done, thread = started(lambda: disk.run(disk.client.segments.append(path, b", and more")))
    assert not done.wait(HELD_S)
    assert disk.content("log") == b"data, more"
    lock.release()
    file.close()
    thread.join(WAIT_S_MAX)
    assert done.is_set()
    assert disk.content("log") == b"data, more, and more"


def test_appends_of_java_and_python_at_once_are_all_there_once(place):
    place.segment("log", b"", RollingPolicy(max_bytes=60, inline_bytes=40))
    path, count = f"{place.path}/log", 12
    other = Client(place.client.backend)

    def by_python(client: Client, index: int) -> None:
        place.run(client.segments.append(path, f"<python {id(client)} {index}>".encode()))

    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(by_python, client, index) for index in range(count) for client in (place.client, other)]
        calls += [pool.submit(place.append, "log", f"<java {index}>".encode()) for index in range(2 * count)]
        for call in calls:
            call.result()
    found = place.content("log")
    expected = [f"<python {id(client)} {index}>" for index in range(count) for client in (place.client, other)]
    expected += [f"<java {index}>" for index in range(2 * count)]
    assert sorted(found.decode().replace("><", ">\n<").splitlines()) == sorted(expected)
    assert place.read("log") == found
    assert place.header("log").version == place.header("log").commits[-1].version


def test_java_looks_at_a_segment_while_python_replaces_its_header(place):
    place.segment("log", b"")
    path, count = f"{place.path}/log", 60

    def write() -> None:
        for _ in range(count):
            place.run(place.client.segments.append(path, b"0123456789"))

    done, thread = started(write)
    sizes = []
    while not done.is_set() and thread.is_alive():
        sizes.append(place.fs.getFileStatus(place.hadoop_path("log")).getLen())
        assert set(place.read("log")[::10]) <= {ord("0")}
        sizes.append(place.listed()["log"])
    assert done.is_set()
    assert sizes == sorted(sizes)
    assert all(size % 10 == 0 for size in sizes)
    assert place.read("log") == b"0123456789" * count


def test_one_of_two_renames_to_the_same_name_wins_and_no_bytes_are_lost(place):
    place.segment("one", b"1" * 150)
    place.segment("two", b"2" * 150)
    target = f"{place.path}/both"

    def by_python() -> None:
        place.run(place.client.concats.rename(f"{place.path}/one", target))

    with ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(by_python),
            pool.submit(lambda: place.fs.rename(place.hadoop_path("two"), place.hadoop_path("both"))),
        ]
        results = [call.result() for call in calls]
    kept = {name: place.content(name) for name in place.listed()}
    assert kept["both"] in (b"1" * 150, b"2" * 150)
    assert results[1] or kept["two"] == b"2" * 150


def mark(place: Place, name: str, target: str, incarnation: str) -> str:
    """Leave a source as a mover leaves it that died long ago; returns the transaction."""
    txn = str(uuid.uuid4())

    async def step(base: Any, attempt: Any) -> Any:
        at_ms = place.client.committer.now_ms() - LONG_AGO_MS
        return transitions.mark_merging(base.header, Merge(txn, target, incarnation, base.header.phase, at_ms))

    place.run(place.client.committer.commit(f"{place.path}/{name}", step, fresh=True))
    return txn


def test_java_undoes_a_merge_whose_mover_died_before_its_commit(place):
    place.segment("source", b"data")
    place.segment("target", b"old")
    txn = mark(place, "source", "target", place.header("target").segment)
    assert place.read("source") == b"data"
    place.append("source", b" and more")
    assert place.content("source") == b"data and more"
    assert [found.txn for found in place.header("target").aborts] == [txn]
    assert place.content("target") == b"old"


def test_java_undoes_a_rename_whose_target_was_never_made(place):
    place.segment("source", b"data")
    txn = mark(place, "source", "nowhere", str(uuid.uuid4()))
    assert place.fs.rename(place.hadoop_path("source"), place.hadoop_path("elsewhere"))
    assert place.content("elsewhere") == b"data"
    assert place.header("nowhere").deleted
    assert [found.txn for found in place.header("nowhere").aborts] == [txn]


def test_java_finishes_a_merge_that_took_place(place):
    place.segment("source", b"data")
    place.segment("target", b"data")
    txn = mark(place, "source", "target", place.header("target").segment)

    async def step(base: Any, attempt: Any) -> Any:
        return transitions.with_merged(base.header, [Mark(txn, "source")])

    place.run(place.client.committer.commit(f"{place.path}/target", step, fresh=True))
    with pytest.raises(Exception, match="No such segment or file"):
        place.append("source", b" and more")
    assert place.header("source").merged == txn


def test_python_goes_on_with_a_rename_by_java_and_settles_its_mark(place):
    place.segment("one", b"1" * 150)
    assert place.fs.rename(place.hadoop_path("one"), place.hadoop_path("two"))
    assert len(place.header("two").merges) == 1
    place.run(place.client.segments.delete(f"{place.path}/two"))
    assert place.header("two").merges == ()
    assert not place.fs.exists(place.hadoop_path("two"))


def test_a_segment_with_marks_is_deleted_and_overwritten_by_java_once_they_are_settled(place):
    place.segment("one", b"1" * 150)
    assert place.fs.rename(place.hadoop_path("one"), place.hadoop_path("two"))
    place.create("two", b"other")
    assert place.content("two") == b"other"
    assert place.header("two").merges == ()


def test_a_reader_goes_on_when_the_map_changes_and_says_so_when_its_bytes_are_gone(place):
    place.segment("log", b"0123456789" * 30, RollingPolicy(max_bytes=50, inline_bytes=0), piece=300)
    path = f"{place.path}/log"
    stream = place.fs.open(place.hadoop_path("log"))
    assert bytes(stream.readNBytes(10)) == b"0123456789"
    old = place.header("log").entries[3].file

    async def step(base: Any, attempt: Any) -> Any:
        chunks = base.header.entries
        moved = await place.client.chunks.write(path, b"0123456789" * 5, 150)
        new = [*chunks[:3], moved.chunk(path, 150), *chunks[4:]]
        return transitions.replace(base.header, entries=tuple(new))

    place.run(place.client.committer.commit(path, step, fresh=True))
    place.run(place.client.backend.delete([names.resolve(path, old)]))
    stream.seek(170)
    assert bytes(stream.readNBytes(20)) == b"0123456789" * 2
    place.run(place.client.segments.truncate(path, 260))
    stream.seek(205)
    with pytest.raises(Exception, match="offset 205 was truncated away; what is left is 260 to 300"):
        stream.readNBytes(20)
    stream.close()
