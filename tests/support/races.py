"""Races of real processes on one segment: who takes part, who is killed or stopped, and what must be true at the end.

Nothing here depends on speed or luck: after each event the test waits until the processes that live have gone on.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rollingfs import RollingFileSystem
from tests.support import append_worker
from tests.support.append_worker import Plan, record, records
from tests.support.history import Call, Setsum, check_conserved, check_history

WORKER = Path(append_worker.__file__)
EVIDENCE_S_MAX = 180
"""A process that has not gone on for so long never will: this is no measure of speed."""
POLL_S = 0.02
NAP_S_MAX = 0.3
"""On a disk, a process that is stopped within a commit blocks the others; so it is woken without waiting for them."""


@dataclass(frozen=True)
class Arena:
    """The segment of a race."""

    protocol: str
    options: dict[str, Any]
    path: str
    max_bytes: int = 32 * 1024
    inline_bytes: int = 2 * 1024

    @property
    def fs_options(self) -> dict[str, Any]:
        return {
            "target_protocol": self.protocol,
            "target_options": self.options,
            "max_bytes": self.max_bytes,
            "inline_bytes": self.inline_bytes,
            **({"sync": False} if self.protocol == "file" else {}),
        }

    def open(self) -> Any:
        """A filesystem of its own."""
        return RollingFileSystem(**self.fs_options, skip_instance_cache=True)


@dataclass(frozen=True)
class Member:
    """What kind of process takes part."""

    role: str = "append"
    shares: bool = False
    """Whether it shares commits."""
    pause_s: float = 0.0


class Race:
    """Processes on one segment. Use it as a context: it kills those that are left."""

    def __init__(self, arena: Arena, folder: Path, seed: int = 1) -> None:
        self.arena, self.folder = arena, folder
        self.chance = random.Random(seed)
        self.members: dict[str, Member] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._names = itertools.count()
        arena.open().create(arena.path)

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)

    # -- who takes part -----------------------------------------------------------------------------------------

    def join(self, *members: Member) -> list[str]:
        """Start processes, wait until all are ready, and let them begin together; gives their names."""
        names = [self._start(member) for member in members]
        for name in names:
            self.wait(lambda name=name: self._said(name, "ready"), f"{name} is ready")  # type: ignore[misc]
        for name in names:
            pipe = self._running[name].stdin
            assert pipe is not None
            pipe.write("go\n")
            pipe.flush()
        return names

    def _start(self, member: Member) -> str:
        name = f"{member.role}-{next(self._names)}"
        options = self.arena.fs_options | ({"share_commits": True} if member.shares else {})
        log, cut = str(self.folder / name), str(self.folder / "cut")
        plan = Plan(name, member.role, self.arena.path, log, cut, options, member.pause_s)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [sys.executable, "-P", str(WORKER), plan.dump()]
        with (self.folder / f"{name}.err").open("w") as errors:
            self._running[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stderr=errors, text=True
            )
        self.members[name] = member
        return name

    @property
    def living(self) -> list[str]:
        return list(self._running)

    def of(self, *roles: str) -> list[str]:
        """The names of the living processes of some roles."""
        return [name for name in self._running if self.members[name].role in roles]

    # -- events -------------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.communicate()

    def stop(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGSTOP)

    def wake(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    def nap(self) -> None:
        """Let a random time pass: events come at any moment of a commit."""
        time.sleep(self.chance.random() * NAP_S_MAX)

    def all_go_on(self, names: Iterable[str], count: int = 1) -> None:
        """Wait until each of these has been acknowledged so many more calls than it is now."""
        goals = {name: self._acks(name) + count for name in names}
        for name, goal in goals.items():
            self.wait(lambda name=name, goal=goal: self._acks(name) >= goal, f"{name} goes on")  # type: ignore[misc]

    def wait(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + EVIDENCE_S_MAX
        while not is_done():
            assert time.monotonic() < deadline, f"waited {EVIDENCE_S_MAX} s: {what}"
            for name, process in self._running.items():
                if process.poll() not in (None, 0):
                    raise AssertionError(f"{name} failed: {(self.folder / f'{name}.err').read_text()}")
            time.sleep(POLL_S)

    def finish(self) -> None:
        """Let all end their calls, and wait for them."""
        for name in self._running:
            (self.folder / f"{name}.stop").touch()
        self.ended(self.living)

    def ended(self, names: Iterable[str]) -> None:
        """Wait until these have ended by themselves."""
        for name in names:
            self.wait(lambda name=name: self._running[name].poll() == 0, f"{name} ends")  # type: ignore[misc]
            self._running.pop(name).communicate()

    # -- what they say ------------------------------------------------------------------------------------------

    def notes(self, name: str) -> list[dict[str, Any]]:
        log = self.folder / name
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        return [json.loads(line) for line in lines]

    def _said(self, name: str, what: str) -> bool:
        return any(note["what"] == what for note in self.notes(name))

    def _acks(self, name: str) -> int:
        return sum(note["what"] == "ended" and note["told"] == "ok" for note in self.notes(name))

    def calls(self) -> list[Call]:
        """All calls of all processes, also of the dead."""
        calls = []
        for name in self.members:
            open_calls: dict[int, Call] = {}
            for note in self.notes(name):
                if note["what"] == "began":
                    expected = note.get("expected_offset")
                    number = note["number"]
                    open_calls[number] = Call(name, number, note["kind"], note["at"], expected=expected)
                elif note["what"] == "ended":
                    call = open_calls.pop(note["number"])
                    calls.append(replace(call, ended=note["at"], told=note["told"], value=note["value"]))
            calls += open_calls.values()
        return calls

    # -- the end ------------------------------------------------------------------------------------------------

    def check(self) -> list[Call]:
        """Check what all were told against what is there; gives all calls."""
        segment = self.arena.open().segment(self.arena.path)
        kept, cut = self.folder / "cut", segment.start
        truncated = kept.read_bytes()[:cut] if kept.exists() else b""
        assert len(truncated) == cut, "more was truncated than anybody cut off"
        live = bytes(segment.read(cut, segment.length))
        gone, left = list(records(truncated)), list(records(live))
        there = gone + [(cut + offset, writer, number) for offset, writer, number in left]
        calls = self.calls()
        check_history(calls, there)
        names = {(writer, number) for _, writer, number in there}
        appends = [call for call in calls if call.kind == "append"]
        acked = Setsum.of(record(*call.name) for call in appends if call.told == "ok")
        unknown = Setsum.of(record(*call.name) for call in appends if call.told == "unknown" and call.name in names)
        check_conserved(acked, unknown, Setsum.of(_split(live, left)), Setsum.of(_split(truncated, gone)))
        return calls


def _split(data: bytes, found: list[tuple[int, str, int]]) -> list[bytes]:
    """The bytes of each record, as they lie there."""
    offsets = [offset for offset, _, _ in found]
    return [data[begin:end] for begin, end in itertools.zip_longest(offsets, offsets[1:])]
