"""Java reads segments that Python is changing."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from rollingfs import RollingFileSystem
from rollingfs.format import names, transitions
from rollingfs.policy import RollingPolicy
from rollingfs.segment.commit.chunk_files import write_chunk
from rollingfs.segment.verbs.rename import rename
from rollingfs.segment.verbs.truncate import truncate
from tests.support.segment_verbs import append
from tests.support.spark import Place

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@contextlib.contextmanager
def beside(call: Callable[[], object]) -> Iterator[Iterator[bool]]:
    """Call in a thread; gives turns as long as it runs. It must end well."""
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(call)
        yield iter(ending.done, True)
        ending.result()


def test_java_looks_at_segment_while_python_replaces_its_header(place):
    place.segment("log", b"")
    count, sizes = 60, []

    def write() -> None:
        for _ in range(count):
            place.run(append(place.client, f"{place.path}/log", b"0123456789"))

    with beside(write) as turns:
        for _ in turns:
            sizes.append(place.fs.getFileStatus(place.hadoop_path("log")).getLen())
            assert set(place.read("log")[::10]) <= {ord("0")}
            sizes.append(place.listed()["log"])
    assert sizes == sorted(sizes)
    assert all(size % 10 == 0 for size in sizes)
    assert place.read("log") == b"0123456789" * count


def test_list_during_renames_and_deletes_shows_segments_once(place):
    for index in range(6):
        place.segment(f"in/{index}", b"x" * 70)

    def write() -> None:
        for index in range(12):
            own, other = f"{place.path}/in/{index % 6}", f"{place.path}/in/moved"
            for names_ in ((own, other), (other, own)):
                place.run(rename(place.client, *names_))

    with beside(write) as turns:
        for _ in turns:
            listed = place.listed("in")
            assert set(listed) <= {*map(str, range(6)), "moved"}
            assert set(listed.values()) == {70}
    assert place.listed("in") == {str(index): 70 for index in range(6)}


def test_reader_follows_a_changed_map_or_reports_lost_bytes(place):
    place.segment("log", b"0123456789" * 30, RollingPolicy(max_bytes=50, inline_bytes=0), piece=300)
    path = f"{place.path}/log"
    stream = place.fs.open(place.hadoop_path("log"))
    assert bytes(stream.readNBytes(10)) == b"0123456789"
    old = place.header("log").entries[3].file

    async def step(base: Any, attempt: Any) -> Any:
        chunks = base.header.entries
        moved = await write_chunk(place.client, path, b"0123456789" * 5, 150)
        new = [*chunks[:3], moved.chunk(path, 150), *chunks[4:]]
        return transitions.replace(base.header, entries=tuple(new))

    place.run(place.client.commits.commit(path, step, fresh=True))
    place.run(place.client.backend.delete([names.resolve(path, old)]))
    stream.seek(170)
    assert bytes(stream.readNBytes(20)) == b"0123456789" * 2
    place.run(truncate(place.client, path, 260))
    stream.seek(205)
    with pytest.raises(Exception, match="offset 205 was truncated away; what is left is 260 to 300"):
        stream.readNBytes(20)
    stream.close()


@pytest.mark.parametrize("is_truncated", [False, True])
def test_query_fails_at_a_replaced_or_truncated_segment(spark, tmp_path, is_truncated):
    path, done = str(tmp_path / "f" / "s"), str(tmp_path / "done")
    RollingFileSystem("file").overwrite(path, b"old\n" * 4000)
    url = f"rolling+file://{path}"

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The first task changes the segment when it has read all of its rows, and the others wait for it."""
        rows = list(batches)
        if TaskContext.get().partitionId() == 0:  # type: ignore[union-attr]
            fs = RollingFileSystem("file")
            if is_truncated:
                fs.append(path, b"new\n" * 4000)
                fs.truncate(path, 4000)
            else:
                fs.rm(path)
                fs.overwrite(path, b"new\n" * 4000)
            Path(done).touch()
        while not Path(done).exists():
            time.sleep(0.05)
        yield from rows

    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    try:
        frame = spark.read.text(url)
        assert frame.rdd.getNumPartitions() >= 8
        reason = "truncated away since" if is_truncated else "another segment has this name"
        with pytest.raises(Exception, match=reason):
            frame.mapInArrow(work, "value string").collect()
        assert len({row.value for row in spark.read.text(url).collect()}) == 1 + is_truncated
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def planned(disk: Place, name: str, status: Any) -> bytes:
    """What a task reads that was told the status of a plan."""
    stream = disk.fs.openFile(disk.hadoop_path(name)).withFileStatus(status).build().get()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def test_open_with_status_of_plan_refuses_another_segment(disk):
    path, fs = f"{disk.path}/log", RollingFileSystem("file")
    fs.overwrite(path, b"old\n")
    status = disk.fs.getFileStatus(disk.hadoop_path("log"))
    fs.append(path, b"more\n")
    assert planned(disk, "log", status) == b"old\nmore\n"
    fs.truncate(path, 6)
    with pytest.raises(Exception, match=r"says that there are 4 bytes, but there are 3 now"):
        planned(disk, "log", status)
    fs.rm(path)
    wait_for_later(status.getModificationTime())
    fs.overwrite(path, b"another one\n")
    with pytest.raises(Exception, match="another segment has this name now than when this query was planned"):
        planned(disk, "log", status)
    assert planned(disk, "log", disk.fs.getFileStatus(disk.hadoop_path("log"))) == b"another one\n"


def test_open_by_a_plain_status_reads_the_segment(disk):
    disk.plain("file", b"plain\n")
    status = disk.fs.getFileStatus(disk.hadoop_path("file"))
    wait_for_later(status.getModificationTime())
    RollingFileSystem("file").append(f"{disk.path}/file", b"more\n")
    assert planned(disk, "file", status) == b"plain\nmore\n"


def wait_for_later(than_ms: int) -> None:
    while time.time() * 1000 < than_ms + 2:
        time.sleep(0.001)
