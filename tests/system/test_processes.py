"""Many processes on one segment: acknowledged data is there once, whole and in order, even after `kill -9`.

After every append a process notes when it began, when it was acknowledged, and the offset. A record names its writer
and its length, so a torn, lost or doubled record shows.
"""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import random
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.servers import new_bucket

WRITERS = 8
JOIN_S_MAX = 120
BODY_SIZES = (0, 10, 100, 3_000, 40_000)
"""Some stay inline, some become a chunk, some roll."""
MAX_BYTES = 32 * 1024
INLINE_BYTES = 2 * 1024
FORK_WARNING = "ignore:This process .* is multi-threaded:DeprecationWarning"


@dataclass(frozen=True)
class Target:
    """The address of a segment, for every process."""

    protocol: str
    options: dict[str, Any]
    path: str

    def open(self) -> Any:
        """A filesystem of its own."""
        return fsspec.filesystem(
            "rolling",
            target_protocol=self.protocol,
            target_options=self.options,
            skip_instance_cache=True,
            max_bytes=MAX_BYTES,
            inline_bytes=INLINE_BYTES,
            sync=False,
            commit_timeout_s=JOIN_S_MAX,
        )


@dataclass(frozen=True)
class Ack:
    """An append that was acknowledged; times by the machine's monotonic clock, in nanoseconds."""

    writer: str
    number: int
    began: int
    acked: int
    offset: int


def record(writer: str, number: int) -> bytes:
    """The record that a writer appends: a head, and a body of a size that looks random."""
    size = BODY_SIZES[hashlib.sha256(f"{writer} {number}".encode()).digest()[0] % len(BODY_SIZES)]
    head = f"{writer} {number} {size}\n".encode()
    return head + (hashlib.sha256(head).digest() * (size // 32 + 1))[:size]


def records(data: bytes) -> Iterator[tuple[int, str, int]]:
    """Offset, writer and number of the records in some bytes; fails if one is torn."""
    offset = 0
    while offset < len(data):
        writer, number, _ = data[offset : data.index(b"\n", offset)].decode().split()
        expected = record(writer, int(number))
        assert data[offset : offset + len(expected)] == expected, f"a torn record at {offset}: {writer} {number}"
        yield offset, writer, int(number)
        offset += len(expected)


def write_records(target: Target, writer: str, count: int, log: Path, start: Any = None) -> None:
    """The main function of a writing process."""
    append_all(target.open(), target.path, writer, count, log, start)


def append_all(fs: Any, path: str, writer: str, count: int, log: Path, start: Any = None) -> None:
    with log.open("ab", buffering=0) as notes:
        for number in range(count):
            data = record(writer, number)
            began = time.monotonic_ns()
            if start is not None and number == 0:
                start.wait(
                    JOIN_S_MAX
                )  # after the note of the time: all first appends overlap, whatever the machine does
            offset = fs.append(path, data)
            notes.write(f"{number} {began} {time.monotonic_ns()} {offset}\n".encode())


def read_acks(log: Path) -> list[Ack]:
    return [Ack(log.name, *map(int, line.split())) for line in log.read_text().splitlines()] if log.exists() else []


def spawn(context: BaseContext, work: Callable[..., None], *args: Any) -> Any:
    process = context.Process(target=work, args=args, daemon=True)  # type: ignore[attr-defined]
    process.start()
    return process


def join(processes: list[Any]) -> None:
    for process in processes:
        process.join(JOIN_S_MAX)
        assert process.exitcode == 0


def check(data: bytes, acks: list[Ack]) -> Counter[tuple[str, int]]:
    """Check that every acknowledged append is at its offset and none is doubled; gives the records."""
    found = {offset: (writer, number) for offset, writer, number in records(data)}
    for ack in acks:
        assert found.get(ack.offset) == (ack.writer, ack.number), f"lost or moved: {ack}"
    counts = Counter(found.values())
    assert max(counts.values()) == 1, counts.most_common(1)
    return counts


def check_order(acks: list[Ack]) -> int:
    """Check that A lies before B if A was acknowledged before B began; gives how many neighbours overlapped."""
    by_ack = sorted(acks, key=lambda ack: ack.acked)
    highest = -1
    earlier = iter(by_ack)
    pending = next(earlier, None)
    for ack in sorted(acks, key=lambda ack: ack.began):
        while pending is not None and pending.acked < ack.began:
            highest = max(highest, pending.offset)
            pending = next(earlier, None)
        assert highest < ack.offset, f"{ack} lies before one that was acknowledged before it began"
    began = sorted(acks, key=lambda ack: ack.began)
    return sum(after.began < before.acked for before, after in itertools.pairwise(began))


@pytest.fixture
def disk(tmp_path: Path) -> Target:
    return Target("file", {}, str(tmp_path / "data" / "segment"))


STORES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "seaweed": ("s3", new_bucket),
    "minio": ("s3", new_bucket),
}
"""The fixture of a store's options; the protocol of its target, and what makes a bucket. A further store is a line."""


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.s3) if name == "minio" else name for name in STORES])
def remote(request: pytest.FixtureRequest) -> Target:
    """A segment on each of the stores."""
    protocol, new_place = STORES[request.param]
    options: dict[str, Any] = request.getfixturevalue(request.param)
    return Target(protocol, options, f"{new_place(options)}/segment")


