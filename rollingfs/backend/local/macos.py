"""The names of `system` on macOS, whose numbers and structures are XNU's.

XNU has locks of open file descriptions since macOS 10.11, also where the interpreter has no name for them.
"""

import ctypes
import errno
import fcntl
import os
import struct
from functools import partial

from rollingfs.backend.local import posix
from rollingfs.errors import UNSUPPORTED

_OFD_SETLK = 90
DESCRIPTORS = "/dev/fd"
rename_free = posix.free_rename("renameatx_np", -2, 4)
_GETPATH = 50
_ASK_NAME = struct.pack("HHIIIII", 5, 0, 1, 0, 0, 0, 0)
"""A `struct attrlist` with `ATTR_CMN_NAME`; the last argument of the call is `FSOPT_NOFOLLOW`."""
_NAME_BYTES = 2048
"""Room for its answer: its length, the offset of the name from here, the size of the name, the name."""
_FULLFSYNC = 51
_PATH_BYTES = 1024
_NO_FULLFSYNC = {errno.ENOTTY, errno.EINVAL, errno.ENODEV} | UNSUPPORTED
"""The errors of SMB, exFAT and FUSE."""
_MNT_LOCAL = 0x1000
_LOCAL = (b"apfs", b"hfs")


def flush(descriptor: int) -> None:
    """Flush an open file out of the drive's cache, where `fsync` leaves it; by `fsync` if the disk can do no more."""
    try:
        fcntl.fcntl(descriptor, _FULLFSYNC)
    except OSError as error:
        if error.errno not in _NO_FULLFSYNC:
            raise
        os.fsync(descriptor)


def allocate(descriptor: int, size: int) -> None:
    """Give an empty file its blocks; macOS has no `posix_fallocate`."""
    os.write(descriptor, bytes(size))


def lock_request(kind: int) -> bytes:
    """Return a request for a lock of a whole file: start, length, process id, type and whence."""
    return struct.pack("qqihh", 0, 0, 0, kind, os.SEEK_SET)


lock = partial(posix.lock_by, _OFD_SETLK, lock_request)
unlock = partial(posix.unlock_by, _OFD_SETLK, lock_request)


def is_local(path: str) -> bool:
    """Return whether only this kernel reads and writes the files of a disk."""
    answer = posix.statfs(path)  # the flags are at 64, the kind of the filesystem at 72
    (flags,) = struct.unpack_from("I", answer, 64)
    return bool(flags & _MNT_LOCAL) and answer[72:88].partition(b"\0")[0] in _LOCAL


def true_name(path: str) -> str:
    """Return the last part of a path as the disk writes it; "" if there is no answer."""
    call = posix.library_function("getattrlist")
    answer = ctypes.create_string_buffer(_NAME_BYTES)
    if call is None or call(os.fsencode(path), _ASK_NAME, answer, ctypes.c_size_t(_NAME_BYTES), ctypes.c_ulong(1)):
        return ""
    offset, size = struct.unpack_from("iI", answer, 4)
    return os.fsdecode(answer.raw[4 + offset : 4 + offset + size].partition(b"\0")[0])


def path_of(descriptor: int) -> str:
    """Return the path of an open file by now."""
    return os.fsdecode(fcntl.fcntl(descriptor, _GETPATH, bytes(_PATH_BYTES)).partition(b"\0")[0])


def notifier() -> None:
    """Return None: no call of macOS reports a closed file."""
