"""Live contents of a folder, by as few requests as possible.

On a store without folders a folder exists as long as it is not empty. On a disk it exists until it is removed;
where tombstones have to stay in it, a hidden file marks it as removed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from rollingfs.backend.contract import Backend, FileInfo, Link
from rollingfs.errors import CorruptChunkError, CorruptHeaderError, FolderOccupiedError
from rollingfs.format import names
from rollingfs.runtime.concurrency import Runtime
from rollingfs.runtime.values import value_class
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.segment import Segment, is_shadowed

logger = logging.getLogger("rollingfs")

T = TypeVar("T")

NAMES_SHOWN_MAX = 3
"""Maximum number of names in an error about the content of a folder."""
NAMES_COUNTED_MAX = 16
"""With more names than this, an error has the words "at least"."""
LOOKS_MAX = 16
"""Maximum looks at a folder whose segments others go on deleting."""


def is_of_entry(error: OSError) -> bool:
    """Return whether an error concerns a single file.

    The file is damaged, too new, or this client may not read it.

    Any other error means that the store does not answer; the state of the file is unknown then.
    """
    return isinstance(error, CorruptHeaderError | CorruptChunkError | PermissionError) or error.errno == errno.EINVAL


def removed_path(folder: str) -> str:
    """Return the file that marks a folder as removed."""
    return f"{folder.rstrip('/')}/{names.REMOVED_NAME}"


def kept_path(folder: str) -> str:
    """Return the file that lets a folder be there on a store without folders."""
    return f"{folder}/{names.KEPT_NAME}"


@value_class
class Sorted:
    """The entries of a listing by what they are."""

    headers: dict[str, str | None]
    """The tokens of header files, by segment."""
    files: tuple[FileInfo, ...]
    folders: tuple[str, ...]
    is_removed: bool
    is_kept: bool
    """Whether the folder is there although it may be empty, on a store without folders."""
    read: dict[str, bytes]
    """The content of header files that the listing has read, by segment."""
    links: tuple[str, ...] = ()
    """The symbolic links that recursive verbs do not follow: to folders, broken, or of hidden names."""
    chunked: tuple[str, ...] = ()
    """The segments that have a chunk folder."""

    @staticmethod
    def of(entries: Iterable[FileInfo]) -> Sorted:
        headers: dict[str, str | None] = {}
        read: dict[str, bytes] = {}
        files, folders, links, chunked, is_removed, is_kept = [], [], [], [], False, False
        for entry in entries:
            name = entry.path.rpartition("/")[2]
            if entry.link is not None and (entry.link is not Link.FILE or names.is_hidden(name)):
                links.append(entry.path)
            if entry.link is Link.NOTHING:
                continue
            if entry.is_folder:
                if name.endswith(names.CHUNKS_SUFFIX) and name != names.CHUNKS_SUFFIX:
                    chunked.append(names.segment_of_folder(entry.path))
                elif not names.is_hidden(name):
                    folders.append(entry.path)
            elif name.endswith(names.HEADER_SUFFIX) and name != names.HEADER_SUFFIX:
                segment = names.segment_of_header(entry.path)
                headers[segment] = entry.token
                if entry.data is not None:
                    read[segment] = entry.data
            elif name == names.REMOVED_NAME:
                is_removed = True
            elif name == names.KEPT_NAME:
                is_kept = True
            elif not names.is_hidden(name):
                files.append(entry)
        return Sorted(headers, tuple(files), tuple(folders), is_removed, is_kept, read, tuple(links), tuple(chunked))

    def only(self, wanted: Callable[[str], object]) -> Sorted:
        """Drop the segments and plain files of names that are not wanted; a folder's rows stay."""
        headers = {path: token for path, token in self.headers.items() if names.is_listing(path) or wanted(path)}
        return replace(self, headers=headers, files=tuple(file for file in self.files if wanted(file.path)))

    def undecided(self, last: str) -> tuple[FileInfo, ...]:
        """Return the files whose header (perhaps a tombstone) would come after the `last` path of a page."""
        return tuple(
            file for file in self.files if file.path not in self.headers and names.header_path(file.path) > last
        )


