"""The methods of the filesystem: each verb in two forms, and those that take several paths or patterns."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.implementations.local import make_path_posix
from fsspec.utils import check_contained, stringify_path

from rollingfs.fs import patterns
from rollingfs.fs.arguments import OVERWRITE, creates_only
from rollingfs.fs.operations import Verbs
from rollingfs.fs.patterns import Path, as_list, is_one, is_pattern
from rollingfs.fs.sync_async import both, name_for_users
from rollingfs.runtime.bridge import Bridge
from rollingfs.write.ingest import is_small


class Methods(AsyncFileSystem):
    """All that fsspec's filesystems and segments can do, made of verbs.

    What fsspec makes of these by itself (`walk`, `glob`, `expand_path`, `cat`, `get`, `put`, `copy`, `pipe`, ...) is
    inherited: the blocking forms from `AbstractFileSystem` over a sync backend, where no event loop is needed, else
    from `AsyncFileSystem`.
    """

    _bridge: Bridge
    _verbs: Verbs

    info, _info = both(Verbs.info)
    exists, _exists = both(Verbs.exists)
    isfile, _isfile = both(Verbs.isfile)
    isdir, _isdir = both(Verbs.isdir)
    ls, _ls = both(Verbs.ls)
    find, _find = both(Verbs.find)
    du, _du = both(Verbs.du)
    created, _created = both(Verbs.created)
    modified, _modified = both(Verbs.modified)
    ukey, _ukey = both(Verbs.ukey)
    checksum, _checksum = both(Verbs.checksum)
    cat_file, _cat_file = both(Verbs.cat_file)
    cat_ranges, _cat_ranges = both(Verbs.cat_ranges)
    get_file, _get_file = both(Verbs.get_file)
    _pipe_file = both(Verbs.pipe_file)[1]
    _put_file = both(Verbs.put_file)[1]
    touch, _touch = both(Verbs.touch, commits=True)
    cp_file, _cp_file = both(Verbs.cp_file)
    mkdir, _mkdir = both(Verbs.mkdir)
    makedirs, _makedirs = both(Verbs.makedirs)
    rmdir, _rmdir = both(Verbs.rmdir)
    rm_file, _rm_file = both(Verbs.rm_file)
    mv_file, _mv_file = both(Verbs.mv_file)
    create, _create = both(Verbs.create, commits=True)
    _append = both(Verbs.append)[1]
    _overwrite = both(Verbs.overwrite)[1]
    stage, _stage = both(Verbs.stage)
    seal, _seal = both(Verbs.seal, commits=True)
    truncate, _truncate = both(Verbs.truncate, commits=True)
    concat, _concat = both(Verbs.concat, commits=True)
    collect, _collect = both(Verbs.collect)
    export, _export = both(Verbs.export)

    def append(
        self,
        path: str,
        data: Any,
        expected_offset: int | None = None,
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> int:
        # uploads are a call of their own, which Ctrl-C cancels with nothing committed
        waits = not is_small(data)
        taken = self._bridge.run(self._verbs.take_addition(path, data, expected_offset, expected_attrs), waits=waits)
        verb = self._verbs.append(path, taken, expected_offset, attrs, expected_attrs)
        return self._bridge.run(verb, commits=self._verbs.strip(path))

    append.__doc__ = Verbs.append.__doc__

    def overwrite(
        self,
        path: str,
        data: Any,
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> None:
        waits = not is_small(data)
        taken = self._bridge.run(self._verbs.take_replacement(path, data, expected_attrs), waits=waits)
        self._bridge.run(self._verbs.overwrite(path, taken, attrs, expected_attrs), commits=self._verbs.strip(path))

    overwrite.__doc__ = Verbs.overwrite.__doc__

    def pipe_file(self, path: str, value: Any, mode: str = OVERWRITE, **kwargs: Any) -> None:
        create_only = creates_only(mode, path)
        if self._intrans:
            with self.open(path, "xb" if create_only else "wb") as file:
                file.write(value)
            return
        waits = not is_small(value)
        taken = self._bridge.run(self._verbs.take_replacement(path, value, create_only=create_only), waits=waits)
        self._bridge.run(self._verbs.pipe_file(path, taken, mode), commits=self._verbs.strip(path))

    pipe_file.__doc__ = Verbs.pipe_file.__doc__

    def put_file(
        self,
        lpath: str | os.PathLike[str],
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = OVERWRITE,
        **kwargs: Any,
    ) -> None:
        if self._intrans and not os.path.isdir(lpath):
            with self.open(rpath, "xb" if creates_only(mode, rpath) else "wb") as target, open(lpath, "rb") as source:
                shutil.copyfileobj(source, target)
            return
        self._bridge.run(self._verbs.put_file(lpath, rpath, callback, mode))

    put_file.__doc__ = Verbs.put_file.__doc__

    # -- several paths, patterns ---------------------------------------------------------------------------

    def expand_path(
        self,
        path: Path | Sequence[Path],
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
        **kwargs: Any,
    ) -> list[str]:
        """What names and patterns stand for: a name like a pattern is one only where nothing is there under it.

        Parameters
        ----------
        recursive
            Also all that is below.
        assume_literal
            Nothing is a pattern.

        Raises
        ------
        FileNotFoundError
            There is nothing.
        """
        listed = self._listed(path)
        literal = listed if assume_literal else self._bridge.run(self._verbs.literal(listed))
        found = set[str]()
        for paths, is_literal in patterns.groups(listed, literal):
            try:
                found.update(super().expand_path(paths, recursive, maxdepth, assume_literal=is_literal, **kwargs))
            except FileNotFoundError as error:
                patterns.check_empty(error)
        if not found:
            raise patterns.unmatched(listed)
        return sorted(found)

    async def _expand_path(
        self,
        path: Path | Sequence[Path],
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
    ) -> list[str]:
        listed = self._listed(path)
        literal = listed if assume_literal else await self._bridge.arun(self._verbs.literal(listed))
        found = set[str]()
        for paths, is_literal in patterns.groups(listed, literal):
            try:
                found.update(await super()._expand_path(paths, recursive, maxdepth, assume_literal=is_literal))
            except FileNotFoundError as error:
                patterns.check_empty(error)
        if not found:
            raise patterns.unmatched(listed)
        return sorted(found)

    def copy(
        self,
        path1: Path | Sequence[Path],
        path2: Path | Sequence[Path],
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files and folders within the filesystem; names and patterns are told apart as by `expand_path`."""
        if self.mirror_sync_methods:
            sync(self.loop, self._copy, path1, path2, recursive, on_error, maxdepth, **kwargs)
            return
        if is_pattern(path1) and is_one(path2):
            found = self.expand_path(path1, recursive, maxdepth)
            path1, path2 = self._bridge.run(self._verbs.pairs(path1, found, path2, recursive, maxdepth))
        super().copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error=on_error, **kwargs)

    async def _copy(
        self,
        path1: Path | Sequence[Path],
        path2: Path | Sequence[Path],
        recursive: bool = False,
        on_error: str | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        if is_pattern(path1) and is_one(path2):
            found = await self._expand_path(path1, recursive, maxdepth)
            path1, path2 = await self._bridge.arun(self._verbs.pairs(path1, found, path2, recursive, maxdepth))
        await super()._copy(path1, path2, recursive, on_error, maxdepth, **kwargs)

    def get(
        self,
        rpath: Path | Sequence[Path],
        lpath: Path | Sequence[Path],
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files and folders to the local disk; names and patterns are told apart as by `expand_path`."""
        if self.mirror_sync_methods:
            sync(self.loop, self._get, rpath, lpath, recursive, callback, maxdepth, **kwargs)
            return
        if is_pattern(rpath) and is_one(lpath):
            found = self.expand_path(rpath, recursive, maxdepth)
            rpath, lpath = self._bridge.run(self._to_get(rpath, found, lpath, recursive, maxdepth))
        super().get(rpath, lpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **kwargs)

    async def _get(
        self,
        rpath: Path | Sequence[Path],
        lpath: Path | Sequence[Path],
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        if is_pattern(rpath) and is_one(lpath):
            found = await self._expand_path(rpath, recursive, maxdepth)
            rpath, lpath = await self._bridge.arun(self._to_get(rpath, found, lpath, recursive, maxdepth))
        await super()._get(rpath, lpath, recursive, callback, maxdepth, **kwargs)

    async def _to_get(
        self, named: Path | Sequence[Path], found: list[str], target: Path, recursive: bool, maxdepth: int | None
    ) -> tuple[list[str], list[str]]:
        local = make_path_posix(target)
        sources, places = await self._verbs.pairs(
            named, found, local, recursive, maxdepth, is_folder=os.path.isdir(local)
        )
        check_contained(local, places)  # a name in a listing must not lead out of the folder
        return sources, places

    def put(
        self,
        lpath: Path | Sequence[Path],
        rpath: Path | Sequence[Path],
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files and folders from the local disk; names and patterns are told apart as by `expand_path`."""
        if self.mirror_sync_methods:
            sync(self.loop, self._put, lpath, rpath, recursive, callback, maxdepth=maxdepth, **kwargs)
            return
        if is_pattern(lpath) and is_one(rpath):
            lpath, rpath = self._bridge.run(self._to_put(lpath, rpath, recursive, maxdepth))
        super().put(lpath, rpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **kwargs)

    async def _put(
        self,
        lpath: Path | Sequence[Path],
        rpath: Path | Sequence[Path],
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        if is_pattern(lpath) and is_one(rpath):
            lpath, rpath = await self._bridge.arun(self._to_put(lpath, rpath, recursive, maxdepth))
        await super()._put(lpath, rpath, recursive, callback, batch_size, maxdepth, **kwargs)

    async def _to_put(
        self, named: Path | Sequence[Path], target: Path, recursive: bool, maxdepth: int | None
    ) -> tuple[list[str], list[str]]:
        sources = patterns.local_sources(named, recursive=recursive, maxdepth=maxdepth)
        is_literal = is_one(named) and os.path.lexists(make_path_posix(named))
        is_folder = await self._verbs.isdir(stringify_path(target))
        places = patterns.targets(sources, named, target, is_folder=is_folder, is_literal=is_literal)
        return sources, places

    def rm(
        self,
        path: str | Sequence[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        damaged: bool = False,
    ) -> None:
        """Delete segments and plain files; with `recursive`, folders with all that is in them.

        Parameters
        ----------
        path
            One, several, or patterns; a name like a pattern is one only where nothing is there under it.
        recursive
            Folders too.
        maxdepth
            How many levels of a folder to empty; then the folders stay.
        damaged
            Also segments whose header is damaged or too new, whatever they hold: the header goes, and with it all
            that could be known of them; their chunks are left to `collect`.

        Raises
        ------
        FileNotFoundError
            One of them is not there.
        IsADirectoryError
            One is a folder, and `recursive` is false.
        FencedError
            An exclusive owner holds one.
        CorruptHeaderError
            The header of one cannot be read, and `damaged` is false; nothing of its folder was deleted.
        """
        paths = self.expand_path(path) if is_pattern(path) else self._listed(path)
        verb = self._verbs.folders.delete_all(paths, recursive=recursive, depth_max=maxdepth, damaged=damaged)
        self._bridge.run(verb)

    async def _rm(
        self,
        path: str | Sequence[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        damaged: bool = False,
        **kwargs: Any,
    ) -> None:
        paths = await self._expand_path(path) if is_pattern(path) else self._listed(path)
        verb = self._verbs.folders.delete_all(paths, recursive=recursive, depth_max=maxdepth, damaged=damaged)
        await self._bridge.arun(verb)

    def mv(
        self,
        path1: str | Sequence[str],
        path2: str | Sequence[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Give segments, plain files and folders other names; no bytes are moved.

        A segment keeps its offsets, seal, policy and attributes. What is at the target is replaced; into a folder
        that is there it goes under its own name. Each segment moves by itself, all or nothing.

        Parameters
        ----------
        path1
            One, several, or patterns, as for `rm`.
        path2
            Where to; a folder, for several. As many as there are of `path1`, if it is a list.

        Raises
        ------
        FileNotFoundError
            There is nothing at `path1`.
        FencedError
            An exclusive owner holds one of the segments.
        NotImplementedError
            `maxdepth` is given: half a folder cannot be moved.
        """
        sources = self.expand_path(path1) if is_pattern(path1) else self._listed(path1)
        self._bridge.run(self._move(path1, sources, path2, maxdepth))

    async def _mv(
        self,
        path1: str | Sequence[str],
        path2: str | Sequence[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        sources = await self._expand_path(path1) if is_pattern(path1) else self._listed(path1)
        await self._bridge.arun(self._move(path1, sources, path2, maxdepth))

    def _listed(self, paths: Path | Sequence[Path]) -> list[str]:
        return [self._verbs.strip(path) for path in as_list(paths)]

    async def _move(
        self, path1: str | Sequence[str], sources: Sequence[str], path2: str | Sequence[str], maxdepth: int | None
    ) -> None:
        if maxdepth is not None:
            raise NotImplementedError(
                f"{path1}: mv takes no maxdepth: half a folder cannot be moved; nothing was moved"
            )
        if not isinstance(path2, str | os.PathLike):
            for source, target in zip(sources, path2, strict=True):
                await self._verbs.folders.move(source, self._verbs.strip(target), into=False)
            return
        target = self._verbs.strip(path2)
        into: bool | None = None  # whether the target is a folder, the move itself finds out
        # a pattern never stands for its own name, for then it would be one
        if not is_one(path1) or list(sources) != self._listed(path1) or stringify_path(path2).endswith("/"):
            into = True
        elif stringify_path(path1).endswith("/"):
            into = False  # as with cp: what is in the folder
        for source in sources:
            await self._verbs.folders.move(source, target, into=into)


name_for_users(Methods, "RollingFileSystem")
