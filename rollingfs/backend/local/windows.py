"""The names of `system` on Windows. Every file is opened so that others may rename and remove it.

A rename over a file, and a removal, take the POSIX semantics of NTFS and ReFS: readers that hold the file keep reading
it. Other disks, and other programs (a virus scanner) that hold a file in their own way, are waited for.
"""

import contextlib
import ctypes
import errno
import msvcrt
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from ctypes import wintypes
from typing import Any

from rollingfs.backend.local import windows_rules
from rollingfs.backend.local.windows_rules import DEVICES, patient

assert sys.platform == "win32"

NO_FOLLOW = 1 << 30
"""A flag of our own: the system has none."""
NO_WAIT, PLACE, FLUSHABLE = 0, 0, os.O_RDWR
GONE: tuple[type[OSError], ...] = (FileNotFoundError, PermissionError)
DESCRIPTORS = ""
PATH_CHARACTERS_MAX, FOLDER_CHARACTERS_MAX = 259, 247
"""Longest paths where Windows is not set to take longer."""
_READ_BYTES_MAX = 1 << 30

_DWORD, _HANDLE, _TEXT = ctypes.c_uint32, ctypes.c_void_p, ctypes.c_wchar_p
_kernel: Any = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel.CreateFileW.restype = _kernel.FindFirstFileW.restype = _HANDLE
_kernel.CreateFileW.argtypes = [_TEXT, _DWORD, _DWORD, _HANDLE, _DWORD, _DWORD, _HANDLE]
_kernel.CloseHandle.argtypes = _kernel.FindClose.argtypes = [_HANDLE]
_kernel.FindFirstFileW.argtypes = [_TEXT, _HANDLE]
_kernel.SetFileInformationByHandle.argtypes = [_HANDLE, ctypes.c_int, _HANDLE, _DWORD]
_kernel.GetFileInformationByHandleEx.argtypes = [_HANDLE, ctypes.c_int, _HANDLE, _DWORD]
_kernel.LockFileEx.argtypes = [_HANDLE, _DWORD, _DWORD, _DWORD, _DWORD, _HANDLE]
_kernel.UnlockFileEx.argtypes = [_HANDLE, _DWORD, _DWORD, _DWORD, _HANDLE]
_kernel.ReadFile.argtypes = [_HANDLE, _HANDLE, _DWORD, _HANDLE, _HANDLE]
_kernel.GetFinalPathNameByHandleW.argtypes = [_HANDLE, _TEXT, _DWORD, _DWORD]
_TAKES_LONG_PATHS = bool(getattr(ctypes.WinDLL("ntdll"), "RtlAreLongPathsEnabled", lambda: 1)() & 0xFF)
_NO_HANDLE = ctypes.c_void_p(-1).value
_READ, _WRITE, _DELETE, _ATTRIBUTES, _SYNCHRONIZE = 0x80000000, 0x40000000, 0x10000, 0x80, 0x100000
_SHARE_ALL = 7
_CREATE_NEW, _OPEN_EXISTING, _OPEN_ALWAYS = 1, 3, 4
_NORMAL, _LINK_ITSELF, _FOLDER, _WRITE_THROUGH = 0x80, 0x00200000, 0x02000000, 0x80000000
_BASIC, _REMOVE_EX, _RENAME_EX = 0, 21, 22
_REPLACE, _POSIX, _REMOVE, _READONLY = 1, 2, 1, 0x10
_EXCLUSIVE, _AT_ONCE = 2, 1
_MOVE_REPLACE, _MOVE_FLUSHED = 1, 8
_HELD = {5, 32, 33}
"""Access denied, a sharing violation, a lock: another program may hold the file for a moment."""
_SHARED = {32, 33}
_LOCKED, _AT_END = {33, 997}, 38
_NO_NAME = {123, 161}
_UNKNOWN = {1, 50, 87, 124}
"""Errors of a disk that does not know what it is asked for."""
_LOCAL_DRIVES, _LOCAL = {2, 3, 6}, {"NTFS", "ReFS"}
"""Removable, fixed, in memory; disks on which no other machine writes, and whose files grow as on Linux."""
_TICKS_TO_1970 = 116444736000000000


class _Basic(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("made", "read", "written", "changed")] + [("attributes", _DWORD)]


class _Place(ctypes.Structure):
    _fields_ = [("low", _HANDLE), ("high", _HANDLE), ("offset", _DWORD), ("offset_high", _DWORD), ("event", _HANDLE)]


def _error(path: str, target: str | None = None) -> OSError:
    code = ctypes.get_last_error()
    if code in _NO_NAME:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path, None, target)
    return OSError(0, ctypes.FormatError(code).strip(), path, code, target)