class Contents:
    """Looks into folders.

    A file whose header cannot be read counts as alive, because it may be.
    """

    def __init__(self, backend: Backend, runtime: Runtime, headers: Headers) -> None:
        self.backend = backend
        self.runtime = runtime
        self.headers = headers
        self.refused: set[str] = set()
        """Folders whose rows this client cannot write."""

    async def gather(self, calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        """Call several at once, within the store's limit."""
        return await self.runtime.gather(calls, self.backend.capability.requests_max)

    # -- folders -------------------------------------------------------------------------------------------

    async def is_folder(self, path: str) -> bool:
        """Return whether there is such a folder (a segment may have the same name)."""
        if names.is_reserved(path):
            return False
        if (self.backend.capability.has_folders or self.is_top(path)) and not await self.backend.is_folder(path):
            return False
        # a folder that we may not look into counts only if the store itself shows it
        return await (self.is_alive(path) if self.backend.capability.has_folders else self._is_alive(path))

    async def _is_alive(self, folder: str) -> bool:
        if self.is_top(folder):
            return True
        try:
            if self.backend.capability.has_folders and not await self.is_removed(folder):
                return True
            for _ in range(LOOKS_MAX):
                ended: list[Segment] = []
                found, is_bare, _ = await self._search(folder, partial(self._is_any_alive, ended))
                if found or not ended:  # else another segment may have come before the last of these ended
                    break
            # a folder without entries exists if the backend says so: it was made, or has a marker
            return bool(found) or (is_bare and await self.backend.is_folder(folder))
        except (FileNotFoundError, NotADirectoryError):
            return False

    async def is_alive(self, folder: str) -> bool:
        """Return whether users see this folder of the backend. A folder that cannot be listed counts as seen."""
        try:
            return await self._is_alive(folder)
        except PermissionError as error:
            logger.info(
                "%s: it is not known whether the folder is empty, because it cannot be listed: %s", folder, error
            )
            return True

    def is_top(self, folder: str) -> bool:
        """Return whether a folder is there without being made: the root, a drive, a bucket."""
        return (
            folder in ("", "/") or folder[1:] == ":" or (not self.backend.capability.has_folders and "/" not in folder)
        )

    async def is_removed(self, folder: str) -> bool:
        """Return whether a folder is marked as removed."""
        try:
            await self.backend.stat(removed_path(folder))
        except FileNotFoundError:
            return False
        return True

    async def _search(
        self, folder: str, look: Callable[[Sorted, Sequence[FileInfo]], Awaitable[T]]
    ) -> tuple[T, bool, bool]:
        """Look at the pages of a listing until `look` returns a value.

        Returns
        -------
        tuple
            The result of `look`; whether there were no entries; whether there are more pages.
        """
        place, is_bare = None, True
        undecided: Sequence[FileInfo] = ()
        while True:
            page = await self.backend.list_page(folder, place)
            place, is_bare = page.next_place, is_bare and not page.entries
            found = Sorted.of((*undecided, *page.entries))
            undecided = found.undecided(page.entries[-1].path if page.entries else "") if place is not None else ()
            seen = await look(found, undecided)
            if seen or place is None:
                return seen, is_bare, place is not None

    async def _is_any_alive(self, ended: list[Segment], found: Sorted, undecided: Sequence[FileInfo]) -> bool:
        """Return whether anything lives among the entries of a page; `ended` takes segments deleted since."""
        if found.is_kept or any(file.path not in found.headers and file not in undecided for file in found.files):
            return True
        if await self._is_any_live(found.headers, ended):
            return True
        for file in found.files:  # it may lie beside a tombstone
            if file.path in found.headers and await self._living_path(file.path, found, file):
                return True
        for folder in found.folders:
            if await self.is_alive(folder):
                return True
        return False

    async def _is_any_live(self, headers: Mapping[str, str | None], ended: list[Segment]) -> bool:
        """Return whether any of these segments, with tokens, exists; hidden segments do not count."""
        unknown = []
        for path, token in headers.items():
            if names.is_hidden_segment(path):
                continue
            loaded = self.headers.by_token(path, token)
            if loaded is None:
                unknown.append(path)
            elif loaded.live:
                return True
        count = 1
        while unknown:
            batch, unknown = unknown[:count], unknown[count:]
            found = await self.gather([partial(self.loaded_or_error, path, None) for path in batch])
            gone = [loaded for loaded in found if not (isinstance(loaded, OSError) or loaded.live)]
            if len(gone) < len(found):
                return True
            ended += [one for one in gone if one.token != (headers[one.path] or one.token)]
            count = min(2 * count, self.backend.capability.requests_max)
        return False

    # -- files and folders in the way ----------------------------------------------------------------------

    async def room(self, path: str, loaded: Segment) -> FileInfo | None:
        """Return the plain file at the name of a new segment, or None.

        If there is no plain file, no folder may have the name. Over an async backend both are looked for at once.

        Parameters
        ----------
        loaded
            The answer for the segment's header; no segment is there.

        Raises
        ------
        FolderOccupiedError
            The same as in `check_no_folder`.
        """
        if not self.runtime.is_async:
            plain = await self.headers.plain(loaded)
            refusal = None if plain is not None else await self._refusal(path)
        else:
            calls: list[Callable[[], Awaitable[FileInfo | FolderOccupiedError | None]]] = [
                partial(self.headers.plain, loaded),
                partial(self._refusal, path),
            ]
            found = await self.gather(calls)
            plain, refusal = cast("tuple[FileInfo | None, FolderOccupiedError | None]", tuple(found))
        if plain is None and refusal is not None:
            raise refusal
        return plain

    async def check_no_folder(self, path: str) -> None:
        """Refuse to make a segment that would hide a folder's content.

        This takes a listing of a few keys. It does not see a file that comes into the folder at the same moment, and
        it is blind where this client may not list.

        Raises
        ------
        FolderOccupiedError
            Something lives in the folder; no byte was written.
        """
        refusal = await self._refusal(path)
        if refusal is not None:
            raise refusal

    async def _refusal(self, path: str) -> FolderOccupiedError | None:
        if names.is_hidden_segment(path):
            return None
        try:
            living, _, is_more = await self._search(path, self._living)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            logger.info(
                "%s: it is not known whether a folder has this name, because it cannot be listed: %s", path, error
            )
            return None
        return FolderOccupiedError(errno.EISDIR, _in_the_way(path, living, is_more), path) if living else None

    async def _living(self, found: Sorted, undecided: Sequence[FileInfo]) -> list[str]:
        """Return the paths of live entries of a page, or enough for an error."""
        files = {file.path: file for file in found.files if file not in undecided}
        candidates = sorted({*found.headers, *files, *found.folders})
        living: list[str] = []
        while candidates and len(living) <= NAMES_COUNTED_MAX:
            batch, candidates = candidates[:NAMES_COUNTED_MAX], candidates[NAMES_COUNTED_MAX:]
            calls = [partial(self._living_path, path, found, files.get(path)) for path in batch]
            living += [path for path in await self.gather(calls) if path is not None]
        return living

    async def _living_path(self, path: str, found: Sorted, file: FileInfo | None) -> str | None:
        """Return the path of a live entry, with a slash after a folder's; else None."""
        if names.is_hidden_segment(path):
            return None
        if path in found.headers:
            loaded = await self.loaded_or_error(path, found.headers[path])
            if isinstance(loaded, OSError) or loaded.live:
                return path
            if file is not None and await self.is_visible_or_error(file, loaded):
                return path
        elif file is not None:
            return path
        return f"{path}/" if path in found.folders and await self.is_alive(path) else None

    # -- files ---------------------------------------------------------------------------------------------

    async def loaded_or_error(
        self, path: str, token: str | None, data: bytes | None = None, began: int = 0
    ) -> Segment | OSError:
        """Return the header of a segment, perhaps cached, or its own error.

        Parameters
        ----------
        data
            The content of the header's file, if a listing that began at `began` has read it with the token.
        """
        try:
            loaded = self.headers.by_token(path, token)
            if loaded is None and token is not None and data is not None:
                with contextlib.suppress(CorruptHeaderError):  # a read of its own says whether it is damaged
                    return self.headers.listed(path, token, data, began)
            return loaded or await self.headers.load(path)
        except OSError as error:
            if not is_of_entry(error):
                raise
            return error

    async def is_visible_or_error(self, file: FileInfo, loaded: Segment | None) -> bool | OSError:
        """Return whether users see a plain file, which a tombstone may hide."""
        if loaded is None or loaded.header is None or loaded.header.adopted is None:
            return True
        if is_shadowed(loaded.header, file):
            return False
        try:
            # a listing may know no token, or another than `stat` does
            return await self.headers.plain(loaded) is not None
        except OSError as error:
            if not is_of_entry(error):
                raise
            return error


def _in_the_way(path: str, living: Sequence[str], is_more: bool) -> str:
    shown = ", ".join(one[len(path.rstrip("/")) + 1 :] for one in living[:NAMES_SHOWN_MAX])
    rest = len(living) - NAMES_SHOWN_MAX
    if is_more or len(living) > NAMES_COUNTED_MAX:
        shown += f" and at least {rest} more" if rest > 0 else " and perhaps more"
    elif rest > 0:
        shown += f" and {rest} more"
    return f"It is a folder that holds {shown}; a segment of this name would hide them. Nothing was written"
