"""Tiers: other stores for the files of chunks that are seldom read; the core sees a single backend.

A path of a tier begins with its alias (`rollingfs.format.names.in_tier`). The rest of the path is the path of the
parallel file in the hot store; the tier keeps it below its root.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rollingfs.backend.contract import Backend, FileInfo, Listing
from rollingfs.backend.wrapper import BackendWrapper, Verb
from rollingfs.errors import unknown_tier
from rollingfs.format import names
from rollingfs.format.header import Tier
from rollingfs.policy import check_alias
from rollingfs.runtime.bridge import Bridge

T = TypeVar("T")
_DRIVE = re.compile(r"^([A-Za-z]):/")
PLACES_MAX = 64
"""Maximum folders of which a client notes that tiers keep them by another path."""
OF_HEADERS = ("remove_whole", "move_whole")
"""The verbs that take several headers at once; no tier has headers."""


def check_tiers(backend: Backend, paths: Iterable[str]) -> None:
    """Refuse paths of tiers that a backend does not have.

    Raises
    ------
    UnknownTierError
        The message names the first.
    """
    for path in paths:
        if path.startswith(names.TIER_SCHEME):
            alias, rest = names.split_tier(path)
            check_tier(backend, alias, names.parent(rest).removesuffix(names.CHUNKS_SUFFIX))


def check_tier(backend: Backend, alias: str, path: str) -> None:
    """Refuse a tier that a backend does not have, for a segment or folder at `path`.

    Raises
    ------
    UnknownTierError
        The message names it.
    """
    if alias not in backend.tiers:
        raise unknown_tier(alias, path)


def check_aliases(backend: Backend, tiers: Iterable[Tier], path: str) -> None:
    """Refuse the tiers of a header that a backend does not have; otherwise as `check_tier`."""
    for tier in tiers:
        check_tier(backend, tier.alias, path)


def can_copy(backend: Backend, source: str, target: str) -> bool:
    """Return whether the server copies between two paths.

    The tiers of both are on the hot store itself.
    """
    aliases = {names.split_tier(path)[0] for path in (source, target)} - {""}
    return backend.capability.can_copy and all(backend.tiers.get(alias, False) for alias in aliases)


async def list_folder(backend: Backend, folder: str, aliases: Iterable[str]) -> list[FileInfo]:
    """Return the entries of a folder in the hot store ("") and in tiers.

    A missing folder has no entries.
    """
    found: list[FileInfo] = []
    for alias in aliases:
        with contextlib.suppress(FileNotFoundError):
            found += (await backend.list(names.in_tier(alias, folder) if alias else folder)).entries
    return found


class TierStore:
    """A tier: a backend, and the root below which it keeps the parallel tree.

    Parameters
    ----------
    backend
        It may be of another kind than the hot store's, or the hot store's backend itself.
    root
        A path of that backend.

    Raises
    ------
    ValueError
        The root is the top of the store, or no folder of a user.
    """

    def __init__(self, backend: Backend, root: str) -> None:
        self.backend = backend
        self.root = root.rstrip("/")
        if not self.root or names.CHUNKS_SUFFIX in self.root:
            raise ValueError(f"root {root!r} is none for a tier: name a folder, or a bucket and a folder, of its own")
        self._bridge = Bridge(backend)

    def path(self, hot: str) -> str:
        """Return where the tier has the file that is parallel to a path of the hot store.

        The colon of a drive of Windows stays out: no name of a folder may have it.
        """
        parallel = _DRIVE.sub(r"\1/", hot).lstrip("/")
        return f"{self.root}/{parallel}"

    async def run(self, call: Coroutine[Any, Any, T], hot: Backend) -> T:
        """Await a verb of the tier within a verb of the hot store.

        A blocking tier under a hot store that suspends gets a thread. A tier that suspends, under a hot store that does
        not, makes the calling thread wait for the tier's own loop.
        """
        if self.backend is hot or not (self.backend.is_async or hot.is_async):
            return await call
        return await self._bridge.arun(call) if hot.is_async else self._bridge.run(call)

    def after_fork(self) -> None:
        """Drop the parent's connections in a child process."""
        self._bridge.after_fork()


