"""A process that works on one segment, and notes what it did and what it was told: `python -P append_worker.py PLAN`.

It notes each call twice, before and after, each by one write: after `kill -9` the notes say which call was under way.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

BODY_SIZES = (0, 10, 100, 3_000, 40_000)
"""Some stay inline, some become a chunk, some roll."""


@dataclass(frozen=True)
class Plan:
    """What one process does, and where."""

    name: str
    role: str
    """`append`, `guarded`, `hold`, `truncate`, `look` or `seal`."""
    path: str
    log: str
    """The file of its notes."""
    cut: str = ""
    """The file in which a truncating process keeps what it cuts off, at the same offsets."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the filesystem."""
    pause_s: float = 0.0
    """Between two calls."""
    body_sizes: tuple[int, ...] = BODY_SIZES

    def dump(self) -> str:
        return json.dumps(asdict(self))


def record(writer: str, number: int, sizes: tuple[int, ...] = BODY_SIZES) -> bytes:
    """The record that a writer appends: a head, and a body of a size that looks random."""
    size = sizes[hashlib.sha256(f"{writer} {number}".encode()).digest()[0] % len(sizes)]
    head = f"{writer} {number} {size}\n".encode()
    return head + (hashlib.sha256(head).digest() * (size // 32 + 1))[:size]


def records(data: bytes, sizes: tuple[int, ...] = BODY_SIZES) -> Iterator[tuple[int, str, int]]:
    """Offset, writer and number of the records in some bytes; fails if one is torn."""
    offset = 0
    while offset < len(data):
        head = bytes(data[offset : data.find(b"\n", offset)]).decode(errors="replace").split()
        assert len(head) == 3, f"no record begins at {offset}: {data[offset : offset + 40]!r}"
        assert head[1].isdigit(), f"no record begins at {offset}: {data[offset : offset + 40]!r}"
        expected = record(head[0], int(head[1]), sizes)
        assert data[offset : offset + len(expected)] == expected, f"a torn record at {offset}: {head}"
        yield offset, head[0], int(head[1])
        offset += len(expected)


class Notes:
    """The notes of one process; each line is one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, **fields: Any) -> None:
        os.write(self._file, json.dumps(fields).encode() + b"\n")


class Worker:
    """Does what a plan says, until it is killed, told to stop, or refused for good."""

    def __init__(self, plan: Plan) -> None:
        import fsspec

        self.plan = plan
        self.notes = Notes(plan.log)
        self.fs = fsspec.filesystem("rolling", skip_instance_cache=True, **plan.options)
        self.numbers = itertools.count()
        self.notes.say(what="ready")

    def run(self) -> None:
        step: Callable[[], bool] = getattr(self, self.plan.role)
        stop = Path(self.plan.log + ".stop")
        while not stop.exists() and step():
            if self.plan.pause_s:
                time.sleep(self.plan.pause_s)
        self.notes.say(what="end")

    def call(self, kind: str, do: Callable[[], Any], *, keeps: bool = True, **fields: Any) -> tuple[str, Any]:
        """Make a call, and note what it was told."""
        from rollingfs.errors import AppendOutcomeUnknown, CommitTimeoutError, RollingError

        number = next(self.numbers) if "number" not in fields else fields.pop("number")
        self.notes.say(what="began", kind=kind, number=number, at=time.monotonic_ns(), **fields)
        told, value, why = "ok", None, ""
        try:
            value = do()
        except AppendOutcomeUnknown as error:
            told, why = "unknown", str(error)
        except (CommitTimeoutError, RollingError) as error:
            told, why = "failed", type(error).__name__
        self.notes.say(
            what="ended", number=number, told=told, value=value if keeps else None, why=why, at=time.monotonic_ns()
        )
        return why if told == "failed" else told, value

    def length(self) -> int:
        segment = self.fs.segment(self.plan.path)
        segment.refresh()
        return int(segment.length)

    # -- roles: each does one step, and says whether to go on ------------------------------------------------------

    def append(self, **how: Any) -> bool:
        number = next(self.numbers)
        data = record(self.plan.name, number, self.plan.body_sizes)
        told, _ = self.call("append", lambda: self.fs.append(self.plan.path, data, **how), number=number, **how)
        return told != "SegmentSealedError"

    def guarded(self) -> bool:
        """Append at the length that was just seen."""
        return self.append(expected_offset=self.length())

    def hold(self) -> bool:
        """Become the owner, append thrice, and let go."""
        told, handle = self.call("acquire", self._acquired, keeps=False)
        for _ in range(3 if told == "ok" else 0):
            number = next(self.numbers)
            data = record(self.plan.name, number, self.plan.body_sizes)
            self.call("append", partial(handle.append, data), number=number)
        if told == "ok":
            self.call("release", handle.release)
        return told != "SegmentSealedError"

    def _acquired(self) -> Any:
        return self.fs.segment(self.plan.path).acquire(self.plan.name)

    def truncate(self) -> bool:
        """Keep what is there, whole records only, then cut it off."""
        segment = self.fs.segment(self.plan.path)
        segment.refresh()
        start, data = segment.start, bytes(segment.read(segment.start, segment.length))
        sizes = self.plan.body_sizes
        size = sum(len(record(writer, number, sizes)) for _, writer, number in records(data, sizes))
        kept = os.open(self.plan.cut, os.O_WRONLY | os.O_CREAT)
        os.pwrite(kept, data[:size], start)
        os.close(kept)
        self.call("truncate", lambda: self.fs.truncate(self.plan.path, start + size))
        return True

    def look(self) -> bool:
        self.call("look", self.length)
        return True

    def seal(self) -> bool:
        self.call("seal", lambda: self.fs.seal(self.plan.path))
        return False


def main() -> None:
    fields = json.loads(sys.argv[1])
    worker = Worker(Plan(**{**fields, "body_sizes": tuple(fields["body_sizes"])}))
    if sys.stdin.readline() != "go\n":  # all begin together; the end of the input is the end of the test
        return
    worker.run()


if __name__ == "__main__":
    main()
