"""Names in `$chunks` folders that lead through no symbolic link: no file elsewhere is made, deleted or locked."""

from __future__ import annotations

import errno
import os

from rollingfs.backend import shared_errors
from rollingfs.backend.local import system
from rollingfs.format import names


class Opened:
    """A file that is open until `close`."""

    _descriptors: list[int]
    """Empty before it is open, and after."""

    def _open(self, path: str, flags: int) -> int:
        # Ctrl-C comes between two calls of the interpreter, so what opens the file notes that, in one call
        self._descriptors.extend(map(system.open_file, [path], [flags]))
        return self._descriptors[-1]

    def close(self) -> None:
        """Close the file; it may be closed already, or be gone from the disk."""
        if self._descriptors:
            try:
                any(map(os.close, map(self._descriptors.pop, [-1])))  # one call, too
            except OSError as error:  # what was read of it was read; after a write, a flush tells
                if error.errno != errno.ESTALE:
                    raise


class place_of(Opened):  # noqa: N801 - used as a function
    """The name and the folder's descriptor by which to open or unlink a file, as ``dir_fd`` takes them.

    The folders above a `$chunks` folder may be links. A file elsewhere keeps its path, without a descriptor.

    Raises
    ------
    PermissionError
        The `$chunks` folder is a symbolic link.
    """

    def __init__(self, path: str) -> None:
        self._path, self._descriptors = path, []

    def __enter__(self) -> tuple[str, int | None]:
        folder, _, name = self._path.rpartition("/")
        if not (system.PLACE and folder.endswith(names.CHUNKS_SUFFIX)):
            return self._path, None
        try:
            return name, self._open(folder, system.PLACE | system.NO_FOLLOW)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                refuse_link(folder, error)
            raise

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close()
        if isinstance(error, OSError) and error.filename == self._path.rpartition("/")[2]:
            error.filename = self._path


def refuse_link(path: str, error: OSError) -> None:
    """Raise the error that names a symbolic link, if that is why the system did not open it."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
        raise shared_errors.linked(path) from None


def open_file(path: str, flags: int, mode: int) -> int:
    """Open a file, which may be new; a symbolic link of its name is refused."""
    with place_of(path) as (name, folder):
        try:
            return system.open_file(name, flags | system.NO_FOLLOW, mode, dir_fd=folder)
        except OSError as error:
            refuse_link(path, error)
            raise


def unlink(path: str) -> None:
    """Remove a file, or a symbolic link itself."""
    with place_of(path) as (name, folder):
        system.unlink(name, dir_fd=folder)