class TieredBackend(BackendWrapper):
    """A hot store with tiers. Paths without an alias go to the hot store unchanged.

    Parameters
    ----------
    hot
        The store of the headers. It has the abilities of this backend.
    stores
        The tiers, by alias.
    """

    def __init__(self, hot: Backend, stores: Mapping[str, TierStore]) -> None:
        super().__init__(hot)
        self._stores = {check_alias(alias): store for alias, store in stores.items()}
        self.tiers = {alias: store.backend is hot for alias, store in self._stores.items()}
        self.tier_roots = {alias: store.root for alias, store in self._stores.items()}
        self._places: dict[str, str] = {}
        """The folders by which tiers keep a tree, by the folders by which this client reaches it."""

    def place(self, path: str, known: str = "") -> str:
        if known and known != path:
            self._learn(path, known)
        if (own := names.chunks_folder(path)) in self._places:
            return names.segment_of_folder(self._places[own])
        mine = max((one for one in self._places if path.startswith(f"{one}/")), key=len, default="")
        return self._places[mine] + path[len(mine) :] if mine else path

    def _learn(self, path: str, known: str) -> None:
        """Note that two paths are the same, by their highest common folders."""
        mine, theirs = names.parent(path), names.parent(known)
        is_one = path.rpartition("/")[2] == known.rpartition("/")[2] and self._is_one(mine, theirs)
        while is_one and _name(mine) == _name(theirs) and self._is_one(names.parent(mine), names.parent(theirs)):
            mine, theirs = names.parent(mine), names.parent(theirs)
        is_alike = not is_one and names.folded(_name(path)) == names.folded(_name(known))
        if is_alike and self._is_one(names.header_path(path), names.header_path(known)):  # on a disk that ignores case
            is_one, mine, theirs = True, names.chunks_folder(path), names.chunks_folder(known)
        for other in [one for one in self._places if path.startswith(f"{one}/")]:
            del self._places[other]
        if is_one and mine != theirs and len(self._places) < PLACES_MAX:
            self._places[mine] = theirs

    def _is_one(self, folder: str, other: str) -> bool:
        return folder != other and self.inner.place(folder, other) == other

    def _store(self, alias: str, path: str) -> TierStore:
        check_tier(self, alias, path)
        return self._stores[alias]

    def _in_store(self, store: TierStore, hot: str) -> str:
        return store.path(self.place(hot) if self._places else hot)

    async def call(self, verb: str, *args: Any) -> Any:
        first, *rest = args
        if verb in OF_HEADERS:
            return await super().call(verb, *args)
        if verb == "delete":
            return await self._delete(first)
        if verb == "copy":
            return await super().call(verb, *map(self._on_hot, args[:2]), *args[2:])  # by `can_copy`
        if verb == "upload.copy":
            upload, part = rest
            rest = [upload, replace(part, path=self._on_hot(part.path))]
        alias, path = names.split_tier(first.path if verb == "abort_upload" else first)
        if not alias:
            return await super().call(verb, first, *rest)
        store = self._store(alias, path)
        if verb == "abort_upload":
            first = replace(first, path=self._in_store(store, path))
        elif verb.startswith("upload."):
            upload, *rest = rest
            return await store.run(getattr(upload, verb.removeprefix("upload."))(*rest), self.inner)
        else:
            first = self._in_store(store, path)
        found = await store.run(getattr(store.backend, verb)(first, *rest), self.inner)
        return _shown(found, self._in_store(store, path), args[0])

    async def store_name(self, path: str) -> str | None:
        return await self.inner.store_name(path)

    def may_tear(self, path: str) -> bool:
        alias, hot = names.split_tier(path)
        if not alias:
            return self.inner.may_tear(path)
        store = self._store(alias, hot)
        return store.backend.may_tear(self._in_store(store, hot))

    # -- verbs over several paths --------------------------------------------------------------------------

    async def _delete(self, paths: Sequence[str]) -> None:
        groups: dict[str, list[str]] = {}
        for path in paths:
            alias, hot = names.split_tier(path)
            groups.setdefault(alias, []).append(self._in_store(self._store(alias, hot), hot) if alias else path)
        for alias, group in groups.items():
            if alias:
                store = self._stores[alias]
                await store.run(store.backend.delete(group), self.inner)
            else:
                await self.inner.delete(group)

    def _on_hot(self, path: str) -> str:
        """Return the path on the hot store's server of a file there, perhaps of a tier that is on it."""
        alias, hot = names.split_tier(path)
        if not alias:
            return path
        store = self._store(alias, hot)
        if store.backend is not self.inner:
            raise NotImplementedError(f"the tier {alias!r} lies on another store, so the server cannot copy {hot}")
        return self._in_store(store, hot)

    async def close(self) -> None:
        await self.inner.close()
        for store in self._stores.values():
            if store.backend is not self.inner:
                await store.run(store.backend.close(), self.inner)

    def after_fork(self) -> None:
        super().after_fork()
        for store in self._stores.values():
            if store.backend is not self.inner:
                store.after_fork()


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _straight(verb: str) -> Verb:
    """Return a verb on the way of an append or a read: on the hot store without a detour."""

    async def forward(self: TieredBackend, path: str, *args: Any) -> Any:
        if path.startswith(names.TIER_SCHEME):
            return await self.call(verb, path, *args)
        return await getattr(self.inner, verb)(path, *args)

    return forward


for _verb in ("read", "read_range", "read_into", "replace"):
    setattr(TieredBackend, _verb, _straight(_verb))
del _verb


def _shown(found: Any, root: str, asked: str) -> Any:
    """Return an answer of a tier's store, with the paths by which the core knows its files."""

    def renamed(entry: Any) -> Any:
        return replace(entry, path=asked + entry.path[len(root) :])

    if isinstance(found, FileInfo):
        return renamed(found)
    if isinstance(found, Listing):
        return replace(found, entries=tuple(map(renamed, found.entries)))
    if isinstance(found, tuple | list):
        return [renamed(entry) for entry in found]
    return found
