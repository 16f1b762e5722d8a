"""Copies of files, also several at once, within the filesystem and from and to the local disk."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import IO, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.config import conf
from fsspec.implementations.local import make_path_posix, trailing_sep
from fsspec.utils import check_contained, stringify_path

from rollingfs.errors import ConflictError
from rollingfs.fs import arguments, queries
from rollingfs.fs.binding import Binding
from rollingfs.fs.cat_and_get import get_file, pieces
from rollingfs.fs.core import Core
from rollingfs.fs.folder_operations import makedirs
from rollingfs.fs.patterns import Paths, as_list, is_one, local_sources, sources_of, targets
from rollingfs.fs.segment_verbs import pipe_file
from rollingfs.segment.read.revalidate import OUTDATED, SNAPSHOTS_MAX
from rollingfs.segment.write.ingest import PIECE_BYTES

BATCH_SIZE_DEFAULT = 128
"""Default number of files under way at once."""

Pair = tuple[str, str]
"""A source and its target."""


async def put_file(
    core: Core,
    lpath: str | os.PathLike[str],
    rpath: str,
    callback: Callback = DEFAULT_CALLBACK,
    mode: str = arguments.OVERWRITE,
    **kwargs: Any,
) -> None:
    """Write a file from the local disk, in bounded memory and a single commit; for a folder, make a folder.

    Raises
    ------
    FileExistsError
        With mode ``"create"``: a segment or a plain file is there.
    """
    arguments.creates_only(mode, rpath)
    if os.path.isdir(lpath):
        await makedirs(core, rpath, exist_ok=True)
        return
    with open(lpath, "rb") as file:
        callback.set_size(os.fstat(file.fileno()).st_size)
        await pipe_file(Binding(core, rpath), _pieces(file, callback), mode)


async def _noted(parts: AsyncIterator[bytes], seen: list[Exception]) -> AsyncIterator[bytes]:
    """Yield the bytes of a source; its error, when it was replaced or its chunks went, is also put into `seen`."""
    try:
        async for data in parts:
            yield data
    except OUTDATED as error:
        seen.append(error)
        raise


async def cp_file(core: Core, path1: str, path2: str, **kwargs: Any) -> None:
    """Copy the retained bytes of a file into a new segment; for a folder, make a folder.

    All chunks with these bytes are verified before the copy is committed.

    Raises
    ------
    FileNotFoundError
        The path does not exist; no byte was written.
    ConflictError
        Others replaced it again and again during the copy; no byte was written.
    CorruptChunkError
        A chunk is missing, too short, or fails its checksum; no byte was written.
    """
    from rollingfs.folders import moving

    source, target = core.strip(path1), core.to_write(path2)
    if source == target:
        await queries.info(core, path1)
        return
    for _ in range(SNAPSHOTS_MAX):
        try:
            view, parts = await pieces(core, source, verify=True, fresh=True)
        except FileNotFoundError:
            if not await core.client.contents.is_folder(source):
                raise
            await makedirs(core, path2, exist_ok=True)
            return
        seen = list[Exception]()
        try:
            await moving.copy(core.client, view, _noted(parts, seen), target)
            return
        except OUTDATED as error:
            if error not in seen:  # the target misses something
                raise  # else what is there now is copied
    raise ConflictError(f"{path1}: others replaced it {SNAPSHOTS_MAX} times while it was copied; nothing was written")


async def copy(
    core: Core,
    path1: Paths,
    path2: Paths,
    recursive: bool = False,
    maxdepth: int | None = None,
    on_error: str | None = None,
    batch_size: int | None = None,
    **kwargs: Any,
) -> None:
    """Copy files and folders within the filesystem; names and patterns count as by `expand_path`.

    Parameters
    ----------
    on_error
        ``"ignore"`` passes over files that do not exist, ``"raise"`` does not; by default, ``"ignore"`` with
        `recursive`.
    """
    ignores = on_error == "ignore" or (on_error is None and recursive)

    async def one(source: str, target: str) -> Exception | None:
        try:
            await cp_file(core, source, target, **kwargs)
        except Exception as error:
            if ignores and isinstance(error, FileNotFoundError) and error.filename == core.strip(source):
                return None  # else its target is missing: a bucket
            if not core.client.runtime.is_async:
                raise  # nothing else is under way, and nothing else begins
            return error
        return None

    pairs = await _pairs(core, path1, path2, recursive, maxdepth)
    for error in await _gather(core, [partial(one, *pair) for pair in pairs], batch_size):
        if error is not None:
            raise error


async def get(
    core: Core,
    rpath: Paths,
    lpath: Paths,
    recursive: bool = False,
    callback: Callback = DEFAULT_CALLBACK,
    maxdepth: int | None = None,
    batch_size: int | None = None,
    **kwargs: Any,
) -> None:
    """Copy files and folders to the local disk; names and patterns count as by `expand_path`."""
    if is_one(lpath):
        lpath = make_path_posix(lpath)
    pairs = await _pairs(core, rpath, lpath, recursive, maxdepth, is_to_local=True)
    await _each(core, get_file, pairs, callback, batch_size, kwargs)


async def put(
    core: Core,
    lpath: Paths,
    rpath: Paths,
    recursive: bool = False,
    callback: Callback = DEFAULT_CALLBACK,
    maxdepth: int | None = None,
    batch_size: int | None = None,
    **kwargs: Any,
) -> None:
    """Copy files and folders from the local disk; names and patterns count as by `expand_path`."""
    files, folders = await to_put(core, lpath, rpath, recursive, maxdepth)
    await _gather(core, [partial(makedirs, core, path, exist_ok=True) for path in folders], batch_size)
    await _each(core, put_file, files, callback, batch_size, kwargs)


async def to_put(
    core: Core, lpath: Paths, rpath: Paths, recursive: bool, maxdepth: int | None
) -> tuple[list[Pair], list[str]]:
    """Return the files that `put` writes: files with their targets, and folders."""
    pairs = await _pairs(core, lpath, rpath, recursive, maxdepth, is_from_local=True)
    folders = [target for source, target in pairs if os.path.isdir(source)]
    return [(source, target) for source, target in pairs if not os.path.isdir(source)], folders


async def _pairs(
    core: Core,
    named: Paths,
    target: Paths,
    recursive: bool,
    maxdepth: int | None,
    *,
    is_from_local: bool = False,
    is_to_local: bool = False,
) -> list[Pair]:
    """Return the files that the caller names, each with its target; either may be on the local disk."""
    if isinstance(named, list) and isinstance(target, list):
        return list(zip(as_list(named), as_list(target), strict=False))
    target = stringify_path(target) if is_one(target) else as_list(target)
    if is_from_local:
        sources, is_name = local_sources(named, recursive, maxdepth)
    else:
        sources, is_name = await sources_of(core, named, recursive, maxdepth)
    is_folder = isinstance(target, str) and trailing_sep(target)
    if isinstance(target, str) and not is_folder:
        is_folder = os.path.isdir(target) if is_to_local else await queries.isdir(core, target)
    places = targets(sources, named, target, is_folder=is_folder, is_name=is_name)
    if is_to_local and isinstance(target, str):
        check_contained(target, places)  # a name in a listing must not lead out of the folder
    return list(zip(sources, places, strict=True))


async def _each(
    core: Core,
    verb: Callable[..., Awaitable[Any]],
    pairs: list[Pair],
    callback: Callback,
    batch_size: int | None,
    options: dict[str, Any],
) -> None:
    """Call a verb for each pair, and inform the callback."""

    async def one(source: str, target: str) -> None:
        try:
            with callback.branched(source, target) as child:
                await verb(core, source, target, callback=child, **options)
        finally:
            callback.relative_update(1)

    callback.set_size(len(pairs))
    await _gather(core, [partial(one, *pair) for pair in pairs], batch_size)


async def _gather(core: Core, calls: list[Callable[[], Awaitable[Any]]], batch_size: int | None) -> Iterable[Any]:
    size = batch_size or core.batch_size or conf.get("gather_batch_size", BATCH_SIZE_DEFAULT)
    return await core.client.runtime.gather(calls, len(calls) if size == -1 else size)


def _pieces(file: IO[bytes], callback: Callback) -> Iterator[bytes]:
    """Yield the bytes of a file, and report them to a callback."""
    while data := file.read(PIECE_BYTES):
        yield data
        callback.relative_update(len(data))
