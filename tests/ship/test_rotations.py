"""A writer of numbered lines, every rotation, and two shippers that are killed: each line comes once, in order."""

import contextlib
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rollingfs import RollingFileSystem
from rollingfs.ship import Shipper, generations, lineage, route, sender, shipper as shipping
from tests.support.backends import Scripted, fail, private_memory
from tests.support.examples import examples
from tests.support.faults import VirtualTime

SEGMENT = "/logs/app"
KEPT = 6
"""Rotated files that stay."""
WRITE_NS = 300_000_000
"""Time between two writes: several in the same second."""


class Killed(BaseException):
    """The shipper's process is gone."""


CLOCK = VirtualTime()


class World(RuleBasedStateMachine):
    """A log, and two shippers of it."""

    options: ClassVar[dict[str, Any]] = {}
    """Of the shippers."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.log = self.folder / "app.log"
        self.stores = [Scripted(private_memory())]
        self.stores.append(Scripted(self.stores[0].inner))
        self.shippers: list[Shipper | None] = [None, None]
        self.written = 0
        self.now_ns = 1_700_000_000 * 10**9
        self.lost: set[int] = set()
        """Lines that were destroyed before they were in the segment."""

    # -- the log -------------------------------------------------------------------------------------------

    def stamp(self, path: Path) -> None:
        self.now_ns += WRITE_NS if path == self.log else 10**9
        at_ns = self.now_ns // self.unit_ns * self.unit_ns
        os.utime(path, ns=(at_ns, at_ns))

    def line(self, number: int, pad: int) -> bytes:
        return b"%d %s\n" % (number, b"x" * pad)

    def append(self, count: int, pad: int) -> None:
        with self.log.open("ab") as file:
            for _ in range(count):
                self.written += 1
                file.write(self.line(self.written, pad))
        self.stamp(self.log)

    @initialize(unit_ns=st.sampled_from([1, 10**9]))
    def first(self, unit_ns: int) -> None:
        self.unit_ns = unit_ns  # some disks keep whole seconds of a time
        self.append(1, 3)
        self.ship(0, None, 0)  # from its first commit on, a shipper answers for the log

    @rule(count=st.integers(1, 4), pad=st.sampled_from([0, 3, 700]))
    def write(self, count: int, pad: int) -> None:
        self.append(count, pad)

    @rule(pad=st.sampled_from([0, 700]))
    def write_in_two(self, pad: int) -> None:
        """A line whose end comes after a look."""
        self.written += 1
        line = self.line(self.written, pad)
        for part in (line[:1], line[1:]):
            with self.log.open("ab") as file:
                file.write(part)
            self.stamp(self.log)
            if part == line[:1]:
                self.ship(0, None, 0)

    def numbers(self, path: Path) -> set[int]:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return {int(line.split()[0]) for line in data.strip(b"\0").splitlines()}

    def destroy(self, path: Path) -> None:
        self.lost |= self.numbers(path) - set(self.shipped())
        path.unlink()

    def shift(self) -> Path:
        """Make room for the newest rotated file."""
        for number in range(KEPT, 0, -1):
            for ending in ("", ".gz"):
                path = self.folder / f"app.log.{number}{ending}"
                if path.exists():
                    if number == KEPT:
                        self.destroy(path)
                    else:
                        path.rename(self.folder / f"app.log.{number + 1}{ending}")
        return self.folder / "app.log.1"

    @rule(creates=st.booleans())
    def rename(self, creates: bool) -> None:
        self.now_ns += 10**9
        if self.log.exists():
            self.log.rename(self.shift())
        if creates:
            self.log.touch()
            self.stamp(self.log)
        else:
            self.append(1, 3)

    @rule(keeps_time=st.booleans(), behind=st.integers(0, 2))
    def copytruncate(self, keeps_time: bool, behind: int) -> None:
        """With lines that come after the copy and before the cut: they are lost unless they were shipped."""
        if not self.log.exists():
            return
        copy = self.shift()
        self.now_ns += 10**9
        (shutil.copy2 if keeps_time else shutil.copyfile)(self.log, copy)
        if not keeps_time:
            self.stamp(copy)
        if behind:
            before = self.numbers(self.log)
            self.append(behind, 3)
            self.ship(0, None, 0)
            self.lost |= self.numbers(self.log) - before - set(self.shipped())
        os.truncate(self.log, 0)
        self.stamp(self.log)

    @rule(keeps_ns=st.booleans())
    def compress(self, keeps_ns: bool) -> None:
        path = self.folder / "app.log.1"
        if path.exists() and path.stat().st_size:
            status = path.stat()
            packed = self.folder / "app.log.1.gz"
            packed.write_bytes(gzip.compress(path.read_bytes()))
            at_ns = status.st_mtime_ns if keeps_ns else status.st_mtime_ns // 10**9 * 10**9
            os.utime(packed, ns=(at_ns, at_ns))
            path.unlink()

    @rule()
    def replace(self) -> None:
        """Put a longer copy in its place, as rsync does."""
        if self.log.exists():
            away = self.folder / "elsewhere"
            shutil.copy2(self.log, away)
            away.rename(self.log)
            self.append(1, 3)

    @rule()
    def delete(self) -> None:
        if self.log.exists():
            self.destroy(self.log)
            self.now_ns += 10**9
            self.append(1, 3)

    @rule(count=st.integers(1, 3))
    def write_over(self, count: int) -> None:
        """The same inode, with other lines."""
        if self.log.exists():
            self.lost |= self.numbers(self.log) - set(self.shipped())
            os.truncate(self.log, 0)
            self.append(count, 3)

    @rule()
    def inode_comes_back(self) -> None:
        """Another file gets the inode of one that was deleted."""
        if self.log.exists():
            self.lost |= self.numbers(self.log) - set(self.shipped())
            away = self.folder / "elsewhere"
            self.log.rename(away)
            self.ship(0, None, 0)
            os.truncate(away, 0)
            away.rename(self.log)
            self.append(1, 3)

    # -- the shippers --------------------------------------------------------------------------------------

    def shipped(self) -> list[int]:
        fs = RollingFileSystem(backend=self.stores[0].inner, skip_instance_cache=True)
        return [int(line.split()[0]) for line in fs.cat_file(SEGMENT).splitlines()] if fs.exists(SEGMENT) else []

    def step(self, which: int, stop: Callable[[], bool] = bool) -> None:
        CLOCK.sleep(1.5)
        if self.shippers[which] is None:
            fs = RollingFileSystem(backend=self.stores[which], skip_instance_cache=True, commit_timeout_s=0.05)
            self.shippers[which] = Shipper(fs, [str(self.log)], SEGMENT, say=lambda line: None, **self.options)
        self.shippers[which]._stop = stop  # a commit whose process is gone is not tried again
        self.shippers[which].step(flush=True)

    @rule(which=st.integers(0, 1), how=st.sampled_from([None, "before", "after"]), skips=st.integers(0, 4))
    def ship(self, which: int, how: str | None, skips: int) -> None:
        store = self.stores[which]
        if how is not None:
            store.plan(("create", "replace", "read", "extend"), "$header", skips=skips, **{how: fail})
        self.step(which)
        store.plans.clear()

    @rule(which=st.integers(0, 1), how=st.sampled_from(["before", "after"]), skips=st.integers(0, 4))
    def kill(self, which: int, how: str, skips: int) -> None:
        store = self.stores[which]
        is_dead = False

        def kill() -> bool:
            nonlocal is_dead
            if is_dead:
                raise Killed
            return False

        def die() -> None:
            nonlocal is_dead
            is_dead = True
            raise Killed

        store.plan((), "$header", skips=skips, times=None, **{how: die})
        with contextlib.suppress(Killed):
            self.step(which, kill)
        store.plans.clear()
        self.end(which)

    def end(self, which: int) -> None:
        if self.shippers[which] is not None:
            self.shippers[which].close()
            self.shippers[which] = None

    # -- the rule ------------------------------------------------------------------------------------------

    @invariant()
    def each_line_comes_once_and_in_order(self) -> None:
        shipped = self.shipped()
        assert shipped == sorted(set(shipped)), shipped

    def teardown(self) -> None:
        try:
            for which in (0, 1, 0, 1):
                for _ in range(2 * KEPT):
                    self.step(which)
            missing = set(range(1, self.written + 1)) - set(self.shipped())
            assert missing <= self.lost, sorted(missing - self.lost)
            self.each_line_comes_once_and_in_order()
        finally:
            self.end(0)
            self.end(1)
            shutil.rmtree(self.folder)


def test_every_line_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (generations, lineage, sender, route, shipping):
        monkeypatch.setattr(module, "time", CLOCK, raising=False)
    run_state_machine_as_test(
        World, settings=settings(max_examples=examples(200), stateful_step_count=20, deadline=None)
    )
