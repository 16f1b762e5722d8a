"""A process that does one verb after another, as drawn, and notes what it was told.

`python -m tests.soak.worker PLACE NAME` starts it.
"""

import json
import random
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rollingfs import (
    AppendInterrupted,
    AppendOutcomeUnknown,
    CorruptChunkError,
    CorruptHeaderError,
    RetentionPolicy,
    RollingError,
    Segment,
    StreamCut,
    core,
)
from rollingfs.stream.upkeep import Upkeep
from tests.soak.plan import SOCKETS_AT_REST_MAX, Place, write_note
from tests.support.descriptors import opened
from tests.support.records import record, records

PART_RECORDS_MAX = 12
GUARDED_SHARE = 0.2
READ_BYTES = 1024 * 1024
READERS = 4
HEALTH_EVERY_S = 5.0
LONG_NOTES = 36
"""A run with so many notes of its health ends with a rest."""
REST_S_MAX = 100.0
"""Pools of connections give up what is idle after 12 s (aiobotocore) or 90 s (obstore)."""
OTHERS = (FileNotFoundError, FileExistsError)
"""What other processes may have done to a segment meanwhile."""


class Worker:
    """One process: its filesystem, its notes, and a method for each verb that may be drawn."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.fs = place.open()
        self.note = partial(write_note, place, name)
        self.random = random.Random(name)
        self.count = 0
        self.own: list[tuple[str, int, int]] = []
        """Path, offset and number of own appends to logs."""
        self.stream = self.fs.stream(place.folder)
        self.past: StreamCut | None = None
        self.core = core(self.fs)
        self.kept = Upkeep(self.core.client)

    def run(self) -> None:
        verbs, weights = [tolerant(verb) for verb in VERBS], list(VERBS.values())
        told_s, count = -HEALTH_EVERY_S, 0
        while not self.place.stop.exists():
            try:
                self.random.choices(verbs, weights)[0](self)
                if time.monotonic() - told_s > HEALTH_EVERY_S:
                    told_s = time.monotonic()
                    self.note(health=self._health())
                    count += 1
            except KeyboardInterrupt:
                pass  # noted where it matters; the next verb shows whether the process is sound
            except Exception:  # noqa: BLE001 - whatever it is, the soak fails
                self.note(fault=traceback.format_exc())
        if count >= LONG_NOTES:
            self.note(rest=self._rested())

    def _rested(self) -> int:
        """How many sockets stay when nothing goes on."""
        until_s = time.monotonic() + REST_S_MAX
        while (sockets := self._health()["sockets"]) > SOCKETS_AT_REST_MAX and time.monotonic() < until_s:
            time.sleep(1.0)
        return sockets

    def _health(self) -> dict[str, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        names = opened()
        sockets = sum(name.startswith("socket:") for name in names)
        counts = {"files": len(names) - sockets, "sockets": sockets, "threads": threading.active_count()}
        return {"rss": pages * resource.getpagesize(), **counts}

    # -- appends, which are noted before and after ------------------------------------------------------------

    def _append(self, path: str, handle: Segment | None = None, **how: Any) -> int | None:
        """Append a record; its offset, None if it is not known to be there."""
        self.count += 1
        number, append = self.count, partial(self.fs.append, path) if handle is None else handle.append
        self.note(path=path, number=number, at=time.monotonic_ns(), **how)
        try:
            offset = int(append(record(self.name, number), **how))
        except (AppendOutcomeUnknown, AppendInterrupted) as error:
            if getattr(error, "outcome", "") == "not committed":
                self.note(number=number, void=str(error))
            if isinstance(error, KeyboardInterrupt):
                raise
            return None
        except (*OTHERS, RollingError) as error:
            self.note(number=number, void=str(error))
            return None
        self.note(number=number, offset=offset, at=time.monotonic_ns())
        return offset

    def append(self) -> None:
        path, how = self.random.choice(self.place.logs), {}
        if self.random.random() < GUARDED_SHARE:
            how["expected_offset"] = self.fs.segment(path).length
        offset = self._append(path, **how)
        if offset is not None:
            self.own.append((path, offset, self.count))

    def hold(self) -> None:
        """Become the owner of a log, append thrice, and let go; if the process dies, the next owner takes over."""
        handle = self.fs.segment(self.place.logs[0]).acquire(self.name)
        for _ in range(3):
            self._append(handle.path, handle)
        handle.release()

    def merge(self) -> None:
        """A part of some records that is sealed, perhaps renamed, and joined to a segment of all."""
        path = self._new("parts")
        self.fs.create(path)
        for _ in range(self.random.randint(1, PART_RECORDS_MAX)):
            self._append(path)
        self._join(path)

    def adopt(self) -> None:
        """A plain file of another program becomes a segment by its first append, and is joined."""
        path = self._new("parts")
        self.note(path=path, number=self.count, at=time.monotonic_ns())
        self.core.run(self.core.backend.put(path, record(self.name, self.count)))
        self.note(number=self.count, offset=0, at=time.monotonic_ns())
        self._append(path)
        self._join(path)

    def _new(self, folder: str) -> str:
        """A path that no other worker has, in one of the folders."""
        self.count += 1
        return f"{self.place.root}/{folder}/{self.name}-{self.count}"

    def _any(self) -> str:
        """A segment of all workers."""
        return self.random.choice([*self.place.logs, self.place.merged])

    def _join(self, path: str) -> None:
        if self.random.random() < 0.5:
            self.note(moved=path, to=f"{path}-moved")
            self.fs.mv(path, f"{path}-moved")
            path = f"{path}-moved"
        self.fs.seal(path)
        self.fs.concat(self.place.merged, [path])
        assert not self.fs.exists(path), f"{path} is there, and {self.place.merged} has it"

    def scratch(self) -> None:
        """A segment that lives for a moment, and leaves nothing."""
        path = self._new("scratch")
        data = record(self.name, self.count)
        self.fs.pipe_file(path, data)
        assert self.fs.cat_file(path) == data
        self.fs.append(path, data)
        self.fs.truncate(path, len(data), erase=self.random.random() < 0.5)
        self.fs.rm(path)
        assert not self.fs.exists(path)

    def retain(self) -> None:
        """A stream of its own, of which retention leaves the newest bytes."""
        folder = self._new("scratch")
        whole = {f"{folder}/{name}": b"".join(record(self.name, at) for at in range(3)) for name in "ab"}
        for path, data in whole.items():
            self.fs.pipe_file(path, data)
        stream = self.fs.stream(folder)
        stream.retention = RetentionPolicy(keep_bytes=1)
        stream.retain()
        for path, data in whole.items():
            self.fs.append(path, data)
            assert (data + data).endswith(self.fs.cat_file(path)), path
        self.fs.rm(folder, recursive=True)
        assert not self.fs.exists(folder)

    # -- what reads -------------------------------------------------------------------------------------------

    def read(self) -> None:
        """An own record is at its offset, unless a truncation has passed it."""
        if not self.own:
            return
        path, offset, number = self.random.choice(self.own)
        data, segment = record(self.name, number), self.fs.segment(path)
        if segment.start > offset:
            self.own.remove((path, offset, number))
            return
        try:
            found = segment.read(offset, offset + len(data))
        except RollingError:
            segment.refresh()
            if segment.start <= offset:
                raise
            return
        assert found == data, f"{path}: {self.name} {number} is not at {offset}"

    def look(self) -> None:
        for info in self.fs.ls(self.place.folder):
            assert info["type"] == "file", info
        path = self._any()
        with self.fs.open(path, "rb") as file:
            file.read(READ_BYTES)

    def tail(self) -> None:
        """A reader that follows finds an own record, or the truncation that took it."""
        if self.own:
            path, offset, number = self.random.choice(self.own)
            data, found = record(self.name, number), b""
            for piece in self.fs.segment(path).tail(offset, follow=False):
                found += piece
                if len(found) >= len(data):
                    break
            assert found.startswith(data), f"{path}: the tail from {offset} does not begin by {self.name} {number}"

    def export(self) -> None:
        target = self._new("scratch")
        self.fs.export(self._any(), target)
        list(records(self.fs.cat_file(target)))  # a torn one fails
        self.fs.rm(target)

    def verify(self) -> None:
        path = self._any()
        bad = [row for row in self.fs.segment(path).verify() if not row.ok]
        if bad:  # a chunk that a truncation took meanwhile is not there
            time.sleep(0.2)
            assert not {row.file for row in bad} & {chunk.file for chunk in self.fs.segment(path).chunks}, bad

    # -- what changes the form, and no byte -------------------------------------------------------------------

    def truncate(self) -> None:
        if self.own:
            path, offset, _ = self.own[len(self.own) // 2]
            if self.fs.segment(path).start < offset:
                self.note(truncates=path, offset=offset)
                self.fs.truncate(path, offset)

    def cut(self) -> None:
        """Publish a position in all logs, for a trim later."""
        self.past = self.stream.cut()
        self.stream.publish(f"reader {self.random.randrange(READERS)}", self.past)
        self.stream.subscribers()

    def trim(self) -> None:
        if self.past is not None:
            for path, offset in self.past.items():
                self.note(truncates=path, offset=offset)
            self.stream.trim(self.past)

    def upkeep(self) -> None:
        """A round of ``rollingfs run``; what it could not do is noted."""
        for folder in self.core.run(self.kept.folders(self.place.root)):
            for did in self.core.run(self.kept.keep(folder)):
                for what, why in did.failed.items():
                    self.note(refused=f"upkeep: {what.partition(' ')[0]}", error=why)
                    assert "checksum" not in why, (what, why)

    def consolidate(self) -> None:
        self.fs.segment(self._any()).consolidate()

    def offload(self) -> None:
        segment = self.fs.segment(self._any())
        segment.offload("cold") if self.random.random() < 0.7 else segment.onload()

    def roll(self) -> None:
        self.fs.roll(self.random.choice(self.place.logs))

    def collect(self) -> None:
        self.fs.collect(self.place.root, recursive=True)


VERBS: dict[Callable[[Worker], None], int] = {
    Worker.append: 100,
    Worker.read: 20,
    Worker.hold: 2,
    Worker.merge: 4,
    Worker.adopt: 1,
    Worker.scratch: 2,
    Worker.retain: 1,
    Worker.cut: 2,
    Worker.trim: 1,
    Worker.upkeep: 1,
    Worker.tail: 4,
    Worker.export: 1,
    Worker.look: 4,
    Worker.verify: 1,
    Worker.truncate: 3,
    Worker.consolidate: 2,
    Worker.offload: 2,
    Worker.roll: 1,
    Worker.collect: 1,
}
"""How often each is drawn."""


def tolerant(verb: Callable[[Worker], None]) -> Callable[[Worker], None]:
    """The verb, where an error that says what is true now is an outcome; it is noted."""

    def run(worker: Worker) -> None:
        try:
            verb(worker)
        except (CorruptHeaderError, CorruptChunkError):
            raise
        except (RollingError, TimeoutError, *OTHERS) as error:  # a store under load does not answer in time
            worker.note(refused=verb.__name__, error=f"{type(error).__name__}: {error}")

    return run


if __name__ == "__main__":
    Worker(Place(**json.loads(sys.argv[1])), sys.argv[2]).run()
