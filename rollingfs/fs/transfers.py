"""Copies of files, one or several at once, within the filesystem and from and to the local disk."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import IO, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.config import conf
from fsspec.implementations.local import make_path_posix, trailing_sep
from fsspec.utils import check_contained

from rollingfs.fs import arguments
from rollingfs.fs.binding import Binding
from rollingfs.fs.core import Core
from rollingfs.fs.file_verbs import pipe_file
from rollingfs.fs.folder_operations import FolderOperations
from rollingfs.fs.patterns import Paths, Patterns, as_list, as_text, is_one, local_sources, targets
from rollingfs.fs.reading import Reads

BATCH_SIZE_DEFAULT = 128
"""Default number of files under way at once."""

Pair = tuple[str, str]
"""A source and its target."""


class Transfers:
    """The verbs that copy files.

    Parameters
    ----------
    batch_size
        Maximum files under way at once; -1 for all.
    """

    def __init__(
        self, core: Core, patterns: Patterns, reads: Reads, folders: FolderOperations, batch_size: int | None
    ) -> None:
        self.core = core
        self.client = core.client
        self.patterns = patterns
        self.queries = patterns.queries
        self.reads = reads
        self.folders = folders
        self.runtime = core.client.runtime
        self.batch_size = batch_size

    async def put_file(
        self,
        lpath: str | os.PathLike[str],
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = arguments.OVERWRITE,
        **kwargs: Any,
    ) -> None:
        """Write a file from the local disk, in bounded memory and one commit; for a folder, make one.

        Raises
        ------
        FileExistsError
            With mode ``"create"``: a segment or a plain file is there.
        """
        arguments.creates_only(mode, rpath)
        if os.path.isdir(lpath):
            await self.folders.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as file:
            callback.set_size(os.fstat(file.fileno()).st_size)
            await pipe_file(Binding.by_path(self.core, rpath), _Counted(file, callback), mode)

    async def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy the retained bytes of a file into a new segment; for a folder, make one.

        All chunks with these bytes are verified before the copy is committed.

        Raises
        ------
        FileNotFoundError
            Nothing is there, or it was replaced while it was copied; nothing was written.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum; nothing was written.
        """
        source, target = self.core.strip(path1), self.core.to_write(path2)
        if source == target:
            await self.queries.info(path1)
            return
        try:
            _, pieces = await self.reads.pieces(source, verify=True)
        except FileNotFoundError:
            if not await self.queries.listings.is_folder(source):
                raise
            await self.folders.makedirs(path2, exist_ok=True)
            return
        await self._copy(pieces, target)

    async def _copy(self, pieces: AsyncIterator[bytes], target: str) -> None:
        intake = self.client.segments.replacement(target)
        try:
            async for data in pieces:
                await intake.take(data)
        except BaseException:
            await intake.abort()
            raise
        await self.client.segments.overwrite(target, intake)

    async def copy(
        self,
        path1: Paths,
        path2: Paths,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files and folders within the filesystem; names and patterns are told apart as by `expand_path`.

        Parameters
        ----------
        on_error
            ``"ignore"`` passes over files that do not exist, ``"raise"`` does not; by default, ``"ignore"`` with
            `recursive`.
        """
        ignores = on_error == "ignore" or (on_error is None and recursive)

        async def one(source: str, target: str) -> Exception | None:
            try:
                await self.cp_file(source, target, **kwargs)
            except Exception as error:
                if ignores and isinstance(error, FileNotFoundError):
                    return None
                if not self.runtime.is_async:
                    raise  # nothing else is under way, and nothing else begins
                return error
            return None

        pairs = await self._pairs(path1, path2, recursive, maxdepth)
        for error in await self._gather([partial(one, *pair) for pair in pairs], batch_size):
            if error is not None:
                raise error

    async def get(
        self,
        rpath: Paths,
        lpath: Paths,
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files and folders to the local disk; names and patterns are told apart as by `expand_path`."""
        if is_one(lpath):
            lpath = make_path_posix(lpath)
        pairs = await self._pairs(rpath, lpath, recursive, maxdepth, is_local=True)
        await self._each(self.reads.get_file, pairs, callback, batch_size, kwargs)

    async def put(
        self,
        lpath: Paths,
        rpath: Paths,
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files and folders from the local disk; names and patterns are told apart as by `expand_path`."""
        files, folders = await self.to_put(lpath, rpath, recursive, maxdepth)
        await self._gather([partial(self.folders.makedirs, path, exist_ok=True) for path in folders], batch_size)
        await self._each(self.put_file, files, callback, batch_size, kwargs)

    async def to_put(
        self, lpath: Paths, rpath: Paths, recursive: bool, maxdepth: int | None
    ) -> tuple[list[Pair], list[str]]:
        """What `put` writes: files with their targets, and folders."""
        if isinstance(lpath, list) and isinstance(rpath, list):
            sources, places = as_list(lpath), as_list(rpath)
        else:
            target = as_text(rpath)
            sources, is_name = local_sources(lpath, recursive, maxdepth)
            is_folder = isinstance(target, str) and (trailing_sep(target) or await self.queries.isdir(target))
            places = targets(sources, lpath, target, is_folder=is_folder, is_name=is_name)
        pairs = list(zip(sources, places, strict=False))
        folders = [target for source, target in pairs if os.path.isdir(source)]
        return [(source, target) for source, target in pairs if not os.path.isdir(source)], folders

    async def _pairs(
        self, named: Paths, target: Paths, recursive: bool, maxdepth: int | None, *, is_local: bool = False
    ) -> list[Pair]:
        """The files that the caller names, each with its target, which is on the local disk if `is_local`."""
        if isinstance(named, list) and isinstance(target, list):
            return list(zip(as_list(named), as_list(target), strict=False))
        target = as_text(target)
        sources, is_name = await self.patterns.sources(named, recursive, maxdepth)
        is_folder = isinstance(target, str) and trailing_sep(target)
        if isinstance(target, str) and not is_folder:
            is_folder = os.path.isdir(target) if is_local else await self.queries.isdir(target)
        places = targets(sources, named, target, is_folder=is_folder, is_name=is_name)
        if is_local and isinstance(target, str):
            check_contained(target, places)  # a name in a listing must not lead out of the folder
        return list(zip(sources, places, strict=True))

    async def _each(
        self,
        verb: Callable[..., Awaitable[Any]],
        pairs: list[Pair],
        callback: Callback,
        batch_size: int | None,
        options: dict[str, Any],
    ) -> None:
        """Call a verb for each pair, and tell the callback."""

        async def one(source: str, target: str) -> None:
            try:
                with callback.branched(source, target) as child:
                    await verb(source, target, callback=child, **options)
            finally:
                callback.relative_update(1)

        callback.set_size(len(pairs))
        await self._gather([partial(one, *pair) for pair in pairs], batch_size)

    async def _gather(self, calls: list[Callable[[], Awaitable[Any]]], batch_size: int | None) -> Iterable[Any]:
        size = batch_size or self.batch_size or conf.get("gather_batch_size", BATCH_SIZE_DEFAULT)
        return await self.runtime.gather(calls, len(calls) if size == -1 else size)


class _Counted:
    """A file that tells a callback how many of its bytes were read."""

    def __init__(self, file: IO[bytes], callback: Callback) -> None:
        self._file = file
        self._callback = callback

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._callback.relative_update(len(data))
        return data
