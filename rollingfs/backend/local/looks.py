"""What a disk shows of its files: dates, whole small files, the entries of a folder."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from rollingfs.backend.contract import Blob, FileInfo
from rollingfs.backend.local import disk
from rollingfs.format import names


def date_of(path: str, status: os.stat_result) -> float:
    """The time when a file was modified; in a `$chunks` folder, the time when the file got there if that is later."""
    if os.path.dirname(path).endswith(names.CHUNKS_SUFFIX):
        return max(status.st_mtime, status.st_ctime)
    return status.st_mtime


def blob_of(path: str, descriptor: int, status: os.stat_result) -> Blob:
    """The whole content of an open file."""
    data = disk.read_exactly(descriptor, 0, status.st_size)
    if os.path.basename(path).startswith(names.ASK_PREFIX):
        disk.check_whole(path, descriptor, data)  # its writer writes it in place
    return Blob(data, disk.make_token(status, data), date_of(path, status))


def info_of(path: str, entry: os.DirEntry[str]) -> FileInfo | None:
    """A folder's entry; None for a broken symbolic link, a pipe, a device, and an entry that is gone by now."""
    token = None
    try:
        status = entry.stat()
        if path.endswith(names.HEADER_SUFFIX) and stat.S_ISREG(status.st_mode):
            # for headers only: the token spares a later read of the header, and costs an open here
            with contextlib.suppress(PermissionError), disk.opened(path) as (descriptor, newer):
                token, status = disk.token_of(descriptor, newer), newer
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    if stat.S_ISDIR(status.st_mode):
        return FileInfo(path, 0, status.st_mtime, is_folder=True)
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileInfo(path, status.st_size, date_of(path, status), token)
