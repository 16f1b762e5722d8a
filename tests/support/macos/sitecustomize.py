"""Makes Linux' Python look like macOS' to the disk: ``PYTHONPATH=tests/support/macos python -m pytest …``.

`rollingfs.backend.local.system` chooses the module for macOS, and `fcntl` takes XNU's numbers and structure and
refuses others, as XNU does (bsd/kern/kern_descrip.c). No call of Linux alone is there; `statfs` and `F_GETPATH` are
answered as on a disk with APFS. By ``MACOS=older`` the interpreter has no name for the locks.
"""

import ctypes
import errno
import fcntl
import importlib.abc
import importlib.util
import multiprocessing
import os
import struct
import sys
from importlib.machinery import PathFinder

OFD_SETLK, GETPATH, FULLFSYNC = 90, 50, 51
KINDS = {1: fcntl.F_RDLCK, 2: fcntl.F_UNLCK, 3: fcntl.F_WRLCK}
MNT_LOCAL = 0x1000
MISSING = ["copy_file_range", "posix_fadvise", "fdatasync", "O_PATH", "splice", "posix_fallocate"]
_fcntl, _ofd_setlk = fcntl.fcntl, getattr(fcntl, "F_OFD_SETLK", 37)


def as_xnu(descriptor, command, argument=0):
    if command == FULLFSYNC:
        os.fsync(descriptor)
        return 0
    if command == GETPATH:
        return os.fsencode(os.readlink(f"/proc/self/fd/{descriptor}")) + b"\0"
    if command == OFD_SETLK:
        start, length, _, kind, whence = struct.unpack("=qqihh", argument)
        if kind not in KINDS:
            raise OSError(errno.EINVAL, "Invalid argument")
        return _fcntl(descriptor, _ofd_setlk, struct.pack("hhqqi0q", KINDS[kind], whence, start, length, 0))
    return _fcntl(descriptor, command, argument)


class Library(ctypes.CDLL):
    """The C library of macOS, as far as the package calls it."""

    def __getattr__(self, name):
        if name in ("renameat2", "inotify_init1", "statfs"):
            raise AttributeError(name)
        if name == "renameatx_np":
            return lambda a, b, c, d, flags: super(Library, self).__getattr__("renameat2")(
                *(-100 if a == -2 else a, b, -100 if c == -2 else c, d), {4: 1}[flags]
            )
        if name == "statfs$INODE64":
            return _statfs
        return super().__getattr__(name)


def _statfs(path, answer):
    if not os.path.exists(path):
        return -1
    struct.pack_into("I4x5s", answer, 64, MNT_LOCAL, b"apfs\0")
    return 0


class Darwin(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets the module that asks for the platform see macOS."""

    def find_spec(self, name, path, target=None):
        if name != "rollingfs.backend.local.system":
            return None
        spec = PathFinder.find_spec(name, path)
        self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        before, sys.platform = sys.platform, "darwin"
        try:
            self.loader.exec_module(module)
        finally:
            sys.platform = before


for _name in ("F_OFD_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW"):
    vars(fcntl).pop(_name, None)
if os.environ.get("MACOS") != "older":
    fcntl.F_OFD_SETLK = OFD_SETLK
fcntl.F_RDLCK, fcntl.F_UNLCK, fcntl.F_WRLCK, fcntl.F_FULLFSYNC = 1, 2, 3, FULLFSYNC
fcntl.fcntl = as_xnu
ctypes.CDLL = Library
for _name in MISSING:
    if hasattr(os, _name):
        delattr(os, _name)
multiprocessing.set_start_method("spawn", force=True)
sys.meta_path.insert(0, Darwin())
