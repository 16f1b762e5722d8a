"""New files on a disk, written piece by piece: under their own names, or hidden until they are whole."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from rollingfs.backend.contract import Buffer, Upload
from rollingfs.backend.local import disk


class LocalUpload(Upload):
    """A file under a name that nobody else uses; it is visible while it grows."""

    def __init__(self, path: str, sync: bool) -> None:
        self._path = path
        self._sync = sync
        # a file object: garbage collection closes it if its owner forgets to
        self._file = os.fdopen(disk.open_new(path, sync), "wb", buffering=0)

    async def write(self, data: Buffer) -> None:
        disk.write_all(self._file.fileno(), [data])

    async def finish(self) -> str | None:
        if self._sync:
            disk.flush(self._file.fileno())
        self._file.close()
        if self._sync:
            disk.flush_folder(os.path.dirname(self._path))
        return None

    async def abort(self) -> None:
        if not self._file.closed:
            self._file.close()
            disk.remove_if_there(self._path)


class HiddenUpload(LocalUpload):
    """A file under a name that others use as well. It grows under a temporary name.

    Parameters
    ----------
    temporary : str
        The temporary name.
    appear : callable
        Gives the whole file its own name, or removes the file; returns its token.
    """

    def __init__(self, temporary: str, sync: bool, appear: Callable[[], Awaitable[str]]) -> None:
        super().__init__(temporary, sync)
        self._appear = appear

    async def finish(self) -> str | None:
        await super().finish()
        return await self._appear()
