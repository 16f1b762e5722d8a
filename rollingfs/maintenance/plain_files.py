"""The file under a segment's plain name: whose it is, and whether the store lets nobody else's be lost."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rollingfs.backend.contract import FileInfo, PendingUpload
from rollingfs.backend.probe import probe_over
from rollingfs.commit.committer import Committer
from rollingfs.commit.shadowing import names_file, shadow
from rollingfs.errors import CorruptChunkError, SegmentTruncatedError
from rollingfs.format import names
from rollingfs.format.header import Adopted, Header
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Snapshot

logger = logging.getLogger("rollingfs")

READ_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Judged:
    """A file under the plain name that the header does not name."""

    file: Adopted | None
    """Its token and date."""
    is_copy: bool
    """Whether it is a plain copy, which its writer has not committed (yet); else it is somebody else's."""


class PlainFiles:
    """Looks at the files under plain names; never deletes one but by its token."""

    def __init__(self, committer: Committer, fetcher: Fetcher) -> None:
        self.committer = committer
        self.store = committer.store
        self.fetcher = fetcher
        self.backend = self.store.backend
        self._replaces: dict[str, bool] = {}

    async def replaces(self, path: str) -> bool:
        """Whether the store replaces a file on condition that it has a token: probed once for each root.

        Raises
        ------
        UnsafeBackendError
            It does not even let a file be that is there already.
        """
        root = self.backend.root(path)
        if root not in self._replaces:
            await self.store.abilities(path)
            self._replaces[root] = await probe_over(self.backend, names.chunks_folder(path))
        return self._replaces[root]

    async def deletes(self, path: str) -> bool:
        """Whether the store deletes a file on condition that it has a token."""
        return (await self.store.abilities(path)).delete_if

    async def stat(self, path: str) -> FileInfo | None:
        """The file, if there is one."""
        try:
            return await self.backend.stat(path)
        except FileNotFoundError:
            return None

    async def seen(self, path: str, token: str | None) -> Adopted | None:
        """Token and date of a file that was just written: the answer to the request that wrote it has no date."""
        file = await self.stat(path)
        return shadow(file) if file is not None and file.token == token else None

    async def judge(self, path: str) -> Judged | None:
        """Whose the file is that the header does not name; None if there is none, or if others were at it meanwhile."""
        loaded = await self.store.headers.load(path)
        info = await self.stat(path)
        if loaded.header is None or info is None or names_file(loaded.header, info):
            return None
        is_copy = loaded.header.is_copying and await self._holds(path, loaded.header, info)
        if (await self.store.headers.load(path)).token != loaded.token:
            return None
        return Judged(shadow(info), is_copy)

    async def _holds(self, path: str, header: Header, info: FileInfo) -> bool:
        """Whether a file has the very bytes that whoever is, or was, writing the copy would write.

        Nothing else tells it from a file that another program put there. It is seldom read through: only a writer that
        died between the join and the commit leaves one, and another file differs in its size or its first bytes.
        """
        copy = header.plain_copy
        if copy is None or info.size != header.length - copy.start or (header.size == 0 and info.size > 0):
            return False  # also if all that could be compared has been truncated away
        view, start = Snapshot(path, header, None), header.start
        try:
            while start < header.length:
                end = min(start + READ_BYTES_MAX, header.length)
                found = await self.backend.read_range(path, start - copy.start, end - copy.start)
                if found != await self.fetcher.read(view, start, end):
                    return False
                start = end
        except (FileNotFoundError, CorruptChunkError, SegmentTruncatedError) as error:
            logger.info("%s: whether the file of this name is its plain copy cannot be said: %s", path, error)
            return False
        now = await self.stat(path)
        return shadow(now) == shadow(info)

    async def uploads(self, path: str) -> list[PendingUpload]:
        """The unfinished uploads under the plain name, as far as the store lets us know."""
        if not self.backend.can_list_uploads:
            return []
        try:
            uploads = await self.backend.list_uploads(names.parent(path))
        except PermissionError as error:
            logger.info("%s: whether its plain copy is being uploaded is not known: %s", path, error)
            return []
        return [upload for upload in uploads if upload.path == path]
