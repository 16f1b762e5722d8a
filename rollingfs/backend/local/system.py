"""Calls of the system that differ between Linux, macOS and Windows, under the same names in a module for each.

Flags of `open_file`
    `NO_FOLLOW` refuses a symbolic link, `NO_WAIT` does not wait for the writer of a named pipe, `FLUSHABLE` is needed
    for `flush`, and `PLACE` opens a folder for ``dir_fd`` (0: no call takes one).
`open_file`, `mkdir`, `link`, `unlink`, `rename`
    As in `os`. An open file may be renamed and removed, and be replaced by a rename. A new file or folder that the
    system would give another name is refused.
`refresh`, `look_up`
    Drops the file that the kernel, or a mount, knows by a name which another machine has given to another file. The
    second changes the date of the file's attributes, so only a commit calls it.
`rename_free`
    Renames to a free name; returns the number of the error, or 0. It is None where the system has no such step.
`read_at`, `write_at`, `read_into`
    `os.pread`, `os.pwrite` and `os.preadv`; the last may be None.
`copy_in_kernel`
    `os.copy_file_range`, or None: `fcopyfile` of macOS reads and writes as we do, and Python has no `clonefile`.
`set_date`, `set_mode`, `arrived_s`
    The dates and the mode of a file.
`room`, `allocate`
    The free bytes and inodes of a disk; gives an empty file its blocks.
`flush`, `open_folder`
    Makes the bytes of an open file, or the entries of an open folder, survive a loss of power.
`lock`, `unlock`
    A lock of an open file, which no close of another descriptor drops.
`GONE`
    Errors of `os.lstat` for a name that is gone, or about to go.
`is_local`, `number_of_disk`
    Whether only this kernel reads and writes the files of a disk; 0 for a disk that shares its number.
`true_name`
    The name that the disk has for a path that is there, or "" where only a listing shows it.
`path_of`, `DESCRIPTORS`
    The path of an open file by now; the folder that lists the open files of this process.
`notifier`
    The library that reports closed files, or None.
"""

import sys

if sys.platform == "win32":
    from rollingfs.backend.local import windows as _calls, windows as _shared
elif sys.platform == "darwin":
    from rollingfs.backend.local import macos as _calls, posix as _shared
else:
    from rollingfs.backend.local import posix as _calls, posix as _shared

NO_FOLLOW, NO_WAIT, PLACE, FLUSHABLE = _shared.NO_FOLLOW, _shared.NO_WAIT, _shared.PLACE, _shared.FLUSHABLE
GONE, DESCRIPTORS = _shared.GONE, _calls.DESCRIPTORS
open_file, unlink, mkdir, link, rename = _shared.open_file, _shared.unlink, _shared.mkdir, _shared.link, _shared.rename
read_at, write_at, read_into = _shared.read_at, _shared.write_at, _shared.read_into
copy_in_kernel, refresh, look_up = _shared.copy_in_kernel, _shared.refresh, _shared.look_up
set_mode, set_date, arrived_s = _shared.set_mode, _shared.set_date, _shared.arrived_s
room, open_folder, number_of_disk = _shared.room, _shared.open_folder, _shared.number_of_disk
lock, unlock, rename_free = _calls.lock, _calls.unlock, _calls.rename_free
allocate, flush, is_local = _calls.allocate, _calls.flush, _calls.is_local
path_of, true_name, notifier = _calls.path_of, _calls.true_name, _calls.notifier
