"""The blocking methods of the filesystem that write files: within a transaction they wait for its end."""

from __future__ import annotations

import os
import shutil
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.fs import arguments, segment_verbs, transfers
from rollingfs.fs.patterns import Paths
from rollingfs.fs.sync_async import PASSED_OVER


def pipe_file(self: Any, path: str, value: Any, mode: str = arguments.OVERWRITE, **kwargs: Any) -> None:
    if not self._intrans:
        self._pipe_file_now(path, value, mode, **kwargs)
        return
    with self.open(path, "xb" if arguments.creates_only(mode, path) else "wb", **_meant(kwargs)) as file:
        file.write(value)


def _meant(options: dict[str, Any]) -> dict[str, Any]:
    """The options that `open` is to see, or to refuse."""
    return {name: value for name, value in options.items() if name not in PASSED_OVER}


def put_file(
    self: Any,
    lpath: str | os.PathLike[str],
    rpath: str,
    callback: Callback = DEFAULT_CALLBACK,
    mode: str = arguments.OVERWRITE,
    **kwargs: Any,
) -> None:
    if not self._intrans or os.path.isdir(lpath):
        self._put_file_now(lpath, rpath, callback, mode, **kwargs)
        return
    with (
        self.open(rpath, "xb" if arguments.creates_only(mode, rpath) else "wb", **_meant(kwargs)) as target,
        open(lpath, "rb") as source,
    ):
        shutil.copyfileobj(source, target)


def put(
    self: Any,
    lpath: Paths,
    rpath: Paths,
    recursive: bool = False,
    callback: Callback = DEFAULT_CALLBACK,
    maxdepth: int | None = None,
    **kwargs: Any,
) -> None:
    if not self._intrans:
        self._put_now(lpath, rpath, recursive, callback, maxdepth, **kwargs)
        return
    files, folders = self._bridge.run(transfers.to_put(self._core, lpath, rpath, recursive, maxdepth))
    for folder in folders:
        self.makedirs(folder, exist_ok=True)
    callback.set_size(len(files))
    for source, target in callback.wrap(files):
        with callback.branched(source, target) as child:
            self.put_file(source, target, callback=child, **kwargs)


pipe_file.__doc__ = segment_verbs.pipe_file.__doc__
put_file.__doc__ = transfers.put_file.__doc__
put.__doc__ = transfers.put.__doc__