def _handle(path: str, access: int, disposition: int = _OPEN_EXISTING, flags: int = 0) -> int:
    handle = _kernel.CreateFileW(path, access, _SHARE_ALL, None, disposition, flags, None)
    if handle in (None, _NO_HANDLE):
        raise _error(path)
    return int(handle)


@contextlib.contextmanager
def _opened(path: str, access: int, flags: int) -> Iterator[int]:
    handle = _handle(path, access, flags=flags)
    try:
        yield handle
    finally:
        _kernel.CloseHandle(handle)


def _sets(handle: int, kind: int, value: Any, path: str, target: str | None = None) -> bool:
    """Change an open file; False if its disk does not know what it is asked for."""
    if _kernel.SetFileInformationByHandle(handle, kind, ctypes.byref(value), ctypes.sizeof(value)):
        return True
    error = _error(path, target)
    if error.winerror not in _UNKNOWN:
        raise error
    return False


def check_name(path: str, characters_max: int = PATH_CHARACTERS_MAX) -> None:
    """Refuse a new file that Windows would give another name, or no name."""
    windows_rules.check_name(path, sys.maxsize if _TAKES_LONG_PATHS else characters_max)


# -- names -----------------------------------------------------------------------------------------------------


def open_file(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file as `os.open`; others may rename and remove it."""
    access = _READ | _WRITE if flags & os.O_RDWR else _WRITE if flags & os.O_WRONLY else _READ
    disposition = _OPEN_EXISTING
    if flags & os.O_CREAT:
        check_name(path)
        disposition = _CREATE_NEW if flags & os.O_EXCL else _OPEN_ALWAYS
    elif DEVICES.fullmatch(os.path.basename(path)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    attributes = _NORMAL | (_LINK_ITSELF if flags & NO_FOLLOW else 0)
    handle = patient(lambda: _handle(path, access, disposition, attributes), _SHARED)
    try:
        descriptor = msvcrt.open_osfhandle(handle, (flags & (os.O_RDWR | os.O_WRONLY)) | os.O_BINARY | os.O_NOINHERIT)
    except BaseException:
        _kernel.CloseHandle(handle)
        raise
    if flags & NO_FOLLOW and _basic(handle).attributes & stat.FILE_ATTRIBUTE_REPARSE_POINT:
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return descriptor


def mkdir(path: str, mode: int = 0o777) -> None:
    """Make a folder."""
    check_name(path, FOLDER_CHARACTERS_MAX)
    os.mkdir(path, mode)


def refresh(_path: str) -> None:
    """Do not change the name: each open asks the server."""


look_up = refresh


def link(path: str, target: str) -> None:
    """Give a file another name."""
    check_name(target)
    os.link(path, target)


def rename(path: str, target: str, *, dst_dir_fd: int | None = None) -> None:
    """Rename a file, over any file of that name; who has that file open keeps reading it."""
    check_name(target)
    patient(lambda: _rename(path, target), _HELD)


def _rename(path: str, target: str) -> None:
    name = os.path.abspath(target)

    class Rename(ctypes.Structure):
        _fields_ = [("f", _DWORD), ("root", _HANDLE), ("size", _DWORD), ("name", ctypes.c_wchar * (len(name) + 1))]

    with _opened(path, _DELETE | _SYNCHRONIZE, _LINK_ITSELF | _FOLDER | _WRITE_THROUGH) as handle:
        is_done = _sets(handle, _RENAME_EX, Rename(_REPLACE | _POSIX, None, 2 * len(name), name), path, target)
    if not is_done:
        _move(path, target, _MOVE_REPLACE | _MOVE_FLUSHED)


def _move(path: str, target: str, how: int) -> None:
    if not _kernel.MoveFileExW(_TEXT(path), _TEXT(target), how):
        raise _error(path, target)


def rename_free(path: str, target: str, folder: int | None = None, target_folder: int | None = None) -> int:
    """Rename a file to a free name, which is all that `MoveFileExW` does; return the number of the error, or 0."""
    check_name(target)
    try:
        patient(lambda: _move(path, target, _MOVE_FLUSHED), _HELD)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def unlink(path: str, *, dir_fd: int | None = None) -> None:
    """Remove a file, or a link itself; its name is free at once, whoever has it open."""
    patient(lambda: _unlink(path), _HELD)


def _unlink(path: str) -> None:
    with _opened(path, _DELETE | _ATTRIBUTES, _LINK_ITSELF | _FOLDER) as handle:
        attributes = _basic(handle).attributes
        if attributes & stat.FILE_ATTRIBUTE_DIRECTORY and not attributes & stat.FILE_ATTRIBUTE_REPARSE_POINT:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        is_done = _sets(handle, _REMOVE_EX, _DWORD(_REMOVE | _POSIX | _READONLY), path)
    if not is_done:
        os.unlink(path)


def true_name(path: str) -> str:
    """Return the last part of a path as the disk writes it; "" for what is not found."""
    found = wintypes.WIN32_FIND_DATAW()
    handle = _kernel.FindFirstFileW(path, ctypes.byref(found))
    if handle in (None, _NO_HANDLE):
        return ""
    _kernel.FindClose(handle)
    return str(found.cFileName)


def path_of(descriptor: int) -> str:
    """Return the path of an open file by now."""
    room = ctypes.create_unicode_buffer(1 << 15)
    if not _kernel.GetFinalPathNameByHandleW(msvcrt.get_osfhandle(descriptor), room, len(room), 0):
        raise _error(str(descriptor))
    path = room.value.removeprefix("\\\\?\\")
    return (f"\\\\{path[4:]}" if path.startswith("UNC\\") else path).replace("\\", "/")


# -- bytes -----------------------------------------------------------------------------------------------------


def read_at(descriptor: int, size: int, start: int) -> bytes:
    """Read at a place; threads may share the descriptor."""
    size = min(size, _READ_BYTES_MAX)
    room, count = ctypes.create_string_buffer(max(size, 1)), _DWORD()
    place = _Place(offset=start & 0xFFFFFFFF, offset_high=start >> 32)
    handle = msvcrt.get_osfhandle(descriptor)
    if not _kernel.ReadFile(handle, room, size, ctypes.byref(count), ctypes.byref(place)):
        if ctypes.get_last_error() == _AT_END:
            return b""
        raise _error(str(descriptor))
    return ctypes.string_at(room, count.value)


def write_at(descriptor: int, data: Any, start: int) -> int:
    """Write at a place, by a descriptor that no other thread uses."""
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.write(descriptor, data)


read_into = None
copy_in_kernel = None
allocate = os.ftruncate


def flush(descriptor: int) -> None:
    """Make the bytes of an open file, or the entries of an open folder, survive a loss of power."""
    os.fsync(descriptor)


def room(folder: str) -> tuple[int, int]:
    """Return the free bytes of a disk; there is no end of files."""
    return shutil.disk_usage(folder).free, 1 << 32


def open_folder(path: str) -> int:
    """Open a folder whose entries are to be flushed."""
    return msvcrt.open_osfhandle(_handle(path, _WRITE, flags=_FOLDER), os.O_WRONLY | os.O_NOINHERIT)


def _basic(handle: int) -> _Basic:
    found = _Basic()
    if not _kernel.GetFileInformationByHandleEx(handle, _BASIC, ctypes.byref(found), ctypes.sizeof(found)):
        raise _error(str(handle))
    return found


def set_date(descriptor: int, date_ns: int) -> None:
    """Set the date of an open file by the handle that wrote it: else closing that handle dates the file again."""
    date = date_ns // 100 + _TICKS_TO_1970
    new = _Basic(made=0, read=date, written=date, changed=0, attributes=0)
    if not _sets(msvcrt.get_osfhandle(descriptor), _BASIC, new, str(descriptor)):
        raise _error(str(descriptor))


def set_mode(descriptor: int, mode: int) -> None:
    """Do nothing: files have no modes."""


def arrived_s(path: str, status: os.stat_result) -> float:
    """Return the time when a file got its name, or was changed."""
    with contextlib.suppress(FileNotFoundError), _opened(path, _ATTRIBUTES, _FOLDER) as handle:
        return float(_basic(handle).changed - _TICKS_TO_1970) / 1e7
    return status.st_mtime


# -- locks and disks -------------------------------------------------------------------------------------------


def lock(descriptor: int) -> bool:
    """Lock an open file now; False if another handle has its lock."""
    handle, place = msvcrt.get_osfhandle(descriptor), _Place()
    if _kernel.LockFileEx(handle, _EXCLUSIVE | _AT_ONCE, 0, 1, 0, ctypes.byref(place)):
        return True
    if ctypes.get_last_error() in _LOCKED:
        return False
    raise _error(str(descriptor))


def unlock(descriptor: int) -> None:
    """Give back a lock of an open file."""
    _kernel.UnlockFileEx(msvcrt.get_osfhandle(descriptor), 0, 1, 0, ctypes.byref(_Place()))


def is_local(path: str) -> bool:
    """Return whether only this kernel reads and writes the files of a disk."""
    root, kind = ctypes.create_unicode_buffer(1 << 15), ctypes.create_unicode_buffer(64)
    return (
        bool(_kernel.GetVolumePathNameW(_TEXT(path), root, len(root)))
        and _kernel.GetDriveTypeW(root) in _LOCAL_DRIVES
        and bool(_kernel.GetVolumeInformationW(root, None, 0, None, None, None, kind, len(kind)))
        and kind.value in _LOCAL
    )


def number_of_disk(device: int) -> int:
    """Return the number of a disk, which no other disk has."""
    return device or 1


def notifier() -> None:
    """Return None: no call of Windows reports a closed file."""
