"""P11: the local disk, beside plain files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
import google_crc32c

from benchmarks.case import Case, Goal, Job, ratio
from benchmarks.content import ContentFile, check, content
from rollingfs.policy import INLINE_BYTES_DEFAULT

MIB = 2**20
APPEND_BYTES = 4096
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
        job.each(lambda number: fs.append(path, content(number * APPEND_BYTES, APPEND_BYTES)), count)
        assert check(fs.cat_file(path), 0) == count * APPEND_BYTES


def plain_append(job: Job) -> None:
    with _folder() as folder, open(f"{folder}/log", "ab", buffering=0) as file:

        def append(number: int) -> None:
            file.write(content(number * APPEND_BYTES, APPEND_BYTES))
            os.fsync(file.fileno())

        job.each(append, job.pick(500, 100))


def replaced_file(job: Job, size: int = APPEND_BYTES) -> None:
    """The floor of any design that replaces a file atomically: temporary file, fsync, rename, fsync of the folder."""
    with _folder() as folder:
        data = content(0, size)

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


def replaced_header(job: Job) -> None:
    """The floor of ours, whose header holds an inline tail, half full on average."""
    replaced_file(job, INLINE_BYTES_DEFAULT // 2)


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
                found = google_crc32c.extend(found, data)
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
        "local disk: durable append of 4 KiB; 1 GiB appended, and scanned",
        {
            "rollingfs append": ours_append,
            "write + fsync": plain_append,
            "replace + 2 fsync": replaced_file,
            "replace of 128 KiB + 2 fsync": replaced_header,
            "rollingfs, 1 GiB written": ours_write,
            "file, 1 GiB written": plain_write,
            "rollingfs, 1 GiB scanned": ours_scan,
            "file, 1 GiB scanned": plain_scan,
            "file + CRC-32C, 1 GiB scanned": verified_scan,
        },
        (
            Goal("append / write + fsync", ratio("unit_s", "rollingfs append", "write + fsync"), at_most=3),
            Goal(
                "append / replace of 128 KiB + 2 fsync",
                ratio("unit_s", "rollingfs append", "replace of 128 KiB + 2 fsync"),
                at_most=1.5,
            ),
            Goal(
                "written / file",
                ratio("bytes_per_s", "rollingfs, 1 GiB written", "file, 1 GiB written"),
                at_least=0.95,
            ),
            Goal(
                "scanned / file",
                ratio("bytes_per_s", "rollingfs, 1 GiB scanned", "file, 1 GiB scanned"),
                at_least=0.98,
            ),
            Goal(
                "scanned / file + CRC-32C",
                ratio("bytes_per_s", "rollingfs, 1 GiB scanned", "file + CRC-32C, 1 GiB scanned"),
                at_least=0.98,
            ),
        ),
        needs_servers=False,
        shown=("unit_s", "p99_s", "bytes_per_s", "cpu_unit_s", "memory_bytes"),
    ),
)