# -- everybody appends ---------------------------------------------------------------------------------------


def starting(target: Target) -> BaseContext:
    """How processes start: on a disk by a server that has imported all; obstore does not survive that fork."""
    if target.protocol != "file" or "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def append_from_all(target: Target, logs: Path, count: int) -> None:
    context = starting(target)
    fs = target.open()
    fs.create(target.path)
    start = context.Barrier(WRITERS)
    names = [f"writer-{index}" for index in range(WRITERS)]
    join([spawn(context, write_records, target, name, count, logs / name, start) for name in names])
    acks = [ack for name in names for ack in read_acks(logs / name)]
    assert len(acks) == WRITERS * count
    segment = target.open().segment(target.path)
    assert check(segment.read(0, segment.length), acks).total() == WRITERS * count
    assert check_order(acks) > 0, "they never appended at the same time: this shows nothing"


def test_eight_processes_on_disk_append_each_record_once_and_in_order(disk: Target, tmp_path: Path) -> None:
    append_from_all(disk, tmp_path, 25)


@pytest.mark.slow
def test_eight_processes_on_disk_append_a_thousand_records(disk: Target, tmp_path: Path) -> None:
    append_from_all(disk, tmp_path, 125)


@pytest.mark.slow
def test_eight_processes_on_a_store_append_each_record_once_and_in_order(remote: Target, tmp_path: Path) -> None:
    append_from_all(remote, tmp_path, 40)


# -- and die -------------------------------------------------------------------------------------------------


def kill_at_random(target: Target, logs: Path, writers: int) -> None:
    """Let processes append without end, kill them one after another, and check the content all the time."""
    context = starting(target)
    chance = random.Random(writers)
    reader = target.open()
    reader.create(target.path)
    names = [f"writer-{index}" for index in range(writers)]
    start = context.Barrier(writers + 1)
    running = [spawn(context, write_records, target, name, sys.maxsize, logs / name, start) for name in names]
    try:
        start.wait(JOIN_S_MAX)
        wait_for_acks(logs)
        for process in running:
            time.sleep(chance.random() / 3)
            process.kill()
            list(records(reader.cat_file(target.path)))
    finally:
        for process in running:
            process.kill()
            process.join(JOIN_S_MAX)
    acks = [ack for name in names for ack in read_acks(logs / name)]
    data = target.open().cat_file(target.path)
    there = check(data, acks)
    assert check_order(acks) > 0, "they never appended at the same time: this shows nothing"
    # the record in flight of each writer may be there; nothing after it
    acked = Counter(ack.writer for ack in acks)
    assert all(number <= acked[writer] for writer, number in there)
    # the dead block nobody, and their uploads can be collected
    fs = target.open()
    assert fs.append(target.path, record("after", 0)) == len(data)
    fs.collect(target.path, grace=0)
    assert fs.cat_file(target.path) == data + record("after", 0)


