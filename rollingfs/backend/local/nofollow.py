"""Names in `$chunks` folders that lead through no symbolic link: nothing elsewhere is made, deleted or locked."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from rollingfs.backend import refusals
from rollingfs.format import names

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_HAS_PLACES = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_PLACE_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | NO_FOLLOW


@contextlib.contextmanager
def place_of(path: str) -> Iterator[tuple[str, int | None]]:
    """The name and the folder's descriptor by which to open or unlink a file, as ``dir_fd`` takes them.

    The folders above a `$chunks` folder may be links. A file that lies elsewhere keeps its path, without a descriptor.

    Raises
    ------
    PermissionError
        The `$chunks` folder is a symbolic link.
    """
    folder, _, name = path.rpartition("/")
    if not (_HAS_PLACES and folder.endswith(names.CHUNKS_SUFFIX)):
        yield path, None
        return
    with refusing_links(folder):
        descriptor = os.open(folder, _PLACE_FLAGS)
    try:
        yield name, descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def refusing_links(path: str) -> Iterator[None]:
    """Say what is wrong where the system refuses to open a symbolic link."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
            raise refusals.linked(path) from None
        raise


def open_file(path: str, flags: int, mode: int) -> int:
    """Open a file, which may be new; a symbolic link of its name is refused."""
    with place_of(path) as (name, folder), refusing_links(path):
        return os.open(name, flags | NO_FOLLOW, mode, dir_fd=folder)


def unlink(path: str) -> None:
    """Remove a file, or a symbolic link itself."""
    with place_of(path) as (name, folder):
        os.unlink(name, dir_fd=folder)
