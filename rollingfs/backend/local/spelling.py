"""The names that a disk has for paths, where it takes ``Log`` and ``log``, or two Unicode forms, for the same name.

So a segment has a single path, however callers write it: a single cached header, lock and place in a tier. A folder
where names differ by case costs a look in the life of a process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager

from rollingfs.backend.local import system
from rollingfs.format import names

NAMES_MAX = 1 << 16
LOOKS_MAX = 64
"""A folder's kind is found by the first of this many names that has a letter."""
_REFUSED = (OSError, ValueError)
_FILES = (names.HEADER_SUFFIX, "")


class Spellings:
    """The disk's names of the paths that this process has used."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._folders: dict[str, bool] = {}
        """Whether a folder ignores case."""
        self._known: dict[tuple[str, str], str] = {}
        self._listed: tuple[str, int, dict[str, list[str]]] = ("", -1, {})

    def settle(self, path: str, *, fresh: bool = False) -> str:
        """Return a path as the disk writes what is there; else as it is given.

        Parameters
        ----------
        fresh
            Ask a disk that ignores case for the last name: another client may have changed it.
        """
        folder, slash, name = path.rpartition("/")
        if (self._folders.get(folder) is False and name.isascii()) or not name:
            return path
        if folds := self._folds(folder):
            folder = self.settle(folder)
        if not folds and (name.isascii() or not _has_forms(name)):
            return path
        key = folder, names.folded(name)
        known = None if fresh and folds else self._known.get(key)
        if known is None or (known != name and not _is_one(f"{folder}/{known}", f"{folder}/{name}")):
            if len(self._known) >= NAMES_MAX:
                self.forget()
            known = self._known[key] = self._true_name(folder, name)
        return f"{folder}{slash}{known}"

    def _folds(self, folder: str) -> bool:
        """Return whether a folder ignores case; a new folder does as the folder above."""
        known = self._folders.get(folder)
        if known is not None:
            return known
        found, is_empty = None, True
        try:
            with os.scandir(f"{folder}/") as entries:
                for entry, _ in zip(entries, range(LOOKS_MAX), strict=False):
                    is_empty = False
                    if (other := entry.name.swapcase()) != entry.name:
                        found = _is_one(entry.path, f"{folder}/{other}", ("",))
                        break
        except FileNotFoundError:
            pass  # it will do as the folder above
        except _REFUSED:
            found = False
        if found is None:
            found = bool(folder) and self._folds(folder.rpartition("/")[0])
        if not is_empty:
            if len(self._folders) >= NAMES_MAX:
                self.forget()
            self._folders[folder] = found
        return found

    def _true_name(self, folder: str, name: str) -> str:
        """Return the disk's name of a segment, file or folder; of nothing, the given name."""
        for suffix in _FILES:
            with contextlib.suppress(*_REFUSED):
                status = os.lstat(f"{folder}/{name}{suffix}")
                one = system.true_name(f"{folder}/{name}{suffix}")
                if names.folded(one) == names.folded(name + suffix):
                    return one[: len(one) - len(suffix)]
                found = self._names_in(folder).get(names.folded(name + suffix), [])
                if name + suffix not in found:
                    same = (one for one in found if os.path.samestat(os.lstat(f"{folder}/{one}"), status))
                    return next((one[: len(one) - len(suffix)] for one in same), name)
                return name
        return name

    def _names_in(self, folder: str) -> dict[str, list[str]]:
        """Return the names in a folder by their folded forms; they are listed again once the folder has changed."""
        date_ns = os.stat(f"{folder}/").st_mtime_ns
        if self._listed[:2] != (folder, date_ns):
            found: dict[str, list[str]] = {}
            for name in os.listdir(f"{folder}/"):
                found.setdefault(names.folded(name), []).append(name)
            self._listed = folder, date_ns, found
        return self._listed[2]


def respell(path: str, name: str, locked: Callable[[str], AbstractContextManager[object]]) -> None:
    """Let the disk write the last part of a path, which is a segment, file or folder, as `name`.

    Both names lead to the same file all the time, so that each moment between the renames is right. The header's lock
    keeps a writer from giving the header its old name before the disk was asked.

    Parameters
    ----------
    locked
        Holds the lock of a header.

    Raises
    ------
    OSError
        The disk keeps the old name.
    """
    other = f"{path.rpartition('/')[0]}/{name}"
    header, chunks = names.header_path(path), names.chunks_folder(path)
    with locked(header) if os.path.lexists(header) else contextlib.nullcontext():
        for suffix in _FILES:
            if os.path.lexists(path + suffix):
                system.rename(path + suffix, other + suffix)
        spellings.forget()
        if spellings.settle(other) != other:
            text = f"this disk did not change the name to {name!r}, which stays as it was: move it to a third first"
            raise OSError(errno.ENOTSUP, text, path)
    with contextlib.suppress(OSError):  # missing; or a file in it is open, so that Windows leaves the name, as we can
        system.rename(chunks, names.chunks_folder(other))


def _has_forms(name: str) -> bool:
    return not (unicodedata.is_normalized("NFC", name) and unicodedata.is_normalized("NFD", name))


def _is_one(path: str, other: str, suffixes: tuple[str, ...] = _FILES) -> bool:
    """Return whether both paths are there, and lead to the same segment, file or folder."""
    for suffix in suffixes:
        with contextlib.suppress(*_REFUSED):
            return os.path.samestat(os.lstat(path + suffix), os.lstat(other + suffix))
    return False


spellings = Spellings()
