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


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The entries of a listing by what they are."""

    headers: dict[str, str | None]
    """The tokens of header files, by segment."""
    files: tuple[FileInfo, ...]
    folders: tuple[str, ...]
    is_removed: bool

    @staticmethod
    def of(entries: Iterable[FileInfo]) -> _Sorted:
        headers: dict[str, str | None] = {}
        files, folders, is_removed = [], [], False
        for entry in entries:
            name = entry.path.rpartition("/")[2]
            if entry.is_folder:
                folders += [] if names.CHUNKS_SUFFIX in name else [entry.path]
            elif name.endswith(names.HEADER_SUFFIX) and name != names.HEADER_SUFFIX:
                headers[names.segment_of_header(entry.path)] = entry.token
            elif name == names.REMOVED_NAME:
                is_removed = True
            elif not names.is_hidden(name):
                files.append(entry)
        return _Sorted(headers, tuple(files), tuple(folders), is_removed)

    def undecided(self, last: str) -> tuple[FileInfo, ...]:
        """The files whose header, which may be a tombstone of theirs, would come after the `last` path of a page."""
        return tuple(
            file for file in self.files if file.path not in self.headers and names.header_path(file.path) > last
        )


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

    async def is_folder(self, path: str) -> bool:
        """Whether there is such a folder (a segment may have the same name)."""
        if names.is_reserved(path):
            return False
        if (self.backend.has_folders or self.is_top(path)) and not await self.backend.is_folder(path):
            return False
        return await self._is_alive(path)

    async def _is_alive(self, folder: str) -> bool:
        """Whether a folder exists for users; where the backend has folders, one that it shows."""
        if self.is_top(folder):
            return True
        if self.backend.has_folders and not await self.is_removed(folder):
            return True
        try:
            return await self._has_content(folder)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def is_top(self, folder: str) -> bool:
        """Whether a folder is there without being made: the root, a bucket."""
        return folder in ("", "/") or (not self.backend.has_folders and "/" not in folder)

    async def is_removed(self, folder: str) -> bool:
        """Whether a folder is marked as removed."""
        try:
            await self.backend.stat(removed_path(folder))
        except FileNotFoundError:
            return False
        return True

    async def _has_content(self, folder: str) -> bool:
        """Whether anything lives in a folder; looks at no more pages and headers than it takes to find one alive."""
        place, is_bare = None, True
        undecided: Sequence[FileInfo] = ()
        while True:
            page = await self.backend.list_page(folder, place)
            place, is_bare = page.next_place, is_bare and not page.entries
            found = _Sorted.of((*undecided, *page.entries))
            undecided = found.undecided(page.entries[-1].path if page.entries else "") if place is not None else ()
            if await self._is_any_alive(found, undecided):
                return True
            if place is None:
                # without entries it is there by itself, or by its marker, or the backend does not tell
                return is_bare and await self.backend.is_folder(folder)

    async def _is_any_alive(self, found: _Sorted, undecided: Sequence[FileInfo]) -> bool:
        """Whether anything lives among the entries of a page."""
        if any(file.path not in found.headers and file not in undecided for file in found.files):
            return True
        if await self._is_any_live(found.headers):
            return True
        for file in found.files:  # some lie beside a tombstone
            if file.path in found.headers and not names.is_ledger(file.path):
                loaded = await self._loaded(file.path, found.headers[file.path])
                if loaded.live or await self._is_visible(file, loaded):
                    return True
        for folder in found.folders:
            if await self._is_alive(folder):
                return True
        return False

    async def _is_any_live(self, headers: Mapping[str, str | None]) -> bool:
        """Whether one of these segments, given with its token, exists; ledgers do not count."""
        unknown = []
        for path, token in headers.items():
            if names.is_ledger(path):
                continue
            loaded = self.client.headers.by_token(path, token)
            if loaded is None:
                unknown.append(path)
            elif loaded.live:
                return True
        count = 1
        while unknown:
            batch, unknown = unknown[:count], unknown[count:]
            if any(loaded.live for loaded in await self.gather([partial(self._loaded, path, None) for path in batch])):
                return True
            count = min(2 * count, self.backend.requests_max)
        return False

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
