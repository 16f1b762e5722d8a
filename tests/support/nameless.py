"""A disk that keeps a removed file that is open under another name, as libfuse does, and NFS."""

import itertools
import os
from collections.abc import Iterator

import pytest

from rollingfs.backend.local import system

_numbers: Iterator[int] = itertools.count(1)


def keep_open_files(patch: pytest.MonkeyPatch, *, for_ever: bool = False) -> None:
    """Let a file that is unlinked while this process has it open stay in its folder until it is closed, or longer."""
    kept: dict[tuple[int, int], str] = {}
    unlink, close = os.unlink, os.close

    def keep(path: str, *, dir_fd: int | None = None) -> None:
        status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        key = status.st_dev, status.st_ino
        if not is_open(status):
            unlink(path, dir_fd=dir_fd)
            return
        folder = os.path.dirname(path) if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        kept[key] = f"{folder}/.fuse_hidden{next(_numbers):016x}"
        os.rename(path, kept[key], src_dir_fd=dir_fd)

    def free(descriptor: int) -> None:
        status = os.fstat(descriptor)
        key = status.st_dev, status.st_ino
        close(descriptor)
        if key in kept and not for_ever and not is_open(status):
            unlink(kept.pop(key))

    patch.setattr(system, "unlink", keep)
    patch.setattr(os, "close", free)


def is_open(file: os.stat_result) -> bool:
    """Whether this process has a file open."""
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.stat(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of the listing
            continue
        if os.path.samestat(status, file):
            return True
    return False
