"""What a disk shows of its files: dates, whole small files, the entries of a folder."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from fsspec.implementations.local import LocalFileSystem

from rollingfs.backend.contract import Blob, FileInfo, Link
from rollingfs.backend.local import disk
from rollingfs.format import names
from rollingfs.format.sizes import read_bytes_max

LISTED_BYTES_MAX = 2048
"""A listing reads a header of at most this size whole."""


def canonical(path: str) -> str:
    """The one spelling of a path or URL of a disk: absolute, without empty parts, ``.`` and ``..``.

    References in headers are relative, so a path may not hold ``..``. What stands before the last ``..`` is resolved,
    because ``link/..`` is the folder that holds the link's target. ``""`` is the root, not the current folder as in
    fsspec.
    """
    if path in ("", "file://", "local://", "file:", "local:"):
        return str(LocalFileSystem.root_marker)
    stripped: str = LocalFileSystem._strip_protocol(path)
    parts = stripped.split("/")
    if not names.has_odd_part(stripped):
        return stripped
    if ".." in parts:
        last = len(parts) - parts[::-1].index("..")
        parts = [*os.path.realpath("/".join(parts[:last])).replace(os.sep, "/").split("/"), *parts[last:]]
    return "/".join([parts[0], *(part for part in parts[1:] if part not in ("", "."))]) or "/"


def date_of(path: str, status: os.stat_result) -> float:
    """The time when a file was modified; in a `$chunks` folder, the time when the file got there if that is later."""
    if path.rpartition("/")[0].endswith(names.CHUNKS_SUFFIX):
        return max(status.st_mtime, status.st_ctime)
    return status.st_mtime


def blob_of(path: str, descriptor: int, status: os.stat_result) -> Blob:
    """The content of an open file, up to what the format allows for its name."""
    size = status.st_size if (limit := read_bytes_max(path)) is None else min(status.st_size, limit)
    data = disk.read_exactly(descriptor, 0, size)
    return Blob(data, disk.make_token(status, data), date_of(path, status))


def info_of(path: str, entry: os.DirEntry[str]) -> FileInfo | None:
    """A folder's entry, by what a link leads to; None for a pipe, a device, and an entry that is gone by now."""
    token, data, status, link = None, None, None, Link.FILE if entry.is_symlink() else None
    try:
        if path.endswith(names.HEADER_SUFFIX) and entry.is_file():
            # for headers only: the token, or the content, spares a later read of the header, and costs an open here
            with contextlib.suppress(PermissionError), disk.opened(path) as (descriptor, status):
                data = disk.read_exactly(descriptor, 0, min(status.st_size, LISTED_BYTES_MAX))
                token = disk.make_token(status, data)
        status = status or entry.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            raise
        return FileInfo(path, 0, 0.0, link=Link.NOTHING) if link else None
    if stat.S_ISDIR(status.st_mode):
        return FileInfo(path, 0, status.st_mtime, is_folder=True, link=link and Link.FOLDER)
    if not stat.S_ISREG(status.st_mode):
        return None
    whole = data if data is not None and len(data) == status.st_size else None
    return FileInfo(path, status.st_size, date_of(path, status), token, link=link, data=whole)
