"""A path with wildcards names a file if a file has exactly this name; otherwise it is a pattern."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from glob import has_magic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem, make_path_posix, trailing_sep
from fsspec.utils import glob_translate, other_paths, stringify_path

from rollingfs.fs import queries
from rollingfs.fs.core import Core

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]


def is_one(paths: Paths) -> TypeIs[Path]:
    """Return whether this is a single path."""
    return isinstance(paths, str | os.PathLike)


def as_list(paths: Paths) -> list[str]:
    """Return a path or several, as a list."""
    several: Sequence[Path] = [paths] if is_one(paths) else paths
    return [stringify_path(path) for path in several]


def is_pattern(paths: Paths) -> bool:
    """Return whether any path looks like a pattern."""
    return any(has_magic(path) for path in as_list(paths))


def is_alone(paths: Paths) -> bool:
    """Return whether fsspec takes this for a path; it takes a plain `pathlib.Path` for a list of a single path."""
    return isinstance(paths, str) or (is_one(paths) and is_pattern(paths))


def without_folders(named: Paths, recursive: bool, maxdepth: int | None) -> bool:
    """Return whether a transfer leaves out the folders that a name or pattern stands for, by the rules of fsspec."""
    return is_alone(named) and (not recursive or maxdepth is not None)


def unmatched(paths: Iterable[str]) -> FileNotFoundError:
    """Return the error for names and patterns without a file."""
    return FileNotFoundError(errno.ENOENT, "Nothing has this name or matches it as a pattern", ", ".join(paths))


def targets(sources: list[str], named: Paths, target: str | list[str], *, is_folder: bool, is_name: bool) -> list[str]:
    """Return the target of each file, by the rules of fsspec.

    Parameters
    ----------
    sources
        The files that `named` stands for.
    named, target
        The target as the caller gave it.
    is_folder
        Whether the target is a folder that exists.
    is_name
        Whether `named` is a name, not a pattern.

    Raises
    ------
    ValueError
        The target is a list, and not as long as `sources`.
    """
    if not sources:
        return []
    if not isinstance(target, str):
        if len(target) != len(sources):
            raise ValueError(f"{len(sources)} sources and {len(target)} targets: give as many targets as sources")
        return target
    into = len(sources) == 1
    if is_name:
        into = (is_folder or trailing_sep(target)) and not trailing_sep(as_list(named)[0])
    alone = is_alone(named)
    found: list[str] = other_paths(sources, target, exists=alone and into, flatten=not alone)
    return found


def local_sources(paths: Paths, recursive: bool, maxdepth: int | None) -> tuple[list[str], bool]:
    """Return the local files and folders that names and patterns stand for, and whether `paths` is a name.

    Raises
    ------
    FileNotFoundError
        There is no such path.
    """
    named = [make_path_posix(path) for path in as_list(paths)]
    names = {path for path in named if not has_magic(path) or os.path.lexists(path)}
    local = LocalFileSystem()
    found: set[str] = set()
    for path in named:
        with contextlib.suppress(FileNotFoundError):  # this one stands for nothing; another may not
            found.update(local.expand_path([path], recursive, maxdepth, assume_literal=path in names))
    if not found:
        raise unmatched(named)
    if without_folders(paths, recursive, maxdepth):
        found = {path for path in found if not os.path.isdir(path)}
    return sorted(found), len(names) == len(named)


Matches = dict[str, dict[str, Any] | None]
"""Paths, with their infos if a listing had them."""


async def expand_path(
    core: Core,
    path: Paths,
    recursive: bool = False,
    maxdepth: int | None = None,
    assume_literal: bool = False,
    **kwargs: Any,
) -> list[str]:
    """Return the paths of names and patterns: a path like a pattern is a pattern only if no file has that name.

    Parameters
    ----------
    recursive
        Also all that is below.
    assume_literal
        No path is a pattern.

    Raises
    ------
    FileNotFoundError
        There is no such path.
    """
    return sorted(await _expanded(core, path, recursive, maxdepth, assume_literal, kwargs))


async def _expanded(
    core: Core, path: Paths, recursive: bool, maxdepth: int | None, assume_literal: bool, options: dict[str, Any]
) -> Matches:
    if maxdepth is not None and maxdepth < 1:
        raise ValueError("maxdepth must be at least 1")
    given = listed(core, path)
    names = set(given if assume_literal else await _names(core, given))
    found: Matches = {}
    for one in given:
        matched: Matches = {one: None}
        depth_max = maxdepth
        if one not in names:
            matched, depth_max = await _glob(core, one, maxdepth), None if maxdepth is None else maxdepth - 1
        if not recursive or one not in names:
            found |= matched
        if recursive and depth_max != 0:
            for top in matched:
                found |= await _below(core, top, depth_max, options)
    if not found:
        raise unmatched(given)
    return found


def listed(core: Core, paths: Paths) -> list[str]:
    """Return a path or several, as the backend names them."""
    return [core.strip(path) for path in as_list(paths)]


async def chosen(core: Core, paths: Paths) -> list[str]:
    """Return the paths that names and patterns stand for; a name is not looked up."""
    return await expand_path(core, paths) if is_pattern(paths) else listed(core, paths)


async def sources_of(core: Core, paths: Paths, recursive: bool, maxdepth: int | None) -> tuple[list[str], bool]:
    """Return the paths of a transfer, and whether `paths` is a name.

    Raises
    ------
    PermissionError
        A folder below may not be listed: what is copied without it would look whole.
    """
    found = await _expanded(core, paths, recursive, maxdepth, False, {})
    for path, info in found.items():
        if info is not None and info["type"] == "directory" and "error" in info:
            raise PermissionError(
                errno.EACCES, f"The folder cannot be listed; nothing was copied: {info['error']}", path
            )
    is_name = not is_pattern(paths) or (is_one(paths) and listed(core, paths)[0] in found)
    if without_folders(paths, recursive, maxdepth):
        unknown = [path for path, info in found.items() if info is None]
        folders = await core.client.contents.gather([partial(queries.isdir, core, path) for path in unknown])
        is_folder = dict(zip(unknown, folders, strict=True))
        found = {
            path: info
            for path, info in found.items()
            if not (is_folder[path] if info is None else info["type"] == "directory")
        }
    return sorted(found), is_name


async def _names(core: Core, paths: Sequence[str]) -> list[str]:
    """Return the names among paths: all except patterns that no file has as its name."""
    asked = [path for path in paths if is_pattern(path)]
    there = await core.client.contents.gather([partial(queries.exists, core, path) for path in asked])
    missing = {path for path, is_there in zip(asked, there, strict=True) if not is_there}
    return [path for path in paths if path not in missing]


async def glob(core: Core, path: str, maxdepth: int | None = None, **kwargs: Any) -> list[str] | Matches:
    """Return names that match a pattern of fsspec; of the files, only the headers of matching names are read.

    Parameters
    ----------
    maxdepth
        Maximum levels of folders for ``**``.

    Other Parameters
    ----------------
    detail : bool
        Return infos by name rather than names.
    withdirs, on_error
        The same as in `find`; by default, folders come too.
    """
    pattern = stringify_path(path)
    text = core.strip(pattern) + ("/" if pattern.endswith("/") else "")
    wanted = re.compile(glob_translate(text)).match if has_magic(text) else None
    find = partial(queries.find, core, wanted=wanted)
    place = SimpleNamespace(  # what fsspec's `_glob` asks of a filesystem
        _strip_protocol=core.strip, _exists=partial(queries.exists, core), _info=partial(queries.info, core), _find=find
    )
    found: list[str] | Matches = await AsyncFileSystem._glob(place, pattern, maxdepth=maxdepth, **kwargs)
    return found


async def _glob(core: Core, pattern: str, maxdepth: int | None) -> Matches:
    found = await glob(core, pattern, maxdepth, detail=True)
    assert isinstance(found, dict)
    return found


async def _below(core: Core, path: str, maxdepth: int | None, options: dict[str, Any]) -> Matches:
    """Return a path and all that is below it; empty if it does not exist."""
    listed = await queries.find(core, path, maxdepth, withdirs=True, detail=True, **options)
    found: Matches = dict(listed)  # type: ignore[arg-type]  # with `detail`, infos by name
    return found if path in found or not await queries.exists(core, path) else {path: None, **found}
