"""Forced schedules: something happens at the nth line that a thread executes in the core."""

import contextlib
import linecache
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Happening = Callable[[], object]
HELD_S_MAX = 20.0
"""Only a broken test holds a lock so long."""
SOON_S_MAX = 120.0
PARTS = (
    *(f"segment/commit/{name}" for name in ("commits", "attempt", "recovery", "turns", "store", "chunk_files")),
    *("segment/write/group_commit", "segment/write/append_to_header"),
)
APPENDING = tuple(f"rollingfs/{part}.py" for part in PARTS)
"""The files that an append and its commit are written in."""
COMMIT = ("/contextlib.py", "rollingfs/runtime/concurrency.py", *APPENDING)
"""The files through which a commit runs."""


def interrupt() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def eventually(
    holds: Callable[[], Any], s_max: float = SOON_S_MAX, said: Callable[[], str] = str, process: Any = None
) -> Any:
    """Wait for the first answer that is true; fail if it is late, or a process ends before, with what was said."""
    until_s, pause_s = time.monotonic() + s_max, 0.001
    while not (found := holds()):
        assert process is None or process.poll() is None, f"the process has ended: {said()}"
        assert time.monotonic() < until_s, f"it did not come to pass within {s_max} s: {said()}"
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)
    return found


@contextlib.contextmanager
def at_line(nth: int, happen: Happening, *files: str, when: Callable[[], object] | None = None) -> Iterator[list[str]]:
    """Call `happen` before the nth line that this thread executes in these files; gives the line met.

    The second visit of a ``with`` line does not count: the interpreter calls `__exit__` there, and looks for
    signals only afterwards.

    Parameters
    ----------
    when
        Lines count only while this returns true.
    """
    for file in files:
        assert file.startswith("/") or (ROOT / file).is_file(), f"{file} has moved: no line of it would be met"
    met: list[str] = []
    count = 0
    visited: dict[FrameType, set[int]] = {}

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        file = frame.f_code.co_filename
        if not file.endswith(files):
            return None
        if event != "line" or met:
            return trace
        if linecache.getline(file, frame.f_lineno).lstrip().startswith(("with ", "async with ")):
            lines = visited.setdefault(frame, set())
            if frame.f_lineno in lines:
                return trace
            lines.add(frame.f_lineno)
        if when is not None and not when():
            return trace
        count += 1
        if count == nth:
            met.append(f"{file}:{frame.f_lineno}")
            happen()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield met
    finally:
        sys.settrace(before)


def beside(
    patch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    before: Callable[..., object] | None = None,
    after: Callable[..., object] | None = None,
    *,
    once: bool = False,
) -> None:
    """Let something happen before or after a call of a function, each or the first; it gets the arguments."""
    real = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        if once:
            patch.setattr(owner, name, real)
        if before is not None:
            before(*args, **options)
        answer = real(*args, **options)
        if after is not None:
            after(*args, **options)
        return answer

    patch.setattr(owner, name, call)


def count_at_once(patch: pytest.MonkeyPatch, owner: object, name: str) -> Counter[str]:
    """The calls of a coroutine function that are under way: `now`, and at `most` so far."""
    real, calls = getattr(owner, name), Counter[str]()

    async def counted(*args: Any, **options: Any) -> Any:
        calls["now"] += 1
        calls["most"] = max(calls.values())
        try:
            return await real(*args, **options)
        finally:
            calls["now"] -= 1

    patch.setattr(owner, name, counted)
    return calls


class Caller(threading.Thread):
    """A thread with an outcome: what its call returned or raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.outcome: object = None

    def run(self) -> None:
        try:
            self.outcome = self.call()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - it is the outcome
            self.outcome = error


def in_threads(*calls: Callable[[], object]) -> list[Any]:
    """What each of some calls returns or raises, all at once."""
    callers = [Caller(call) for call in calls]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return [caller.outcome for caller in callers]


@contextlib.contextmanager
def held_elsewhere(lock: contextlib.AbstractContextManager[object]) -> Iterator[threading.Thread]:
    """Another thread is inside a lock, until the block ends."""
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            may_end.wait(HELD_S_MAX)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(HELD_S_MAX)
    try:
        yield holder
    finally:
        may_end.set()
        holder.join()