def wait_for_acks(logs: Path) -> None:
    """Wait until two writers have appended: all were at the barrier in their first append, so that these overlap."""
    deadline = time.monotonic() + JOIN_S_MAX
    while sum(bool(read_acks(log)) for log in logs.glob("writer-*")) < 2:
        assert time.monotonic() < deadline, "fewer than two writers were ever acknowledged anything"
        time.sleep(0.01)


def test_kill_9_on_disk_loses_nothing_acknowledged_and_tears_nothing(disk: Target, tmp_path: Path) -> None:
    kill_at_random(disk, tmp_path, writers=6)


# -- one filesystem object in many processes -----------------------------------------------------------------


def commit_lines(target: Target) -> set[str]:
    """The writers that the header names: one line for each."""
    below = fsspec.filesystem(target.protocol, **target.options)
    text = below.cat_file(target.path + "$header").split(b"\n\n")[0].decode()
    return {line.split()[1] for line in text.splitlines() if line.startswith("commit ")}


def share(target: Target, method: str, logs: Path, count: int = 5) -> None:
    """Children get a filesystem that was used before, and append beside the parent's threads."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    context = multiprocessing.get_context(method)
    fs = target.open()
    fs.create(target.path)
    done = threading.Event()

    def append_until_done(name: str) -> None:
        with (logs / name).open("a") as notes:
            for number in itertools.count():
                began = time.monotonic_ns()
                offset = fs.append(target.path, record(name, number))
                notes.write(f"{number} {began} {time.monotonic_ns()} {offset}\n")
                if done.is_set():
                    return

    threads = [threading.Thread(target=append_until_done, args=(f"thread-{index}",)) for index in range(2)]
    for thread in threads:
        thread.start()
    names = [f"child-{index}" for index in range(3)]
    try:
        # forked while the threads hold locks and have requests on their way
        join([spawn(context, append_all, fs, target.path, name, count, logs / name) for name in names])
    finally:
        done.set()
        for thread in threads:
            thread.join(JOIN_S_MAX)
    assert fs.append(target.path, record("parent", 0)) > 0
    acks = [ack for log in logs.iterdir() if log.is_file() for ack in read_acks(log)]
    there = check(target.open().cat_file(target.path), acks)
    assert there.total() == len(acks) + 1
    assert len([ack for ack in acks if ack.writer in names]) == len(names) * count
    assert len(commit_lines(target)) == len(names) + 1, "each process must be a writer of its own"


@pytest.mark.filterwarnings(FORK_WARNING)
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_one_filesystem_in_several_processes_on_disk_is_a_writer_in_each(
    disk: Target, tmp_path: Path, method: str
) -> None:
    share(disk, method, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings(FORK_WARNING)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_one_filesystem_in_several_processes_on_s3_is_a_writer_in_each(
    seaweed: dict[str, Any], tmp_path: Path, method: str
) -> None:
    share(Target("s3", seaweed, f"{new_bucket(seaweed)}/{uuid.uuid4().hex}"), method, tmp_path, count=3)


def read_sum(fs: Any, path: str, log: Path) -> None:
    with fs.open(path, "rb") as file:
        log.write_text(hashlib.sha256(file.read()).hexdigest())


@pytest.mark.filterwarnings(FORK_WARNING)
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_children_read_what_the_parent_wrote_by_its_filesystem(
    seaweed: dict[str, Any], tmp_path: Path, method: str
) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    target = Target("s3", seaweed, f"{new_bucket(seaweed)}/segment")
    fs = target.open()
    data = b"".join(record("parent", number) for number in range(10))
    fs.pipe_file(target.path, data)
    assert fs.cat_file(target.path) == data
    context = multiprocessing.get_context(method)
    join([spawn(context, read_sum, fs, target.path, tmp_path / f"sum-{index}") for index in range(2)])
    assert {log.read_text() for log in tmp_path.iterdir()} == {hashlib.sha256(data).hexdigest()}
