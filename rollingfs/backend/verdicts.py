"""The verdicts of the probe: kept for the process, and in files for other processes of the same user.

"Unsafe" beats "safe": a store on which a probe or a commit has found two winners is refused by the whole process, and
by others that read the file, for as long as a verdict is believed. It has a file of its own, so that no process that
writes "safe" at the same time takes it away.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from rollingfs.backend.contract import Backend
from rollingfs.backend.probe import PROBE_VERSION, Abilities, probe_patiently
from rollingfs.backend.race import BrokenPromise
from rollingfs.backend.shared_errors import not_atomic, with_product
from rollingfs.errors import UnsafeBackendError
from rollingfs.format import names
from rollingfs.runtime.concurrency import Lock, Runtime
from rollingfs.runtime.system import user

CACHE_NAME = "rollingfs-probe.json"
"""The file in a folder that a user names."""
CACHE_S_MAX = 30 * 24 * 3600
"""After this time a verdict of a file is not believed: servers are replaced by other releases."""
LOOK_S = 30.0
"""A client that commits looks after this time for refusals of other processes."""
_VERSION = "rollingfs_probe"
_UNSAFE = ".unsafe"
"""End of the name of a file of refusals."""
_USER_FOLDER = "rollingfs"
"""The folder in the user's cache folder."""

logger = logging.getLogger("rollingfs")
T = TypeVar("T")

_of_process: dict[str, Abilities] = {}
"""By class of the backend and name of the store."""
_unsafe: dict[str, str] = {}
"""Why stores are refused, by the same."""
_told: set[tuple[str, str]] = set()
"""Ignored cache files and folders that a warning has named already."""


class Verdicts:
    """Abilities of a backend's stores, each probed once.

    Parameters
    ----------
    cache : str or bool, optional
        The file, or the folder of the file, that keeps verdicts for other processes; True for the file in the user's
        cache folder.
    kind : str
        The class of the backend, by which a verdict is kept; a wrapper gives the inner class.
    """

    def __init__(self, backend: Backend, runtime: Runtime, cache: str | bool = False, kind: str = "") -> None:
        self._backend = backend
        self._runtime = runtime
        self._cache = cache
        self._kind = kind or type(backend).__name__
        self._of_root: dict[str, Abilities | str] = {}
        """Abilities of the stores, or the reasons against them."""
        self._keys: dict[str, str] = {}
        """By which the process knows the stores that have a name."""
        self._next_look_s = 0.0
        """When the refusals of other processes are looked at again, by the monotonic clock."""
        self._locks: dict[str, Lock] = {}

    async def abilities(self, path: str) -> Abilities:
        """Return what the store of `path` can do; it is probed unless the verdict is known.

        Raises
        ------
        UnsafeBackendError, OSError
            As `rollingfs.backend.probe.probe`; a refusal holds for the life of this client.
        """
        root = self._backend.root(path)
        if self._keys and (key := self._keys.get(root)) is not None:
            self._look_again(root, key)
        if root not in self._of_root:
            # many segments may begin at once: the first probes, the others wait for its verdict
            lock = self._locks.setdefault(root, self._runtime.lock(path))
            await lock.run(partial(self._find, root, path))
        found = self._of_root[root]
        if isinstance(found, str):
            raise UnsafeBackendError(f"{names.shown(path)}: {found}")
        return found

    def _look_again(self, root: str, key: str) -> None:
        """Refuse a store that was safe once somebody has found that it is not: at once in this process, others soon."""
        why, now_s = _unsafe.get(key), time.monotonic()
        if why is None and self._cache and now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_S
            file = _file_of(self._cache)
            why = _unsafe_by(file, key) if file is not None and os.path.exists(f"{file}{_UNSAFE}") else None
        if why is not None:
            self._of_root[root] = why

    async def _find(self, root: str, path: str) -> None:
        if root in self._of_root:
            return
        if not self._backend.capability.can_write:
            raise not_atomic(path)
        store = await self._backend.store_name(path)
        key = "" if store is None else f"{self._kind} {store}"
        file = _file_of(self._cache) if key else None
        if key:
            self._keys[root] = key
        if why := _unsafe.get(key) or (_unsafe_by(file, key) if file else None):
            self._of_root[root] = why
            return
        known = _of_process.get(key) or (_kept(file, key) if file else None)
        try:
            found = known or await probe_patiently(self._backend, names.chunks_folder(path), self._runtime)
        except UnsafeBackendError as error:
            self._of_root[root] = why = error.why or str(error)
            if isinstance(error.__cause__, BrokenPromise) and file:
                _save_unsafe(file, key, why)
            raise
        if key:
            _of_process[key] = found
        if file and known is None:
            _save(file, key, {"delete_if": found.delete_if, "at": int(time.time())})
        self._of_root[root] = found

    def store_shown(self, path: str) -> str:
        """Return the store of `path` as errors name it, without a request."""
        root = self._backend.root(path)
        name = self._keys.get(root, "").partition(" ")[2] or self._backend.unstrip(root)
        return with_product(name, self._backend.product(path))

    def condemn(self, path: str, why: str) -> None:
        """Let no further commit to the store of `path` begin: in this process, and in processes that read the file."""
        root = self._backend.root(path)
        self._of_root[root] = why
        key = self._keys.get(root)
        if key is None:
            return
        _unsafe[key] = why
        _of_process.pop(key, None)
        if (file := _file_of(self._cache)) is not None:
            _save_unsafe(file, key, why)

    def after_fork(self) -> None:
        """Drop, in a child process, the locks that a thread of the parent holds."""
        self._locks = {}


