"""The verbs that change nothing, as coroutines of the core: what is there, and what it holds."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import IO, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.client import Client
from rollingfs.errors import ConflictError, SegmentTruncatedError
from rollingfs.folders.listing import RAISE, REPORT, Info, Listings, check_on_error
from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.read.piece_checks import PieceChecks
from rollingfs.read.slicing import Range, clip, spread
from rollingfs.read.snapshot import View

logger = logging.getLogger("rollingfs")

GONE = (FileNotFoundError, SegmentTruncatedError)
SNAPSHOTS_MAX = 8
"""From how many snapshots a read is tried of a file that others go on replacing."""
PIECE_BYTES = 32 * 1024 * 1024
"""So much of a file is held at once while it is copied or downloaded; it is read in several ranges at a time."""


class Queries:
    """Answers what is there, over paths as callers write them.

    Parameters
    ----------
    strip
        Finds the backend's own path of a URL or path.
    """

    def __init__(self, client: Client, strip: Callable[[str], str]) -> None:
        self.client = client
        self.listings = Listings(client)
        self.strip = strip

    # -- what is there -------------------------------------------------------------------------------------

    async def info(self, path: str, on_error: str = RAISE, **kwargs: Any) -> Info:
        """What is at a path, in the form of fsspec.

        Parameters
        ----------
        on_error
            For a segment whose header cannot be read: ``"raise"``, or ``"report"`` as `ls` does.

        Returns
        -------
        dict
            ``name``, ``size`` (bytes), ``type`` (``"file"`` or ``"directory"``); for files also ``start_offset`` (of
            the first retained byte), ``length`` (the end offset), ``sealed``, ``chunks`` (their count), ``version``,
            ``created`` and ``mtime`` (seconds since 1970).

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        CorruptHeaderError
            It is a segment whose header is damaged or too new.
        """
        found = check_on_error(on_error)
        return await self.listings.info(self.strip(path), fresh=bool(kwargs.get("refresh")), on_error=found)

    async def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is a segment, a plain file or a folder of this name now."""
        return await self.listings.is_there(self.strip(path))

    async def isfile(self, path: str) -> bool:
        """Whether there is a segment or a plain file of this name."""
        return await self._type(path) == "file"

    async def isdir(self, path: str) -> bool:
        """Whether there is a folder of this name (and no file)."""
        return await self._type(path) == "directory"

    async def _type(self, path: str) -> str | None:
        try:
            kind: str = (await self.info(path, REPORT))["type"]
        except FileNotFoundError:
            return None
        return kind

    async def ls(self, path: str, detail: bool = True, on_error: str = REPORT, **kwargs: Any) -> list[Info] | list[str]:
        """What lies in a folder, as of the call: segments, plain files and folders, sorted by name.

        Parameters
        ----------
        detail
            Return infos rather than names.
        on_error
            For segments that cannot be read (the header is damaged, too new, or not permitted): ``"report"`` lists
            them with ``size`` None and their ``error`` as text, ``"raise"`` raises the first error. A read of such a
            segment raises the error in any case.

        Raises
        ------
        FileNotFoundError
            Nothing of this name is there.
        """
        infos = await self.listings.ls(self.strip(path), check_on_error(on_error))
        return infos if detail else [info["name"] for info in infos]

    async def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        on_error: str = REPORT,
        **kwargs: Any,
    ) -> dict[str, Info] | list[str]:
        """Everything below a path, as of the call: segments and plain files, and folders on request.

        Parameters
        ----------
        maxdepth
            How many levels of folders to look into; None for all.
        withdirs
            Return folders as well.
        detail
            Return infos by name rather than names.
        on_error
            As for `ls`; a folder that may not be listed is reported, too.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        found = await self._find(path, maxdepth, withdirs, on_error)
        return found if detail else list(found)

    async def _find(self, path: str, depth_max: int | None, with_folders: bool, on_error: str) -> dict[str, Info]:
        return await self.listings.find(
            self.strip(path), depth_max, with_folders=with_folders, on_error=check_on_error(on_error)
        )

    async def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        on_error: str = REPORT,
        **kwargs: Any,
    ) -> int | dict[str, int]:
        """How many bytes are retained below a path: their sum, or by name.

        Parameters
        ----------
        on_error
            As for `ls`; what is reported counts as 0 bytes, and a warning in the log names it.
        """
        found = await self._find(path, maxdepth, withdirs, on_error)
        for name, info in found.items():
            if "error" in info:
                logger.warning("%s counts as 0 bytes, because it cannot be read: %s", name, info["error"])
        sizes = {name: int(info["size"] or 0) for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    async def created(self, path: str) -> datetime:
        """When a file was created."""
        return await self._date(path, "created")

    async def modified(self, path: str) -> datetime:
        """When a file was last changed."""
        return await self._date(path, "mtime")

    async def _date(self, path: str, key: str) -> datetime:
        info = await self.info(path)
        if key not in info:
            raise IsADirectoryError(21, "A folder has no date", info["name"])
        return datetime.fromtimestamp(info[key], UTC)

    async def ukey(self, path: str) -> str:
        """A text that changes whenever the content of the file may have changed."""
        path = self.strip(path)
        view = await self.view(path)
        if view.header is not None:
            said = f"{path} {view.header.segment} {view.header.version}"
        else:
            assert view.plain is not None
            said = f"{path} {view.plain.size} {view.plain.modified} {view.token}"
        return hashlib.sha256(said.encode()).hexdigest()

    async def checksum(self, path: str) -> int:
        """A number that changes whenever the content of the file may have changed."""
        return int((await self.ukey(path))[:32], 16)

    # -- reading -------------------------------------------------------------------------------------------

    async def view(self, path: str) -> View:
        """A snapshot of a segment or plain file.

        Raises
        ------
        FileNotFoundError
            There is none.
        """
        if names.is_reserved(path):
            raise missing(path)
        return await self.client.lookup.view(path)

    async def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, verify: bool = False, **kwargs: Any
    ) -> bytes:
        """The bytes of a file, counted from the first retained one, all of one snapshot.

        Parameters
        ----------
        start, end
            Sliced as by Python: negative counts from the end, too large is clipped, empty gives ``b""``.
        verify
            Read all of each chunk of which only a part is wanted, and verify it. Whole ones are verified anyway.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        [answer] = await self._read([(self.strip(path), start, end)], verify)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def cat_ranges(
        self,
        paths: list[str],
        starts: int | Sequence[int | None] | None,
        ends: int | Sequence[int | None] | None,
        max_gap: int | None = None,
        on_error: str = "return",
        verify: bool = False,
        **kwargs: Any,
    ) -> list[bytes | Exception]:
        """Ranges of one file or several, all asked for at once; sliced, and verified, as `cat_file` does.

        Parameters
        ----------
        on_error
            ``"return"`` puts an error in the place of its range, ``"raise"`` raises the first.
        """
        ranges = [(self.strip(path), start, end) for path, start, end in spread(paths, starts, ends)]
        answers = await self._read(ranges, verify)
        if on_error != "return":
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers

    async def _read(self, ranges: Sequence[Range], verify: bool) -> list[bytes | Exception]:
        """Read all ranges at once; headers known, but not looked at of late, are looked at again beside the data."""
        paths = list(dict.fromkeys(path for path, _, _ in ranges))
        known = {path: view for path in paths if (view := self._known(path)) is not None}
        if not self.client.backend.is_async or len(known) < len(paths):
            views = await self._views(paths)
            return await self._renewed(views, ranges, await self._read_of(views, ranges, verify), verify)
        calls: list[Callable[[], Awaitable[Any]]] = [
            partial(self._views, paths),
            partial(self._read_of, known, ranges, verify),
        ]
        answers: list[bytes | Exception]
        views, answers = await self.listings.gather(calls)
        if not all(isinstance(view, View) and view.token == known[path].token for path, view in views.items()):
            answers = await self._read_of(views, ranges, verify)
        return await self._renewed(views, ranges, answers, verify)

    async def _renewed(
        self,
        views: Mapping[str, View | Exception],
        ranges: Sequence[Range],
        answers: Sequence[bytes | Exception],
        verify: bool,
    ) -> list[bytes | Exception]:
        """The answers, those asked for again whose file was replaced or truncated since its snapshot was taken."""
        now, found = dict(views), list(answers)
        for _ in range(SNAPSHOTS_MAX):
            pairs = zip(ranges, found, strict=True)
            old = {path for (path, _, _), answer in pairs if isinstance(answer, GONE) and isinstance(now[path], View)}
            if not old:
                break
            for path in old:
                self.client.headers.forget(path)
            now |= await self._views(list(old))
            again = [range_ for range_ in ranges if range_[0] in old]
            renewed = iter(await self._read_of(now, again, verify))
            found = [
                next(renewed) if range_[0] in old else answer for range_, answer in zip(ranges, found, strict=True)
            ]
        return found

    def _known(self, path: str) -> View | None:
        seen = self.client.headers.seen(path)
        return View(path, seen.header, seen.token) if seen is not None and seen.live else None

    async def _read_of(
        self, views: Mapping[str, View | Exception], ranges: Sequence[Range], verify: bool
    ) -> list[bytes | Exception]:
        requests = []
        for path, start, end in ranges:
            view = views[path]
            if isinstance(view, View):
                first, last = clip(start, end, view.size)
                requests.append((view, view.start + first, view.start + last))
        answers = iter(await self.client.fetcher.read_many(requests, verify=verify))
        found = [views[path] for path, _, _ in ranges]
        return [view if isinstance(view, Exception) else next(answers) for view in found]

    async def _views(self, paths: Sequence[str]) -> dict[str, View | Exception]:
        views = await self.listings.gather([partial(self._view_or_error, path) for path in paths])
        return dict(zip(paths, views, strict=True))

    async def _view_or_error(self, path: str) -> View | Exception:
        try:
            return await self.view(path)
        except OSError as error:
            return error

    async def get_file(
        self,
        rpath: str,
        lpath: str | os.PathLike[str] | IO[bytes],
        callback: Callback = DEFAULT_CALLBACK,
        outfile: IO[bytes] | None = None,
        verify: bool = False,
        **kwargs: Any,
    ) -> None:
        """Copy a file to the local disk, or into a file that is open; of a folder, make one.

        Nothing is left on the disk of a file that cannot be read to its end.

        Parameters
        ----------
        verify
            Verify a first chunk, too, of which the head was truncated away; all others are verified anyway.

        Raises
        ------
        FileNotFoundError
            Nothing is there, or it was replaced while it was read.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        source = self.strip(rpath)
        try:
            view = await self.view(source)
        except FileNotFoundError:
            if isinstance(lpath, str | os.PathLike) and await self.listings.is_folder(source):
                os.makedirs(lpath, exist_ok=True)
                return
            raise
        callback.set_size(view.size)
        pieces = self.pieces(view, verify=verify)
        if outfile is not None or not isinstance(lpath, str | os.PathLike):
            async for data in pieces:
                (outfile or lpath).write(data)  # type: ignore[union-attr]  # a file, not a name
                callback.relative_update(len(data))
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        try:
            with open(lpath, "wb") as target:
                async for data in pieces:
                    target.write(data)
                    callback.relative_update(len(data))
        except BaseException:
            if os.path.isfile(lpath):  # no device, no pipe
                os.unlink(lpath)
            raise

    async def pieces(self, view: View, *, verify: bool) -> AsyncIterator[bytes]:
        """All bytes of a snapshot, in pieces; a plain file is held where it can be.

        Parameters
        ----------
        verify
            Verify the chunks, too, of which the snapshot has but a part, before the end.
        """
        fetcher, checks, held = self.client.fetcher, PieceChecks(), None
        with contextlib.suppress(FileNotFoundError, ConflictError):  # as the first read will say
            held = fetcher.hold(view)
        for start in range(view.start, view.length, PIECE_BYTES):
            end = min(start + PIECE_BYTES, view.length)
            data = await fetcher.read(view, start, end, checks=checks)
            if verify and end == view.length:
                await fetcher.complete(view, checks)
            yield data
        del held
