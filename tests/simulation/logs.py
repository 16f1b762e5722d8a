"""Shippers of two growing logs, beside the segments of the model: each line is shipped once, in order."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from rollingfs import RollingFileSystem
from rollingfs.ship import Shipper, generations, lineage
from tests.simulation.history import Violation
from tests.simulation.witness import SHIPPED
from tests.support.simulation import EPOCH_S, NS

FOLDER = "/machine"
LOGS = (f"{FOLDER}/a.log", f"{FOLDER}/b.log")
SEGMENT = f"{SHIPPED}all"
LINES_MAX, PAD_BYTES_MAX = 4, 30
RENAME_SHARE, CUT_SHARE = 0.1, 0.05
PATIENCE_S_MAX = 60.0
"""How long a shipper waits for a store that fails, until somebody ends it."""


@dataclass
class Node:
    """A file of the machine."""

    inode: int
    data: bytes
    mtime_ns: int


class Machine:
    """Stands in for `os`: files in memory, so that a seed gives each the same inode and time."""

    O_RDONLY = O_CLOEXEC = 0
    path = os.path

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self._open: dict[int, Node] = {}
        self._numbers = itertools.count(1)
        self._now_ns = 0

    def now_ns(self) -> int:
        """Return the time, later than any before."""
        self._now_ns = max(self._now_ns + 1, int(self.time() * NS))
        return self._now_ns

    def time(self) -> float:
        """Stand in for `time.time`."""
        return EPOCH_S + time.monotonic()

    def write(self, path: str, data: bytes) -> None:
        """Append to a file, or begin it."""
        node = self.names.setdefault(path, Node(next(self._numbers), b"", 0))
        node.data, node.mtime_ns = node.data + data, self.now_ns()

    # -- as of os ------------------------------------------------------------------------------------------------

    def open(self, path: str, _: int) -> int:
        node = self._node(path)
        self._open[descriptor := next(self._numbers)] = node
        return descriptor

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        return self._open[descriptor].data[offset : offset + size]

    def fstat(self, descriptor: int) -> SimpleNamespace:
        node = self._open[descriptor]
        return SimpleNamespace(
            st_ino=node.inode, st_mode=stat.S_IFREG, st_size=len(node.data), st_mtime_ns=node.mtime_ns
        )

    def stat(self, path: str) -> SimpleNamespace:
        self._open[0] = self._node(path)
        return self.fstat(0)

    def listdir(self, folder: str) -> list[str]:
        return [os.path.basename(path) for path in self.names if os.path.dirname(path) == folder]

    def _node(self, path: str) -> Node:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self.names[path]


class Shipping:
    """The logs of a machine, what was written to each, and a shipper for each process."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.written: defaultdict[str, list[bytes]] = defaultdict(list)
        self.shippers: dict[int, Shipper] = {}
        """By the id of the filesystem of a process: two of them are equal."""
        self.busy: set[int] = set()

    @contextlib.contextmanager
    def instead_of_disk(self) -> Iterator[None]:
        """Let shippers see the machine."""
        clock = SimpleNamespace(time=self.machine.time, monotonic=time.monotonic)
        with (
            mock.patch.object(generations, "os", self.machine),
            mock.patch.object(generations, "read_at", self.machine.pread),
            mock.patch.object(lineage, "time", clock),
        ):
            yield

    def change(self, chance: random.Random) -> None:
        """Write lines to a log, or rotate it."""
        log, kind, names = chance.choice(LOGS), chance.random(), self.machine.names
        if kind < RENAME_SHARE + CUT_SHARE and log in names:
            for number in range(len(names), 0, -1):
                if f"{log}.{number}" in names:
                    names[f"{log}.{number + 1}"] = names.pop(f"{log}.{number}")
            if kind < RENAME_SHARE:
                names[f"{log}.1"] = names.pop(log)
            else:
                self.machine.write(f"{log}.1", names[log].data)
                names[log].data, names[log].mtime_ns = b"", self.machine.now_ns()
        for _ in range(chance.randint(1, LINES_MAX)):
            line = b"%s %d %s\n" % (log[-5:-4].encode(), len(self.written[log]), b"x" * chance.randrange(PAD_BYTES_MAX))
            self.written[log].append(line)
            self.machine.write(log, line)

    def ship(self, fs: RollingFileSystem) -> None:
        """Let the shipper of a process look and commit; one that has ended is started anew."""
        process = id(fs)
        if process in self.busy:
            return
        self.busy.add(process)
        try:
            shipper = self.shippers.setdefault(process, self._shipper(fs))
            until_s = time.monotonic() + PATIENCE_S_MAX
            shipper._stop = lambda: time.monotonic() > until_s
            shipper.step(flush=True)
            try:
                for lag in shipper.lags():
                    if lag.error is not None:
                        shipper._end()
            except (OSError, ValueError):
                del self.shippers[process]
                raise
        finally:
            self.busy.discard(process)

    def _shipper(self, fs: RollingFileSystem) -> Shipper:
        return Shipper(fs, LOGS, SEGMENT, into=True, say=lambda text: None)

    def check(self, fs: RollingFileSystem) -> None:
        """Ship what is left, and compare all lines with what was written."""
        self._shipper(fs).once()
        came = fs.cat_file(SEGMENT).splitlines(keepends=True)
        for log in LOGS:
            found: list[Any] = [line for line in came if line.startswith(log[-5:-4].encode())]
            if found != self.written[log]:
                raise Violation(f"{log}: shipped {found}, written {self.written[log]}")
