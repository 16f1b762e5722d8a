"""A disk that compares names without case and Unicode form, and keeps them as they were written, as APFS does.

`python -m tests.support.folding UNDER MOUNT` serves it by FUSE, and goes on in the background.
"""

import contextlib
import os
import sys
import unicodedata
from typing import Any

import mfusepy as fuse

_STATUS = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_ino")
_ROOM = (
    *("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree"),
    *("f_files", "f_flag", "f_frsize", "f_namemax"),
)


def _key(name: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


class Folding(fuse.Operations):
    """Each path is looked for part by part, by the names that are there."""

    use_ns = True

    def __init__(self, root: str) -> None:
        self._root = root

    def _there(self, path: str) -> str:
        here = self._root
        for part in filter(None, path.split("/")):
            there = f"{here}/{part}"
            if not os.path.lexists(there):
                with contextlib.suppress(OSError):
                    there = next((f"{here}/{name}" for name in os.listdir(here) if _key(name) == _key(part)), there)
            here = there
        return here

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.fstat(fh) if fh is not None else os.lstat(self._there(path))
        times = {"st_atime": found.st_atime_ns, "st_mtime": found.st_mtime_ns, "st_ctime": found.st_ctime_ns}
        is_removed = os.path.basename(path).startswith(".fuse_hidden")  # libfuse keeps an open file by this name
        return {name: getattr(found, name) for name in _STATUS} | times | {"st_nlink": found.st_nlink - is_removed}

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        here = self._there(path)
        listed = [".", "..", *os.listdir(here)]
        return [(name, {"st_ino": os.lstat(f"{here}/{name}").st_ino, "st_mode": 0}, 0) for name in listed]

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        source, target = self._there(old), self._there(new)
        os.rename(source, target)
        os.rename(target, f"{os.path.dirname(target)}/{os.path.basename(new)}")

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self._there(path), mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self._there(path))

    def unlink(self, path: str) -> None:
        os.unlink(self._there(path))

    def symlink(self, target: str, source: str) -> None:
        os.symlink(source, self._there(target))

    def readlink(self, path: str) -> str:
        return os.readlink(self._there(path))

    def link(self, target: str, source: str) -> None:
        os.link(self._there(source), self._there(target))

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(self._there(path), os.O_RDWR | os.O_CREAT, mode)

    def open(self, path: str, flags: int) -> int:
        return os.open(self._there(path), flags & os.O_ACCMODE)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(self._there(path) if fh is None else fh, length)

    def release(self, path: str, fh: int) -> None:
        os.close(fh)

    def flush(self, path: str, fh: int) -> int:
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0

    def access(self, path: str, mode: int) -> int:
        return 0

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self._there(path), mode)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        os.utime(self._there(path), ns=times) if times else os.utime(self._there(path))

    def statfs(self, path: str) -> dict[str, Any]:
        found = os.statvfs(self._root)
        return {name: getattr(found, name) for name in _ROOM}


if __name__ == "__main__":
    timeouts = {"attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0}
    fuse.FUSE(Folding(sys.argv[1]), sys.argv[2], foreground=False, nothreads=True, use_ino=True, **timeouts)
