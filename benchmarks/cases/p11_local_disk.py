"""P11: the local disk, beside plain files."""

from __future__ import annotations

import fcntl
import itertools
import logging
import multiprocessing
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import fsspec
from fastcrc.crc32 import iscsi

from benchmarks.case import Case, Goal, Job, figure, ratio
from benchmarks.content import ContentFile, check, content
from rollingfs.logging import RollingHandler

MIB = 2**20
APPEND_BYTES = 4096
THREADS = 8
PROCESSES = 8
FOLLOWED_PER_S = 100
PIECE_BYTES = 8 * MIB


@contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="rollingfs-bench-", dir=os.environ.get("ROLLINGFS_BENCH_DIR"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _rolling() -> Any:
    return fsspec.filesystem("rolling", target_protocol="file", skip_instance_cache=True)


def ours_append(job: Job) -> None:
    with _folder() as folder:
        fs, path = _rolling(), f"{folder}/log"
        fs.create(path)
        count = job.pick(500, 100)
        before = _moved_bytes("wchar")
        job.each(lambda number: fs.append(path, content(number * APPEND_BYTES, APPEND_BYTES)), count)
        job.sample.extra["written_unit_bytes"] = (_moved_bytes("wchar") - before) / count
        assert check(fs.cat_file(path), 0) == count * APPEND_BYTES


def _moved_bytes(field: str) -> int:
    """What this process has handed to `write` and its like (``wchar``), or got of `read` and its like (``rchar``)."""
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{field}:"))


def _follow(path: str, answers: Any) -> None:
    pieces = _rolling().segment(path).tail()
    next(pieces)
    answers.put(None)
    before = _moved_bytes("rchar")
    size = sum(map(len, pieces))
    answers.put((_moved_bytes("rchar") - before) / size)


def ours_followed(job: Job) -> None:
    """A process follows a segment that gets 100 appends a second, until that is sealed."""
    with _folder() as folder:
        fs, path, context = _rolling(), f"{folder}/log", multiprocessing.get_context("forkserver")
        fs.pipe_file(path, b"first")
        answers = context.Queue()
        follower = context.Process(target=_follow, args=(path, answers))
        follower.start()
        answers.get()
        count = job.pick(1000, 100)
        with job.measured(count):
            began_s = time.perf_counter()
            for number in range(count):
                time.sleep(max(0.0, began_s + number / FOLLOWED_PER_S - time.perf_counter()))
                fs.append(path, content(number * APPEND_BYTES, APPEND_BYTES))
        fs.seal(path)
        job.sample.extra["read_per_byte"] = answers.get()
        follower.join()


def ours_of_threads(job: Job) -> None:
    """Appends of as many threads as wait for one flush."""
    with _folder() as folder:
        fs, path = _rolling(), f"{folder}/log"
        fs.create(path)
        count = job.pick(100, 20)

        def append(_: int) -> None:
            for _ in range(count):
                fs.append(path, bytes(APPEND_BYTES))

        with ThreadPoolExecutor(THREADS) as pool, job.measured(THREADS * count):
            list(pool.map(append, range(THREADS)))
        assert fs.info(path)["size"] == THREADS * count * APPEND_BYTES


def _log(job: Job, handler: logging.Handler, durable: Callable[[], object]) -> None:
    logger = logging.Logger("benchmark")
    logger.addHandler(handler)
    count = job.pick(2000, 200)
    with job.measured(count):
        for number in range(count):
            logger.info("request %d took %d ms", number, number % 97)
        durable()
    handler.close()


def ours_logged(job: Job, interval_s: float = 0.0) -> None:
    with _folder() as folder:
        handler = RollingHandler(f"{folder}/log", fs=_rolling(), interval=interval_s, block_s=60)
        _log(job, handler, handler.close)
        assert not handler.lost


def ours_logged_in_groups(job: Job) -> None:
    ours_logged(job, 0.01)


class _Flushed(logging.FileHandler):
    """The usual way to records that a loss of power leaves: a flush of each."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        os.fsync(self.stream.fileno())


def plain_logged(job: Job) -> None:
    with _folder() as folder:
        _log(job, _Flushed(f"{folder}/log"), lambda: None)


def plain_append(job: Job) -> None:
    with _folder() as folder, open(f"{folder}/log", "ab", buffering=0) as file:

        def append(number: int) -> None:
            file.write(content(number * APPEND_BYTES, APPEND_BYTES))
            os.fsync(file.fileno())

        job.each(append, job.pick(500, 100))


def _bare(folder: str) -> Callable[[int], None]:
    """The floor of an append in place: a lock, a look at the last record, a record with checksums, one flush."""
    lock, file = (os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT) for name in ("lock", "log"))

    def locked(kind: int) -> None:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLKW, struct.pack("hhqqi0q", kind, os.SEEK_SET, 0, 0, 0))

    def append(number: int) -> None:
        data = content(number * APPEND_BYTES, APPEND_BYTES)
        line = b"Record %d %08x " % (number, iscsi(data))
        record = b"%s%08x\n%s" % (line, iscsi(line), data)
        locked(fcntl.F_WRLCK)
        end = os.fstat(file).st_size
        os.pread(file, len(record), max(end - len(record), 0))
        os.pwrite(file, record, end)
        locked(fcntl.F_UNLCK)
        os.fsync(file)

    return append


def bare_append(job: Job) -> None:
    with _folder() as folder:
        job.each(_bare(folder), job.pick(500, 100))


def _work(make: Callable[[str], Callable[[int], object]], folder: str, count: int, barrier: Any) -> None:
    append = make(folder)
    append(0)
    barrier.wait()
    barrier.wait()  # the clock starts before the last one comes
    for number in range(count):
        append(number)
    barrier.wait()


def _in_processes(job: Job, make: Callable[[str], Callable[[int], object]], *folders: str) -> None:
    context, count = multiprocessing.get_context("forkserver"), job.pick(250, 20)
    barrier = context.Barrier(PROCESSES + 1)
    places = itertools.islice(itertools.cycle(folders), PROCESSES)
    workers = [context.Process(target=_work, args=(make, place, count, barrier)) for place in places]
    for worker in workers:
        worker.start()
    barrier.wait()
    with job.measured(PROCESSES * count):
        barrier.wait()
        barrier.wait()
    for worker in workers:
        worker.join()


def bare_of_processes(job: Job) -> None:
    with _folder() as folder:
        _in_processes(job, _bare, folder)


def _appending(folder: str) -> Callable[[int], object]:
    fs = _rolling()
    return lambda number: fs.append(f"{folder}/log", content(number * APPEND_BYTES, APPEND_BYTES))


def ours_of_processes(job: Job) -> None:
    with _folder() as folder:
        fs = _rolling()
        fs.create(f"{folder}/log")
        _in_processes(job, _appending, folder)
        assert fs.info(f"{folder}/log")["size"] == PROCESSES * (job.pick(250, 20) + 1) * APPEND_BYTES


def ours_of_processes_apart(job: Job) -> None:
    """The floor of processes that share a segment: each has one of its own, so that none waits or reads for another."""
    with _folder() as folder:
        fs, folders = _rolling(), [f"{folder}/{nth}" for nth in range(PROCESSES)]
        for each in folders:
            fs.create(f"{each}/log")
        _in_processes(job, _appending, *folders)


def replaced_file(job: Job) -> None:
    """The floor of any design that replaces a file atomically: temporary file, fsync, rename, fsync of the folder."""
    with _folder() as folder:
        data = content(0, APPEND_BYTES)

        def replace(_: int) -> None:
            descriptor = os.open(f"{folder}/new", os.O_WRONLY | os.O_CREAT)
            os.write(descriptor, data)
            os.fsync(descriptor)
            os.close(descriptor)
            os.rename(f"{folder}/new", f"{folder}/log")
            descriptor = os.open(folder, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

        job.each(replace, job.pick(500, 100))


def _size(job: Job) -> int:
    return job.pick(1024, 128) * MIB


def _copy(source: ContentFile, file: Any) -> None:
    while data := source.read(PIECE_BYTES):
        file.write(data)


def _warm(job: Job, folder: str) -> None:
    """Fill and free the cache of files: a virtual machine gets memory slowly that it has not used lately."""
    path = f"{folder}/warm"
    with open(path, "wb", buffering=0) as file:
        _copy(_whole(job), file)
        os.fsync(file.fileno())
    os.unlink(path)


def ours_write(job: Job) -> None:
    with _folder() as folder:
        _warm(job, folder)
        fs, source = _rolling(), _whole(job)
        with job.measured(), fs.open(f"{folder}/log", "ab") as file:
            _copy(source, file)
        job.sample.byte_count = _size(job)
        assert fs.info(f"{folder}/log")["size"] == _size(job)


def plain_write(job: Job) -> None:
    with _folder() as folder:
        _warm(job, folder)
        source = _whole(job)
        with job.measured(), open(f"{folder}/log", "ab", buffering=0) as file:
            _copy(source, file)
            os.fsync(file.fileno())
        job.sample.byte_count = _size(job)


class _Held(ContentFile):
    """Pieces made before the clock starts."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._pieces = [content(start, PIECE_BYTES) for start in range(0, 4 * PIECE_BYTES, PIECE_BYTES)]

    def read(self, size: int = -1) -> bytes:
        if self.at >= self.size:
            return b""
        piece = self._pieces[self.at // PIECE_BYTES % len(self._pieces)]
        self.at += len(piece)
        return piece


def _whole(job: Job) -> _Held:
    return _Held(_size(job))


def _scan(job: Job, file: Any, *, crc: bool = False) -> None:
    while file.read(PIECE_BYTES):  # the first pass fills the cache for the second, which is measured
        pass
    file.seek(0)
    at = found = 0
    with job.measured() as sample:
        while data := file.read(PIECE_BYTES):
            if crc:
                found = iscsi(data, found)
            at += check(data, at)
        sample.byte_count = at
    assert at == _size(job)


def ours_scan(job: Job) -> None:
    with _folder() as folder:
        fs = _rolling()
        fs.overwrite(f"{folder}/log", ContentFile(_size(job)))
        with fs.open(f"{folder}/log", "rb") as file:
            _scan(job, file)


def plain_scan(job: Job, *, crc: bool = False) -> None:
    with _folder() as folder:
        with open(f"{folder}/log", "wb") as file:
            _copy(ContentFile(_size(job)), file)
            os.fsync(file.fileno())
        with open(f"{folder}/log", "rb", buffering=0) as source:
            _scan(job, source, crc=crc)


def verified_scan(job: Job) -> None:
    """The floor of a reader that verifies what it reads."""
    plain_scan(job, crc=True)


CASES = (
    Case(
        "P11",
        "local disk: durable append of 4 KiB; records logged; 1 GiB appended, and scanned",
        {
            "rollingfs append": ours_append,
            "write + fsync": plain_append,
            "replace + 2 fsync": replaced_file,
            "lock + record + fsync, bare": bare_append,
            "rollingfs, 8 threads": ours_of_threads,
            "rollingfs, 8 processes": ours_of_processes,
            "rollingfs, 8 processes apart": ours_of_processes_apart,
            "bare, 8 processes": bare_of_processes,
            "rollingfs, followed": ours_followed,
            "RollingHandler": ours_logged,
            "RollingHandler, every 10 ms": ours_logged_in_groups,
            "FileHandler + fsync": plain_logged,
            "rollingfs, 1 GiB written": ours_write,
            "file, 1 GiB written": plain_write,
            "rollingfs, 1 GiB scanned": ours_scan,
            "file, 1 GiB scanned": plain_scan,
            "file + CRC-32C, 1 GiB scanned": verified_scan,
        },
        (
            Goal("append / write + fsync", ratio("unit_s", "rollingfs append", "write + fsync"), at_most=2),
            Goal("bytes written for an append", figure("written_unit_bytes", "rollingfs append"), at_most=4608),
            Goal(
                "bytes read by a follower for each appended",
                figure("read_per_byte", "rollingfs, followed"),
                at_most=1.5,
            ),
            Goal("append / bare", ratio("unit_s", "rollingfs append", "lock + record + fsync, bare"), at_most=2),
            Goal("8 processes / 1", ratio("rate_per_s", "rollingfs, 8 processes", "rollingfs append"), at_least=2),
            Goal(
                "bare: 8 processes / 1",
                ratio("rate_per_s", "bare, 8 processes", "lock + record + fsync, bare"),
                at_least=2,
            ),
            Goal("8 threads / 1", ratio("rate_per_s", "rollingfs, 8 threads", "rollingfs append"), at_least=3),
            *(
                Goal(f"{name} / FileHandler + fsync", ratio("rate_per_s", name, "FileHandler + fsync"), at_least=goal)
                for name, goal in (("RollingHandler", 0.6), ("RollingHandler, every 10 ms", 5))
            ),
            Goal(
                "written / file", ratio("bytes_per_s", "rollingfs, 1 GiB written", "file, 1 GiB written"), at_least=0.95
            ),
            Goal(
                "scanned / file", ratio("bytes_per_s", "rollingfs, 1 GiB scanned", "file, 1 GiB scanned"), at_least=0.98
            ),
            Goal(
                "scanned / file + CRC-32C",
                ratio("bytes_per_s", "rollingfs, 1 GiB scanned", "file + CRC-32C, 1 GiB scanned"),
                at_least=0.98,
            ),
        ),
        needs_servers=False,
        shown=("unit_s", "p99_s", "rate_per_s", "bytes_per_s", "cpu_unit_s"),
    ),
)
