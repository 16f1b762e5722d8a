"""Looks at files of a disk: dates, whole small files, the entries of a folder; plain files that readers hold open."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import weakref
from collections.abc import Sequence
from functools import partial

from fsspec.implementations.local import LocalFileSystem

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Blob, FileInfo, Link, Listing
from rollingfs.backend.local import disk, extending, folders, system
from rollingfs.backend.local.folders import goes_along
from rollingfs.format import names
from rollingfs.format.side_files import read_bytes_max

_CANNOT_WRITE = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FOLDER = {errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EBADF}
"""The last two: Windows has no such name."""
_APPLE_DOUBLE = b"\0\5\x16\7"
LISTINGS_MAX = 4
"""Maximum number of times that a folder is listed while it changes."""
LISTED_BYTES_MAX = 2048
"""A listing reads a header of at most this size whole."""


def canonical(path: str) -> str:
    """Return the canonical path of a disk: absolute, without empty parts, ``.`` and ``..``.

    References in headers are relative, so a path may not hold ``..``. The part before the last ``..`` is resolved,
    because ``link/..`` is the folder that holds the link's target. ``""`` is the root, not the current folder as in
    fsspec.
    """
    if path in ("", "file://", "local://", "file:", "local:"):
        path = "/"
    if path[:1] == "/" and os.sep == "/" and not names.has_odd_part(path):
        return path
    stripped: str = LocalFileSystem._strip_protocol(path)
    if stripped[1:2] == ":" != stripped[2:3] and stripped[2:3] != "/" and os.sep != "/":  # relative to a drive's folder
        stripped = os.path.abspath(stripped).replace(os.sep, "/")
    if os.sep != "/":  # a drive has one letter, and a path of many characters another beginning
        stripped = stripped.replace("//?/UNC/", "//", 1).removeprefix("//?/")
        stripped = stripped[0].upper() + stripped[1:] if stripped[1:2] == ":" else stripped
    server = "/" if stripped.startswith("//") and os.sep != "/" else ""
    parts = stripped.split("/")
    if not names.has_odd_part(stripped):
        return stripped
    if ".." in parts:
        last = len(parts) - parts[::-1].index("..")
        parts = [*_real("/".join(parts[:last])).split("/"), *parts[last:]]
    return server + "/".join([parts[0], *(part for part in parts[1:] if part not in ("", "."))]) or "/"


def date_of(path: str, status: os.stat_result) -> float:
    """Return the time when a file was modified, or got into its `$chunks` folder."""
    if path.rpartition("/")[0].endswith(names.CHUNKS_SUFFIX):
        return max(status.st_mtime, system.arrived_s(path, status))
    return status.st_mtime


def stat_of(path: str, descriptor: int, status: os.stat_result) -> FileInfo:
    """Return the facts of an open file."""
    token = extending.token_of(path, descriptor, status)
    return FileInfo(path, status.st_size, date_of(path, status), token, inode=status.st_ino or None)


def blob_of(path: str, descriptor: int, status: os.stat_result) -> Blob:
    """Return the content of an open file, up to what the format allows for its name."""
    size = status.st_size if (limit := read_bytes_max(path)) is None else min(status.st_size, limit)
    data = disk.read_exactly(descriptor, 0, size)
    return Blob(data, extending.make_token(path, status, data), date_of(path, status))


def leads_out(path: str, root: str) -> bool:
    """Return whether a path below a folder leads out of it, through a symbolic link or to a device of Windows."""
    real_root = _real(root)
    try:
        real = _real(path)
    except OSError:
        return True
    return real != real_root and not real.startswith(real_root.rstrip("/") + "/")


def _real(path: str) -> str:
    return os.path.realpath(path).replace(os.sep, "/")


def info_of(path: str, entry: os.DirEntry[str], roots: Sequence[str] = ()) -> FileInfo | None:
    """Return a folder's entry, by a link's target; None for a pipe, a device, or a lost entry.

    A link below any of the `roots` that leads out of it counts as broken.
    """
    if roots and entry.is_symlink() and any(is_below(path, root) and leads_out(path, root) for root in roots):
        return FileInfo(path, 0, 0.0, link=Link.NOTHING)
    token, data, status, link = None, None, None, Link.FILE if entry.is_symlink() else None
    try:
        if path.endswith(names.HEADER_SUFFIX) and entry.is_file():
            # for headers only: the token, or the content, spares a later read of the header, and costs an open here
            with contextlib.suppress(PermissionError):
                token, data, status = disk.look(path, partial(_seen_header, path))
        status = status or entry.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            raise
        return FileInfo(path, 0, 0.0, link=Link.NOTHING) if link else None
    if data is not None and data.startswith(_APPLE_DOUBLE) and entry.name.startswith("._"):
        return None  # attributes of a header, which macOS keeps so on exFAT and SMB
    if stat.S_ISDIR(status.st_mode):
        return FileInfo(path, 0, status.st_mtime, is_folder=True, link=link and Link.FOLDER)
    if not stat.S_ISREG(status.st_mode):
        return None
    whole = data if data is not None and len(data) == status.st_size else None
    inode = status.st_ino or None  # Windows tells it only of an open file
    return FileInfo(path, status.st_size, date_of(path, status), token, link=link, data=whole, inode=inode)


def _seen_header(path: str, descriptor: int, status: os.stat_result) -> tuple[str, bytes, os.stat_result]:
    data = disk.read_exactly(descriptor, 0, min(status.st_size, LISTED_BYTES_MAX))
    if len(data) == status.st_size:
        return extending.make_token(path, status, data), data, status  # no second read: records may come between
    return extending.token_of(path, descriptor, status), data, status


def is_below(path: str, root: str) -> bool:
    """Return whether a path is below a folder, by its text."""
    return path.startswith(root.rstrip("/") + "/")


def list_folder(folder: str, roots: Sequence[str] = ()) -> Listing:
    """Return the direct content of a folder; for `roots`, see `info_of`."""
    found: dict[str, FileInfo] = {}
    for _ in range(LISTINGS_MAX):
        before_ns, listed = _date_ns(folder), _listed(folder, roots)
        # a listing beside renames may miss names that were there all the time
        missed = [path for path in found.keys() - listed.keys() if os.path.lexists(path)]
        found = listed | {path: found[path] for path in missed}
        if _date_ns(folder) == before_ns and time.time_ns() - before_ns > disk.DATE_TICK_S * 1e9:
            break
    return Listing(tuple(found[path] for path in sorted(found)))


def _date_ns(folder: str) -> int:
    """Return the time of a folder's last change, or 0."""
    return os.stat(f"{folder}/").st_mtime_ns if os.path.isdir(folder) else 0


