"""Calls of the system that differ between Linux and macOS, under the same names in a module for each system.

`OFD_SETLK`
    The command of `fcntl` that locks for an open file description; 0 if there is none.
`lock_request`
    The bytes of a ``struct flock`` over a whole file, for a kind of lock.
`allocate`
    Gives an empty file its blocks on the disk.
`flush`
    Makes the bytes of an open file survive a loss of power.
`is_local`
    Whether this kernel alone reads and writes the files of a disk.
`path_of`
    The path of an open file by now.
`DESCRIPTORS`
    The folder that lists the open files of this process.
`FREE_RENAME`, `HERE`, `NO_REPLACE`
    The function of the C library that renames to a free name, its number for the process's folder, and its flag.
"""

import sys

if sys.platform == "darwin":
    from rollingfs.backend.local import macos as _calls
else:
    from rollingfs.backend.local import linux as _calls

OFD_SETLK, DESCRIPTORS = _calls.OFD_SETLK, _calls.DESCRIPTORS
FREE_RENAME, HERE, NO_REPLACE = _calls.FREE_RENAME, _calls.HERE, _calls.NO_REPLACE
lock_request, allocate, flush = _calls.lock_request, _calls.allocate, _calls.flush
is_local, path_of = _calls.is_local, _calls.path_of

__all__ = [
    "DESCRIPTORS",
    "FREE_RENAME",
    "HERE",
    "NO_REPLACE",
    "OFD_SETLK",
    "allocate",
    "flush",
    "is_local",
    "lock_request",
    "path_of",
]
