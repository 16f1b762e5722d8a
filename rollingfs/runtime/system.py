"""Facts, calls and clocks of the operating system, except the calls of a disk: `backend/local/system.py`.

No other module asks for the platform, for ``/proc``, or for an attribute of `os` (`tests/test_system_calls.py`).
"""

from __future__ import annotations

import _imp
import contextlib
import errno
import importlib._bootstrap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rollingfs.runtime.values import value_class

HANDLES_SIGTERM = HAS_OWNERS = os.name == "posix"
HAS_LEASES = sys.platform == "linux"
READER_GONE = frozenset({errno.EPIPE} if os.name == "posix" else {errno.EPIPE, errno.EINVAL})
"""Errors of a write to a pipe without a reader."""
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
"""Flag of `os.open` that does not wait for the writer of a named pipe."""
_FILES_MAX_MACOS = 10_240
"""Most open files of a process that macOS takes as a limit; it refuses "unlimited" (`OPEN_MAX`)."""
Hook = Callable[[], object]


def at_fork(*, before: Hook | None = None, in_parent: Hook | None = None, in_child: Hook) -> None:
    """Register what is called around a fork; Windows has no forks."""
    if os.name == "posix":
        hooks = {"before": before, "after_in_parent": in_parent, "after_in_child": in_child}
        os.register_at_fork(**{name: hook for name, hook in hooks.items() if hook is not None})


IMPORTS_S_MAX = 5.0
"""Longest wait for other threads' imports before a fork; the fork follows in any case."""
IMPORTS_POLL_S = 0.0005
_LOCKS: dict[str, Callable[[], Any]] = getattr(importlib._bootstrap, "_module_locks", {})
"""Python's locks of the modules that are imported now, by weak references."""


def _owners() -> dict[str, int | None]:
    """Return the threads that import modules."""
    return {name: getattr(found(), "owner", None) for name, found in _LOCKS.copy().items()}


def _imports_for_us(name: str, frame: FrameType | None) -> bool:
    """Return whether code of ours is imported, or imports."""
    is_outside = name.startswith("rollingfs")
    is_inside = False
    while frame is not None and not is_outside:
        is_inside = is_inside or frame.f_globals is vars(importlib._bootstrap)
        is_outside = is_inside and str(frame.f_globals.get("__name__")).startswith("rollingfs")
        frame = frame.f_back
    return is_outside


def _finish_imports() -> None:
    """Wait for the imports of other threads: a child would wait for ever for their locks."""
    until_s, here = time.monotonic() + IMPORTS_S_MAX, threading.get_ident()
    while time.monotonic() < until_s:
        _imp.acquire_lock()  # the fork takes it, too: what holds it, a search for a module, ends before the look
        try:
            others = [(name, owner) for name, owner in _owners().items() if owner not in (None, here)]
        finally:
            _imp.release_lock()
        frames = sys._current_frames() if others else {}
        if not any(_imports_for_us(name, frames.get(owner)) for name, owner in others):
            return
        time.sleep(IMPORTS_POLL_S)


def _forget_imports() -> None:
    """Forget, in a child, the imports of its parent's threads."""
    for name, owner in _owners().items():
        if owner not in (None, threading.get_ident()):
            _LOCKS.pop(name, None)
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                del sys.modules[name]


at_fork(before=_finish_imports, in_child=_forget_imports)


def user() -> int | None:
    """Return the effective user of this process; None where files have no owners of POSIX."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def thread_names() -> list[str] | None:
    """Return the names of all threads of this process, also of libraries; None where the system has no list."""
    names = []
    try:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                names.append(Path(f"/proc/self/task/{thread}/comm").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return names


def written_bytes() -> int | None:
    """Return the bytes that this process has written; None where the system does not count them."""
    counts = Path("/proc/self/io")
    if not counts.exists():
        return None
    return int(dict(line.split(": ") for line in counts.read_text().splitlines())["wchar"])


def allow_files() -> None:
    """Let the process have as many open files as the system lets it."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = min(most, _FILES_MAX_MACOS) if sys.platform == "darwin" else most
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def lease(descriptor: int) -> bool:
    """Return whether no process has a file open to write. If so, no process can until its descriptor is closed.

    Raises
    ------
    OSError
        The system, the disk or the rights of this process forbid it.
    """
    if not HAS_LEASES:
        raise OSError(errno.ENOTSUP, "only Linux lets a program keep writers away from a file")
    import fcntl

    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # instead of SIGIO, which would end the process
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return False
    return True


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Return bytes of an open file from an offset on; on Windows, by its position, which one thread may move."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)


def check_unix_socket(path: str) -> str:
    """Return the path of a Unix socket.

    Raises
    ------
    ValueError
        Python lacks them on this system (Windows).
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ValueError("Python has no Unix sockets on this system: give http://HOST:PORT/FOLDER")
    return path


def first_data(descriptor: int) -> int:
    """Return the offset of the first data of an open file, after a hole; 0 where the system does not know.

    Raises
    ------
    OSError
        It has no data.
    """
    return os.lseek(descriptor, 0, os.SEEK_DATA) if hasattr(os, "SEEK_DATA") else 0


Clock = Callable[[], float]
"""A function like `time.time`: seconds since 1970."""


boot_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
"""Seconds since boot, with the time asleep where the system counts it."""


@value_class
class Moment:
    """An instant by two clocks: a wall clock may jump back, a boot clock may stop while a laptop sleeps."""

    wall_s: float
    boot_s: float

    @staticmethod
    def now(clock: Clock = time.time) -> Moment:
        return Moment(clock(), boot_s())

    def age_s(self, clock: Clock = time.time) -> float:
        """Return seconds since this moment, by the clock that gives more."""
        return max(clock() - self.wall_s, boot_s() - self.boot_s)

    def set_back_s(self, clock: Clock = time.time) -> float:
        """Return the seconds by which the wall clock was set back since.

        On a local disk, that is the store's clock, too.
        """
        return max(boot_s() - self.boot_s - (clock() - self.wall_s), 0.0)
