"""New files on a disk, written piece by piece: under their own names, or hidden until they are whole."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Buffer, Over, Part, Upload
from rollingfs.backend.local import disk, system
from rollingfs.format import names


class LocalUpload(Upload):
    """A file under an unused name; it is visible while it grows.

    With `over`, others use its name as well: it grows under another, and gets its name once it is whole.
    """

    def __init__(self, path: str, over: Over | None, sync: bool) -> None:
        mode = None if over is None else _mode_of(path)
        self._path = path
        self._over = over
        self._sync = sync
        self._growing = path if over is None else names.export_path(path)
        # a file object: garbage collection closes it if its owner forgets to
        self._file = os.fdopen(disk.open_new(self._growing, sync), "wb", buffering=0)
        if mode is not None and over is Over.ANYTHING:
            # a private file stays private; by its descriptor, because the next export may have removed the name
            with contextlib.suppress(OSError):  # not every disk has modes
                system.set_mode(self._file.fileno(), mode)

    async def write(self, data: Buffer) -> None:
        disk.write_all(self._file.fileno(), [data])

    async def copy(self, part: Part) -> None:
        """Append a range of a file, within the kernel where it can copy."""

        def see(source: int, _status: os.stat_result) -> None:
            disk.copy_bytes(source, self._file.fileno(), part.start, part.end)
            if part.token is not None:
                disk.check_same_or_grown(part.path, source, part.token)

        disk.look(part.path, see, looks_max=1)  # a part of it may be copied

    async def finish(self) -> None:
        if self._over is None:
            self._end()
            return
        try:
            self._end()
            _give_name(self._growing, self._path, self._over)
        except FileNotFoundError as error:
            raise shared_errors.export_ended(self._path) from error
        finally:
            self._clean()
        if self._sync:
            disk.flush_entries_of(os.path.dirname(self._path))
            disk.flush_folder(os.path.dirname(self._path))

    def _end(self) -> None:
        if self._sync:
            disk.flush(self._file.fileno())
        self._file.close()
        if self._sync:
            disk.flush_folder(os.path.dirname(self._growing))

    async def abort(self) -> None:
        if not self._file.closed:
            self._file.close()
            disk.remove_if_there(self._growing)
        if self._over is not None:
            self._clean()

    def _clean(self) -> None:
        disk.remove_if_there(self._growing)
        disk.remove_folder_if_empty(os.path.dirname(self._growing))


def _mode_of(path: str) -> int | None:
    """Return the mode of the file at a path, or None.

    Raises
    ------
    FileExistsError
        A pipe, a device or a socket is there, which a new file would destroy.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise FileExistsError(errno.EEXIST, "The target is not a regular file; nothing was written", path)
    return stat.S_IMODE(status.st_mode)


def _give_name(temporary: str, path: str, over: Over) -> None:
    if over is Over.ANYTHING:
        system.rename(temporary, path)
        return
    try:
        system.link(temporary, path)  # fails over anything that exists
    except OSError as error:
        if error.errno not in disk.NO_LINKS:
            raise
        if os.path.lexists(path):
            raise shared_errors.name_taken(path) from error
        system.rename(temporary, path)
