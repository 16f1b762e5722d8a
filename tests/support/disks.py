"""Disks of other filesystems to test against: each needs a package of Debian, and `/dev/fuse` or root."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.schedules import eventually
from tests.support.servers import require

LOOP_MB = 512
Commands = Callable[[Path, Path], list[list[str]]]
"""The programs that mount a disk, by the folder for what it lies on, and the folder where it is to be."""


def _looped(make: list[str], mount: list[str]) -> Commands:
    def commands(below: Path, there: Path) -> list[list[str]]:
        image = str(below / "image")
        return [["truncate", "-s", f"{LOOP_MB}M", image], [*make, image], [*mount, image, str(there)]]

    return commands


def _fuse2fs(below: Path, there: Path) -> list[list[str]]:
    mount = _looped(["mkfs.ext4", "-q", "-F"], ["fuse2fs", "-o", "fakeroot"])
    return [*mount(below, there), ["rmdir", f"{there}/lost+found"]]


def _overlaid(*mount: str) -> Commands:
    def commands(below: Path, there: Path) -> list[list[str]]:
        (below / "work").mkdir()
        folders = f"lowerdir={below}/b,upperdir={below}/a,workdir={below}/work"
        return [[*mount, "-o", folders, str(there)]]

    return commands


def _gocryptfs(below: Path, there: Path) -> list[list[str]]:
    (below / "password").write_text("password")
    common = ["gocryptfs", "-q", "-passfile", str(below / "password")]
    return [[*common, "-init", f"{below}/a"], [*common, f"{below}/a", str(there)]]


DISKS: dict[str, Commands] = {
    "bindfs": lambda below, there: [["bindfs", f"{below}/a", str(there)]],
    "ntfs-3g": _looped(["mkfs.ntfs", "-Ff", "-q"], ["ntfs-3g"]),
    "unionfs-fuse": lambda below, there: [["unionfs", "-o", "cow", f"{below}/a=RW:{below}/b=RO", str(there)]],
    "mergerfs": lambda below, there: [["mergerfs", "-o", "minfreespace=0", f"{below}/a:{below}/b", str(there)]],
    "gocryptfs": _gocryptfs,
    "encfs": lambda below, there: [["encfs", "--standard", "--extpass=echo password", f"{below}/a", str(there)]],
    "fuse2fs": _fuse2fs,
    "fuse-overlayfs": _overlaid("fuse-overlayfs"),
}
FOLDING: dict[str, Commands] = {
    "folding": lambda below, there: [[sys.executable, "-m", "tests.support.folding", f"{below}/a", str(there)]]
}
"""A disk that takes names for one that differ in case, or in their Unicode form."""


LOOP = ["mount", "-o", "loop"]
KERNEL_DISKS: dict[str, Commands] = {
    "ext4": _looped(["mkfs.ext4", "-q", "-F"], LOOP),
    "xfs": _looped(["mkfs.xfs", "-q"], LOOP),
    "btrfs": _looped(["mkfs.btrfs", "-q"], LOOP),
    "overlay": _overlaid("mount", "-t", "overlay", "overlay"),
}
"""Disks of the kernel, which only root mounts."""


@contextlib.contextmanager
def mounted(kind: str, folder: Path) -> Iterator[Path]:
    """A disk of a kind, empty; the test is skipped where it cannot be mounted, and fails where root lacks a package."""
    below, there = folder / "below", folder / "disk"
    for path in (below / "a", below / "b", there):
        path.mkdir(parents=True)
    commands = (DISKS | FOLDING | KERNEL_DISKS)[kind](below, there)
    if kind not in KERNEL_DISKS and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse cannot be opened here")
    if kind in KERNEL_DISKS and os.geteuid():
        pytest.skip(f"only root mounts {kind}")
    if missing := [command[0] for command in commands if shutil.which(command[0]) is None]:
        (pytest.skip if os.geteuid() else require)(f"{missing[0]} is not installed (a package of Debian)")
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{kind} does not mount here: {(done.stderr or done.stdout).strip()[-200:]}")
    eventually(lambda: os.path.ismount(there))
    try:
        yield there
    finally:
        subprocess.run(["umount", "-l", str(there)], check=False)