# -- the file ------------------------------------------------------------------------------------------------


def _file_of(cache: str | bool) -> str | None:
    if isinstance(cache, bool):
        return _file_of_user() if cache else None
    is_folder = cache.endswith(("/", os.sep)) or os.path.isdir(cache)
    return os.path.join(cache, CACHE_NAME) if is_folder else cache


def _file_of_user() -> str | None:
    """Return the file in the user's cache folder; None without a private folder."""
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    if not os.path.isabs(cache) or (home not in ("", "/") and cache.startswith(home) and not os.path.isdir(home)):
        return None  # there is no HOME
    folder = os.path.join(cache, _USER_FOLDER)
    try:
        if user() == 0 and os.stat(_existing(cache)).st_uid:
            return None  # root makes no files in the home of another user
        os.makedirs(folder, mode=0o700, exist_ok=True)
        why = _why_not(os.stat(folder))
    except OSError as error:
        logger.info("%s: the verdict of the probe is not kept for other processes: %s", folder, error)
        return None
    if why:
        _warn(folder, why)
        return None
    return os.path.join(folder, CACHE_NAME)


def _existing(path: str) -> str:
    """Return the path, or the folder above it that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _warn(path: str, why: str) -> None:
    if (path, why) not in _told:
        _told.add((path, why))
        logger.warning("%s: the cache of probes is ignored: %s", path, why)


def _load(file: str) -> dict[str, Any] | None:
    """Return the stores of a cache file; None if it is not trusted.

    A file that cannot be read has no stores.
    """
    try:
        with open(file, encoding="utf-8") as opened:
            why = _why_not(os.fstat(opened.fileno()))
            content = {} if why else json.load(opened)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        _warn(file, f"it cannot be read: {error}")
        return {}
    if why:
        _warn(file, why)
        return None
    version = content.get(_VERSION) if isinstance(content, dict) else None
    if version != PROBE_VERSION or not isinstance(content.get("stores"), dict):
        _warn(file, f"it is of version {version!r}, and {PROBE_VERSION} is needed")
        return {}
    return dict(content["stores"])


def _why_not(info: os.stat_result) -> str:
    """Return why a file cannot be believed: another user than root could have written that an unsafe store is safe."""
    if (mine := user()) is None:
        return ""
    if info.st_uid not in (mine, 0):
        return f"another user (uid {info.st_uid}) owns it: name a file of your own"
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users may write it (mode {stat.S_IMODE(info.st_mode):o}): take that right away with chmod go-w"
    return ""


def _kept(file: str, key: str) -> Abilities | None:
    """Return the verdict on a store, if a file has a recent verdict."""
    found = _recent(file, key, "delete_if", bool)
    return None if found is None else Abilities(found[0])


def _unsafe_by(file: str, key: str) -> str | None:
    """Return why a store is unsafe, if any process has found that in the last 30 days."""
    found = _recent(f"{file}{_UNSAFE}", key, "why", str)
    if found is None:
        return None
    day = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(found[1]))
    return f"{found[0]} (found at {day}; if the store was mended since, delete {file}{_UNSAFE})"


def _recent(file: str, key: str, field: str, kind: type[T]) -> tuple[T, float] | None:
    """Return a field of the row of a store, and its time in seconds since 1970, if both are believed."""
    row, now = (_load(file) or {}).get(key), time.time()
    value, at = (row.get(field), row.get("at")) if isinstance(row, dict) else (None, None)
    if isinstance(value, kind) and isinstance(at, int | float) and now - CACHE_S_MAX < at <= now:
        return value, at
    return None


def _save_unsafe(file: str, key: str, why: str) -> None:
    _save(f"{file}{_UNSAFE}", key, {"why": why, "at": int(time.time())})


def _save(file: str, key: str, row: Mapping[str, object]) -> None:
    """Add a verdict to the file, in a single step.

    A verdict that another process adds at the same time may be lost.
    """
    known = _load(file)
    if known is None:
        return  # it may be another user's: leave it alone
    stores = {**known, key: dict(row)}
    folder = os.path.dirname(os.path.abspath(file))
    temporary = None
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(file)}-", dir=folder)
        with open(descriptor, "w", encoding="utf-8") as opened:
            json.dump({_VERSION: PROBE_VERSION, "stores": stores}, opened, indent=1)
        os.replace(temporary, file)
    except OSError as error:
        logger.warning("%s: the verdict of the probe is not kept for other processes: %s", file, error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
