"""What lies in folders: segments, plain files and folders, as of the call.

A listing shows headers with their tokens, so that those seen before are not read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rollingfs import names
from rollingfs.backend.contract import FileInfo, Listing
from rollingfs.client import Client
from rollingfs.headers import Loaded
from rollingfs.lookup import View, is_shadowed
from rollingfs.transitions import missing

T = TypeVar("T")

Info = dict[str, Any]
"""What fsspec calls a file's or folder's info."""


def info_of(view: View) -> Info:
    """The info of a segment or plain file; sizes in bytes, dates in seconds since 1970."""
    header = view.header
    if header is None:
        assert view.plain is not None
        dates = {"created": view.plain.modified, "mtime": view.plain.modified}
        details = {"sealed": False, "chunks": int(view.size > 0), "version": 0}
    else:
        dates = {"created": header.created_ms / 1000, "mtime": header.modified_ms / 1000}
        details = {"sealed": header.sealed, "chunks": header.chunk_count, "version": header.version}
    return {
        "name": view.path,
        "size": view.size,
        "type": "file",
        "start_offset": view.start,
        "length": view.length,
        **details,
        **dates,
    }


def info_of_folder(path: str) -> Info:
    """The info of a folder."""
    return {"name": path, "size": 0, "type": "directory"}


@dataclass(frozen=True, slots=True)
class Scan:
    """A folder as it was listed."""

    path: str
    views: dict[str, View]
    """Segments and plain files, by path."""
    folders: tuple[str, ...]
    """Folders in it; whether they exist is another question, for they may hold nothing but tombstones."""
    stays: bool
    """Whether it exists though nothing may be in it."""

    @property
    def listed(self) -> dict[str, View]:
        """The segments and plain files that listings show."""
        return {path: view for path, view in self.views.items() if not names.is_ledger(path)}

    @property
    def shown(self) -> list[str]:
        """The folders that no segment of the same name hides."""
        return [folder for folder in self.folders if folder not in self.views]


class Listings:
    """Reads folders, and says what a path is.

    On a store without folders one exists as long as something is in it. On a disk one exists until it is removed;
    where tombstones have to stay in it, a hidden file says that it was.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.backend = client.backend

    async def gather(self, calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        """Call several at a time, as many as the store likes."""
        return await self.client.runtime.gather(calls, self.backend.requests_max)

    # -- one path ------------------------------------------------------------------------------------------

    async def info(self, path: str, *, fresh: bool = False) -> Info:
        """What is at a path: a segment, else a plain file, else a folder.

        Raises
        ------
        FileNotFoundError
            None of them.
        """
        if names.is_reserved(path):
            raise missing(path)
        try:
            return info_of(await self.client.lookup.view(path, fresh=fresh))
        except FileNotFoundError:
            if await self.is_folder(path):
                return info_of_folder(path)
            raise

    async def is_there(self, path: str) -> bool:
        """Whether there is a segment, a plain file or a folder of this name now."""
        try:
            await self.info(path, fresh=True)
        except FileNotFoundError:
            return False
        return True

    # -- one folder ----------------------------------------------------------------------------------------

    async def scan(self, folder: str) -> Scan:
        """List a folder.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            The backend has no such folder.
        """
        listing = await self.backend.list(folder)
        return await self._complete(folder, listing, _Sorted.of(listing.entries))

    async def _complete(self, folder: str, listing: Listing, found: _Sorted) -> Scan:
        headers = await self.gather([partial(self._loaded, path, token) for path, token in found.headers.items()])
        loaded = dict(zip(found.headers, headers, strict=True))
        views = {path: View(path, seen.header, seen.token) for path, seen in loaded.items() if seen.live}
        for file in found.files:
            if file.path not in views and await self._is_visible(file, loaded.get(file.path)):
                views[file.path] = View(file.path, None, file.token, file)
        stays = not found.is_removed if self.backend.has_folders else not listing.entries
        return Scan(folder, views, found.folders, stays or self.is_top(folder))

    async def _loaded(self, path: str, token: str | None) -> Loaded:
        return self.client.headers.by_token(path, token) or await self.client.headers.load(path)

    async def _is_visible(self, file: FileInfo, loaded: Loaded | None) -> bool:
        """Whether a plain file is there for users: not one that a tombstone says is dead."""
        if loaded is None or loaded.header is None or loaded.header.adopted is None:
            return True
        if is_shadowed(loaded.header, file):
            return False
        # a listing may know no token, or another than `stat` does
        return await self.client.lookup.plain(file.path, loaded) is not None

    async def ls(self, path: str) -> list[Info]:
        """The infos of what lies in a folder, sorted by name; of a file, its own.

        Raises
        ------
        FileNotFoundError
            There is nothing of this name.
        """
        view = await self._file_first(path)
        if view is not None:
            return [info_of(view)]
        try:
            scan = await self.scan(path)
        except (FileNotFoundError, NotADirectoryError):
            return [info_of(await self.client.lookup.view(path, fresh=True))]
        found = {view.path: info_of(view) for view in scan.listed.values()}
        for folder, is_alive in zip(scan.shown, await self._alive(scan.shown), strict=True):
            if is_alive:
                found[folder] = info_of_folder(folder)
        if not found and not scan.stays:
            return [info_of(await self.client.lookup.view(path, fresh=True))]
        return [found[name] for name in sorted(found)]

    async def _alive(self, folders: Iterable[str]) -> list[bool]:
        return await self.gather([partial(self._is_alive, folder) for folder in folders])

    async def _file_first(self, path: str) -> View | None:
        """The segment or plain file of a path that may be a folder as well: it wins.

        Where a folder is but a prefix, and no segment is known there, asking would double the cost of a listing.
        """
        if names.is_reserved(path):
            raise missing(path)
        seen = self.client.headers.seen(path)
        if not self.backend.has_folders and (seen is None or not seen.live):
            return None
        try:
            return await self.client.lookup.view(path, fresh=True)
        except FileNotFoundError:
            return None

    # -- trees ---------------------------------------------------------------------------------------------

    async def tree(self, folder: str, depth_max: int | None = None, *, hidden: bool = False) -> dict[str, Scan]:
        """List a folder and those below it, the upper ones first.

        Parameters
        ----------
        depth_max
            How many levels of folders to list; None for all.
        hidden
            Also those that have the name of a segment.
        """
        scans: dict[str, Scan] = {}
        level = [folder]
        while level and (depth_max is None or depth_max > 0):
            found = [scan for scan in await self.gather([partial(self._scan, path) for path in level]) if scan]
            scans.update({scan.path: scan for scan in found})
            level = [inner for scan in found for inner in (scan.folders if hidden else scan.shown)]
            depth_max = None if depth_max is None else depth_max - 1
        return scans

    async def _scan(self, folder: str) -> Scan | None:
        try:
            return await self.scan(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None  # it went meanwhile

    async def find(self, path: str, depth_max: int | None = None, *, with_folders: bool = False) -> dict[str, Info]:
        """The infos of everything below a path, by name; of a file, its own; of nothing, none."""
        view = await self._file_first(path)
        if view is not None:
            return {path: info_of(view)}
        scans = await self.tree(path, depth_max)
        found = {view.path: info_of(view) for scan in scans.values() for view in scan.listed.values()}
        if with_folders:
            found |= {folder: info_of_folder(folder) for folder in await self._alive_in(scans) if folder != ""}
        if not found:
            try:
                return {path: info_of(await self.client.lookup.view(path, fresh=True))}
            except FileNotFoundError:
                return {}
        return dict(sorted(found.items()))

    async def _alive_in(self, scans: dict[str, Scan]) -> set[str]:
        """The folders of a tree that exist: from the lowest to the upper ones."""
        edge = [folder for scan in scans.values() for folder in scan.shown if folder not in scans]
        alive = {folder for folder, is_alive in zip(edge, await self._alive(edge), strict=True) if is_alive}
        for path, scan in reversed(scans.items()):
            if scan.stays or scan.listed or any(folder in alive for folder in scan.folders):
                alive.add(path)
        return alive


def removed_path(folder: str) -> str:
    """The file that says that a folder was removed."""
    return f"{folder.rstrip('/')}/{names.REMOVED_NAME}"