def _listed(folder: str, roots: Sequence[str]) -> dict[str, FileInfo]:
    """Return the files and folders in a folder, by path, as a listing shows them."""
    prefix = folder if folder.endswith("/") else folder + "/"
    is_chunks = folder.endswith(names.CHUNKS_SUFFIX)
    try:
        with os.scandir(prefix) as found:  # a bare "C:" would be that drive's current folder
            infos = [
                info_of(prefix + entry.name, entry, roots)
                for entry in found
                if not folders.is_nameless(entry.name) and not (is_chunks and goes_along(entry.name))
            ]
    except NotADirectoryError:
        if os.path.isfile(folder):
            raise
        raise shared_errors.no_folder(folder) from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL):  # the second: Windows has no such name
            raise shared_errors.no_folder(folder) from None
        raise
    # in a chunk folder, a link that leads nowhere is as good as nothing
    shown = (info for info in infos if info is not None and not (is_chunks and info.link is Link.NOTHING))
    return {info.path: info for info in shown}


def now_at(path: str, sync: bool) -> float:
    """Return the filesystem's clock: the date of a temporary file in the `$chunks` folder of `path`.

    Where no file can be made, it is this machine's clock: no file can be written or deleted there either.
    """
    temporary = names.temporary_path(path)
    try:
        with folders.temporary_folder(os.path.dirname(temporary), sync):
            try:
                return disk.new_file(temporary, False, os.fstat).st_mtime
            finally:
                disk.remove_if_there(temporary)
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        return time.time()


def is_same(path: str, other: str) -> bool:
    """Return whether two paths lead to the same file or folder."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def disk_of(path: str) -> str:
    """Return a name of the disk of a path, by its nearest existing folder."""
    while True:
        above = os.path.dirname(path)
        try:
            return f"local-{os.stat(above).st_dev:x}"
        except OSError as error:
            if above == path or error.errno not in _NO_FOLDER:
                raise
            path = above


# -- files that readers hold open, so that a reader keeps reading the same file ---------------------------------

HELD_MAX = 64
"""A process holds at most this many files open for its readers; macOS may allow it 256 open files in all."""

_CANNOT_OPEN = {errno.EMFILE, errno.ENFILE}

_held: weakref.WeakValueDictionary[tuple[str, str], HeldFile] = weakref.WeakValueDictionary()


class HeldFile:
    """An open file. It is closed once no reader, and no read under way in a thread, refers to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> tuple[int, os.stat_result]:
        return self._descriptor, os.fstat(self._descriptor)

    def __exit__(self, *_: object) -> None:
        """Keep it open for the next read."""


def hold_file(path: str, token: str) -> HeldFile | None:
    """Return the open file that has this path and `token`; None if too many files are open.

    Raises
    ------
    FileNotFoundError, ConflictError
        The file is gone, or has another token.
    """
    file = held_file(path, token)
    if file is not None or len(_held) >= HELD_MAX:
        return file
    try:
        with disk.opened(path) as (descriptor, _status):
            disk.check_same_or_grown(path, descriptor, token)
            file = HeldFile(os.dup(descriptor))
    except OSError as error:
        if error.errno in _CANNOT_OPEN:
            return None
        raise
    _held[path, token] = file
    return file


def held_file(path: str, token: str | None) -> HeldFile | None:
    """Return the file that had this path and `token`, if a reader holds it."""
    return None if token is None else _held.get((path, token))
