"""Names that look like patterns: what is there under such a name is meant; only without it, the pattern is."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from glob import has_magic
from typing import TypeGuard

from fsspec.implementations.local import LocalFileSystem, make_path_posix, trailing_sep
from fsspec.utils import other_paths, stringify_path

Path = str | os.PathLike[str]


def is_one(paths: Path | Sequence[Path]) -> TypeGuard[Path]:
    """Whether this is one path, not several."""
    return isinstance(paths, str | os.PathLike)


def as_list(paths: Path | Sequence[Path]) -> list[str]:
    """One path or several, as a list."""
    if isinstance(paths, str | os.PathLike):
        return [stringify_path(paths)]
    return [stringify_path(path) for path in paths]


def is_pattern(paths: Path | Sequence[Path]) -> bool:
    """Whether one of the paths looks like a pattern."""
    return any(has_magic(path) for path in as_list(paths))


def unmatched(paths: Sequence[str]) -> FileNotFoundError:
    """The error for patterns that match nothing."""
    return FileNotFoundError(errno.ENOENT, "Nothing has this name or matches it as a pattern", ", ".join(paths))


def targets(
    sources: list[str], named: Path | Sequence[Path], target: Path, *, is_folder: bool, is_literal: bool
) -> list[str]:
    """Where each file that was found goes, by the rules of fsspec.

    Parameters
    ----------
    sources
        What was found.
    named, target
        What the caller said.
    is_folder
        Whether the target is a folder that is there.
    is_literal
        Whether `named` is the name of something; fsspec takes what has a name like a pattern for one.
    """
    if not sources:
        return []
    if is_literal:
        into = (is_folder or trailing_sep(target)) and not trailing_sep(as_list(named)[0])
    else:
        into = len(sources) == 1
    one = is_one(named)
    found: list[str] = other_paths(sources, stringify_path(target), exists=one and into, flatten=not one)
    return found


def local_sources(paths: Path | Sequence[Path], *, recursive: bool, maxdepth: int | None) -> list[str]:
    """The local files and folders of these names and patterns, in a form that `targets` takes.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    named = [make_path_posix(path) for path in as_list(paths)]
    local = LocalFileSystem()
    found: set[str] = set()
    for path in named:
        is_literal = not has_magic(path) or os.path.lexists(path)
        with contextlib.suppress(FileNotFoundError):  # it matches nothing; perhaps another does
            found.update(local.expand_path([path], recursive, maxdepth, assume_literal=is_literal))
    if not found:
        raise unmatched(named)
    if is_one(paths) and (not recursive or maxdepth is not None):
        return sorted(path for path in found if not os.path.isdir(path))
    return sorted(found)


def groups(listed: Sequence[str], literal: Sequence[str]) -> list[tuple[list[str], bool]]:
    """The names and the patterns among some paths, as far as there are any, and whether they are names."""
    others = [path for path in listed if path not in literal]
    return [(list(paths), is_literal) for paths, is_literal in ((literal, True), (others, False)) if paths]


def check_empty(error: FileNotFoundError) -> None:
    """Pass over fsspec's own error, which says only that nothing was found."""
    if error.errno is not None:
        raise error
