"""Collection beside writers, readers, concats, consolidation, truncation; an hour of the store takes a second.

Clients die in the middle of everything and answers get lost, so that there is garbage of every kind. What was
acknowledged is there to the last byte whenever somebody looks, and in the end nothing is left that nobody refers to.
"""

from __future__ import annotations

import os
import random
import threading
import time
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import fsspec
import pytest

from rollingfs import AppendOutcomeUnknown, Collected, CommitTimeoutError, SegmentTruncatedError
from rollingfs.format import names
from rollingfs.format.header import GRACE_S
from tests.support.faults import Crashed
from tests.support.hurry import Hurry
from tests.support.servers import new_bucket

COMMIT_S = 200.0  # a request to MinIO may take a minute on a machine with much else to do
SECONDS = 600.0 if os.environ.get("ROLLINGFS_LONG") == "1" else 40.0
"""For how long; each is an hour of the store."""
WRITERS = 8
READERS = 2
COLLECTORS = 2
LOGS = 3
MAX_BYTES = 2048
INLINE_BYTES = 512
SIZES = (0, 10, 100, 1000, 6000)
"""Of records: some stay inline, some become a chunk, some roll."""
DIES = 0.002
LOSES = 0.01
PASSES = 3
"""Of collection: a pin goes after what it pins, a tombstone after its pins."""
UNCERTAIN = (AppendOutcomeUnknown, CommitTimeoutError)


