"""What system calls find of a disk, as texts for docs/stores.md: `**bold**` is what hurts."""

import collections
import contextlib
import errno
import fcntl
import os
import signal
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from rollingfs import RollingFileSystem
from rollingfs.format import names
from tests.support.schedules import in_threads

RACERS, ROUNDS = 16, 30
REPLACES, READERS = 2000, 2
BODY_BYTES = 4096
WHOLE_FILE = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
IN_PLACE, REPLACED = "in place", "replaced"


def link(folder: Path) -> str:
    """Races of 16 hard links to one name: `link(2)` must refuse a name that is taken."""
    won, refused, lock = [0] * ROUNDS, collections.Counter[str](), threading.Lock()
    start = threading.Barrier(RACERS)

    def run(racer: int) -> None:
        (source := folder / f"from-{racer}").write_bytes(b"x")
        for number in range(ROUNDS):
            start.wait()
            try:
                os.link(source, folder / f"to-{number}")
                with lock:
                    won[number] += 1
            except FileExistsError:
                pass
            except OSError as error:
                with lock:
                    refused[os.strerror(error.errno or 0)] += 1

    _together([lambda racer=racer: run(racer) for racer in range(RACERS)])  # type: ignore[misc]
    if refused:
        return f"**{refused.most_common(1)[0][0]}**"
    several = sum(count != 1 for count in won)
    return f"**several win** ({several} of {ROUNDS})" if several else f"one wins ({ROUNDS})"


def rename(folder: Path) -> str:
    """Reads of a file by its name, with the size that `fstat` gives, beside renames over it."""
    path, is_over, found, lock = folder / "file", threading.Event(), collections.Counter[str](), threading.Lock()
    path.write_bytes(_body(0))

    def write() -> None:
        for number in range(1, REPLACES):
            (new := folder / "new").write_bytes(_body(number))
            os.rename(new, path)
        is_over.set()

    def read() -> None:
        while not is_over.is_set():
            seen = _read(path)
            with lock:
                found[seen] += 1

    _together([write, *[read] * READERS])
    total, torn = found.total(), found.total() - found["whole"]
    wrong = ", ".join(sorted(found.keys() - {"whole"}))
    return f"**{torn} of {total} {wrong}**" if torn else f"whole ({total})"


def _body(number: int) -> bytes:
    """A body whose length and bytes follow from the number at its beginning."""
    return f"{number:08}".encode() * (BODY_BYTES // 8 - number % 100)


def _read(path: Path) -> str:
    try:
        with path.open("rb", buffering=0) as file:
            data = os.read(file.fileno(), os.fstat(file.fileno()).st_size)
    except OSError as error:
        return {errno.ENOENT: "missing", errno.ESTALE: "stale"}.get(error.errno or 0) or str(error)
    return "whole" if data[:8].isdigit() and data == _body(int(data[:8])) else "torn"


def locks(folder: Path) -> str:
    """A record lock keeps another process out, and another descriptor, until its owner is killed."""
    (path := folder / "lock").touch()
    with contextlib.ExitStack() as stack:
        own, other = (stack.enter_context(path.open("r+b")) for _ in range(2))
        try:
            if not _takes(own.fileno()):
                return "**refused**"
        except OSError as error:
            return f"**{os.strerror(error.errno or 0)}**"
        if _takes(other.fileno()):
            return "**let two descriptors in**"
        own.close()
        ready, tell = os.pipe()
        if (child := os.fork()) == 0:
            try:
                with path.open("r+b") as mine:
                    os.write(tell, b"y" if _takes(mine.fileno()) else b"n")
                    signal.pause()
            finally:
                os._exit(0)
        is_held = os.read(ready, 1) == b"y"
        is_let_in = _takes(other.fileno())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
        if not is_held:
            return "**outlive a descriptor**"
        if is_let_in:
            return "**let two processes in**"
        return "hold" if _takes(other.fileno()) else "**outlive a killed process**"


def _takes(descriptor: int) -> bool:
    """Whether a lock of a whole file is given at once."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, WHOLE_FILE)
    except (BlockingIOError, PermissionError):
        return False
    return True


def append(folder: Path) -> str:
    """Whether a small append of ours grows the header, or replaces it by another file."""
    fs, log = RollingFileSystem("file", skip_instance_cache=True), f"{folder}/log"
    fs.create(log)
    fs.append(log, b"first")
    before = os.stat(names.header_path(log)).st_ino
    fs.append(log, b"second")
    return IN_PLACE if os.stat(names.header_path(log)).st_ino == before else REPLACED


def _together(runs: list[Callable[[], None]]) -> None:
    """Run these in threads; the first error is raised."""
    for outcome in in_threads(*runs):
        if isinstance(outcome, BaseException):
            raise outcome


DISK_FACTS: dict[str, Callable[[Path], str]] = {find.__name__: find for find in (link, rename, locks, append)}