@dataclass
class Truth:
    """What is known of the logs, because it was acknowledged."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    acknowledged: dict[str, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    """Bytes by log and offset."""
    trims: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """The furthest offset to which somebody began to truncate a log."""
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    collected: set[str] = field(default_factory=set)

    def acknowledge(self, log: str, offset: int, data: bytes) -> None:
        with self.lock:
            self.acknowledged[log].append((offset, data))

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1


class Place:
    """Where it happens: clients of their own are made here."""

    def __init__(self, protocol: str, options: dict[str, Any], folder: str) -> None:
        self.hurry = Hurry()
        self.folder = folder
        self.logs = [f"{folder}/log-{number}" for number in range(LOGS)]
        self.over_at = time.monotonic() + SECONDS
        self.truth = Truth()
        self._target = {"target_protocol": protocol, "target_options": options}

    def below(self) -> Any:
        """A backend of its own."""
        fs = fsspec.filesystem("rolling", **self._target, sync=False, skip_instance_cache=True)
        return fs._backend

    def client(self, below: Any, dice: random.Random | None = None, dies: float = 0.0, loses: float = 0.0) -> Any:
        """A client that may die, over a backend that lives on."""
        backend = self.hurry.client(below, dice or random.Random(0), dies, loses)
        return fsspec.filesystem(
            "rolling",
            backend=backend,
            clock=self.hurry,
            max_bytes=MAX_BYTES,
            inline_bytes=INLINE_BYTES,
            commit_timeout_s=COMMIT_S,
            skip_instance_cache=True,
        )


class Worker:
    """Somebody who does things at random until time is over, and is born again when he dies."""

    dies = DIES

    def __init__(self, place: Place, number: int) -> None:
        self.place = place
        self.truth = place.truth
        self.number = number
        self.sequence = 0
        self.dice = random.Random(number)
        self.below = place.below()
        self.be_born()

    def be_born(self) -> None:
        self.fs = self.place.client(self.below, self.dice, self.dies, LOSES)

    def deeds(self) -> list[tuple[int, Callable[[], None]]]:
        """What he does, and how often."""
        raise NotImplementedError

    def work(self) -> None:
        weights, deeds = zip(*self.deeds(), strict=True)
        while time.monotonic() < self.place.over_at and not self.truth.failures:
            (deed,) = self.dice.choices(deeds, weights)
            try:
                deed()
                self.truth.count(deed.__name__)
            except UNCERTAIN as error:
                self.truth.count(f"{deed.__name__}: {type(error).__name__}")
            except Crashed:
                self.truth.count(f"{deed.__name__}: died")
                self.be_born()
            except Exception:  # noqa: BLE001 - whatever it is, the test fails with it
                self.truth.failures.append(f"{type(self).__name__} {self.number}:\n{traceback.format_exc()}")

    def record(self) -> bytes:
        """Bytes that say whose they are, how many, and whether they are whole."""
        self.sequence += 1
        body = bytes([self.sequence % 251]) * self.dice.choice(SIZES)
        return b"%d %d %d %d\n%b" % (self.number, self.sequence, len(body), zlib.crc32(body), body)

    def log(self) -> str:
        return self.dice.choice(self.place.logs)


class Writer(Worker):
    """Appends, stages, truncates, concatenates, consolidates, moves, deletes, and leaves uploads behind."""

    def __init__(self, place: Place, number: int) -> None:
        super().__init__(place, number)
        self.made = 0

    def deeds(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (40, self.append),
            (6, self.append_late),
            (6, self.abandon),
            (10, self.concat),
            (3, self.truncate),
            (3, self.consolidate),
            (6, self.move_and_delete),
            (6, self.adopt),
        ]

    def append(self) -> None:
        log, data = self.log(), self.record()
        self.truth.acknowledge(log, self.fs.append(log, data), data)

    def append_late(self) -> None:
        """A receipt that has grown older than D: its chunks are copied first."""
        log, data = self.log(), b"".join(self.record() for _ in range(4))
        receipt = self.fs.segment(log).stage(data)
        time.sleep(self.dice.uniform(0, 2))
        self.truth.acknowledge(log, self.fs.segment(log).append(receipt), data)

    def abandon(self) -> None:
        self.fs.segment(self.log()).stage(b"abandoned" * 1000)

    def new_path(self, kind: str) -> str:
        self.made += 1
        return f"{self.place.folder}/{kind}/{self.number}-{self.made}"

    def concat(self) -> None:
        log, sources, data = self.log(), [], b""
        for _ in range(self.dice.randrange(1, 4)):
            sources.append(self.new_path("sources"))
            self.fs.create(sources[-1])
            for _ in range(3):
                record = self.record()
                self.fs.append(sources[-1], record)
                data += record
            self.fs.seal(sources[-1])
        self.truth.acknowledge(log, self.fs.concat(log, sources), data)

    def truncate(self) -> None:
        log = self.log()
        with self.truth.lock:
            done = self.truth.trims[log]
            offsets = sorted(offset for offset, _ in self.truth.acknowledged[log] if offset > done)
            if not offsets:
                return
            offset = self.truth.trims[log] = self.dice.choice(offsets[: len(offsets) // 4 + 1])
        self.fs.truncate(log, offset)

    def consolidate(self) -> None:
        self.fs.segment(self.log()).consolidate()

    def move_and_delete(self) -> None:
        path, data = self.new_path("moved"), self.record() + self.record()
        self.fs.pipe_file(path, data)
        self.fs.mv(path, f"{path}-again")
        assert self.fs.cat_file(f"{path}-again") == data
        self.fs.rm(f"{path}-again")
        assert not self.fs.exists(path)

    def adopt(self) -> None:
        """A plain file that becomes a segment."""
        path, data, more = self.new_path("plain"), self.record(), self.record()
        self.fs._bridge.run(self.fs._backend.write(path, [data]))
        self.fs.append(path, more)
        assert self.fs.cat_file(path) == data + more
        self.fs.rm(path)


class Reader(Worker):
    """Reads with snapshots that grow old; finds whole records only."""

    dies = 0.0

    def deeds(self) -> list[tuple[int, Callable[[], None]]]:
        return [(1, self.read)]

    def read(self) -> None:
        try:
            with self.fs.open(self.log(), "rb") as file:
                data = file.read(file.size // 2)
                time.sleep(self.dice.uniform(0, 1))
                data += file.read()
        except SegmentTruncatedError:
            self.truth.count("read: truncated")
            return
        for _ in records(data):
            pass


class Collector(Worker):
    """Collects the whole tree, or a log and the folders its chunks lie in, with the grace of the format."""

    dies = DIES / 10  # a tree takes many calls

    def deeds(self) -> list[tuple[int, Callable[[], None]]]:
        return [(1, self.collect), (2, self.collect_log)]

    def collect(self) -> None:
        collected = self.fs.collect(self.place.folder, recursive=True, progress=self.note)
        # as UNCERTAIN for other deeds; and a pin that is being written on a disk: the next collection reads it
        admitted = (
            "nothing was written",
            "whether the commit took place is unknown",
            "begins with '' where 'rollingfs-pin",
        )
        assert not [failure for failure in collected.failures if not any(one in failure.reason for one in admitted)]
        time.sleep(self.dice.uniform(0, 1))

    def collect_log(self) -> None:
        log = self.log()
        self.note(log, self.fs.collect(log))

    def note(self, path: str, collected: Collected) -> None:
        self.truth.collected.update(collected.files)


def records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Writer and sequence of all records, each whole."""
    position = 0
    while position < len(data):
        end = data.index(b"\n", position)
        writer, sequence, size, checksum = data[position:end].split(b" ")
        body = data[end + 1 : end + 1 + int(size)]
        assert len(body) == int(size), f"the record at {position} is cut off"
        assert zlib.crc32(body) == int(checksum), f"the record at {position} is damaged"
        yield writer, sequence
        position = end + 1 + int(size)


@pytest.fixture(params=["disk", pytest.param("minio", marks=[pytest.mark.s3, pytest.mark.nightly])])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "disk":
        return Place("file", {}, str(request.getfixturevalue("tmp_path")))
    options = request.getfixturevalue("minio")
    return Place("s3", options, new_bucket(options))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 3 + 240)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # who dies closes no files
def test_no_referenced_chunk_is_ever_deleted_and_no_old_orphan_is_left(place: Place) -> None:
    checker = place.client(place.below())
    for log in place.logs:
        checker.create(log)
    kinds = [Writer] * WRITERS + [Reader] * READERS + [Collector] * COLLECTORS
    workers = [kind(place, number) for number, kind in enumerate(kinds)]
    place.over_at = time.monotonic() + SECONDS
    threads = [threading.Thread(target=worker.work, name=f"worker {worker.number}") for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    truth = place.truth
    print(dict(sorted(truth.counts.items())), f"{len(truth.collected)} files collected")
    assert not truth.failures, "\n".join(truth.failures)
    check_content(place, checker)
    check_no_orphans(place, checker, GRACE_S + 7200)  # dates on S3 are exact to a second, which is an hour here
    place.hurry.jumped_s = 2 * GRACE_S
    check_no_orphans(place, checker, GRACE_S)
    check_content(place, checker)
    for deed in ("append", "append_late", "abandon", "concat", "truncate", "consolidate", "read", "collect"):
        assert truth.counts[deed] > 0, f"not one {deed} in {SECONDS} s"
    assert any("$chunks/stage-" in file for file in truth.collected)


def check_content(place: Place, fs: Any) -> None:
    """Everything that was acknowledged and not truncated is where it was said to be; every chunk is whole."""
    for log in place.logs:
        segment = fs.segment(log)
        data, start = fs.cat_file(log), segment.start
        assert start <= place.truth.trims[log]
        found = list(records(data))
        assert len(found) == len(set(found)), f"{log} has records twice"
        for offset, acknowledged in place.truth.acknowledged[log]:
            if offset >= start:
                assert data[offset - start : offset - start + len(acknowledged)] == acknowledged
            else:
                assert offset + len(acknowledged) <= start, f"{log} begins within a record"
        assert [row for row in segment.verify() if not row.ok] == []


def check_no_orphans(place: Place, fs: Any, age_s: float) -> None:
    """After collection, no file in any chunk folder that was as old before it is named by nobody."""
    now = fs._bridge.run(fs._backend.now(place.folder))
    for _ in range(PASSES):
        collected = fs.collect(place.folder, recursive=True)
        assert collected.failures == ()
    named, files = fs._bridge.run(_survey(fs, list(collected.segments)))
    orphans = {path for path, modified in files.items() if now - modified >= age_s} - named
    assert orphans == set()


async def _survey(fs: Any, segments: list[str]) -> tuple[set[str], dict[str, float]]:
    """Files that headers name; the chunks, pages and leftovers that are there, with their dates."""
    client, named, files = fs._client, set(), {}
    for path in segments:
        header = (await client.headers.load(path)).header
        if header is not None:
            chunks = await client.pages.unfold(path, header.entries)
            named |= {names.resolve(path, entry.file) for entry in (*header.entries, *chunks)}
            named |= {names.resolve(path, drop.file) for drop in header.drops if drop.after_ms}
        try:
            listing = await client.backend.list(names.chunks_folder(path))
        except FileNotFoundError:
            continue
        entries = {entry.path: entry.modified for entry in listing.entries}
        files |= {file: at for file, at in entries.items() if not file.endswith("/lock") and "/pin-" not in file}
    return named, files
