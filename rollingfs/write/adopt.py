"""Plain files that become segments: a header over a copy of their bytes, or nothing left of them.

Who adopts copies the file after a tombstone is there, and commits over this tombstone and no other. Who deletes looks
at the header once the file is gone, and replaces a tombstone that is there. So either finds the other: an adoption
whose tombstone came after that look finds no file to copy, and one whose tombstone came before it meets another.
"""

from __future__ import annotations

import errno
import uuid
from dataclasses import replace

from rollingfs.backend.contract import FileInfo
from rollingfs.commit.attempt import Attempt
from rollingfs.commit.chunk_files import Stored
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.loop import Committer
from rollingfs.commit.shadowing import delete_shadowed, is_shadowed, modified_ms, shadow
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import ConflictError, RollingError
from rollingfs.format import names, transitions
from rollingfs.format.header import Commit, Header, Origin
from rollingfs.policy import RollingPolicy
from rollingfs.read.snapshot import Lookup, Snapshot
from rollingfs.runtime.clock import Moment

ADOPTIONS_MAX = 8
"""How often a file that others keep changing is tried again."""


def _is_meant(path: str, plain: FileInfo, incarnation: str | None) -> bool:
    """Whether a plain file is the one of this incarnation; with None, any is."""
    return incarnation in (None, *Snapshot(path, None, plain.token, plain).incarnations)


def _commit(header: Header) -> tuple[int, tuple[Commit, ...]]:
    """What tells the commits to a path apart, also where its header was collected in between."""
    return header.version, header.commits


class Adoption:
    """Gives plain files headers, or removes them."""

    def __init__(self, committer: Committer, lookup: Lookup, policy: RollingPolicy) -> None:
        self.committer = committer
        self.lookup = lookup
        self.policy = policy

    def new(self, base: Header | None, policy: RollingPolicy, plain: FileInfo | None = None) -> Header:
        """The header of a new incarnation, over whatever is there."""
        return transitions.create(base, str(uuid.uuid4()), policy, self.committer.now_ms(), shadow(plain))

    async def adopt(self, path: str, incarnation: str | None = None) -> bool:
        """Give a plain file a header: copy it into a chunk, on condition that it is what was seen.

        Parameters
        ----------
        incarnation
            Only the plain file of this incarnation.

        Returns
        -------
        bool
            False if there is no plain file.
        """
        for _ in range(ADOPTIONS_MAX):
            loaded = await self.committer.headers.load(path)
            if loaded.live:
                return True
            plain = await self.lookup.plain(path, loaded)
            if plain is None or not _is_meant(path, plain, incarnation):
                return False
            claim = await self._claimed(path)
            if is_shadowed(claim, plain):
                continue  # by a header that came since
            try:
                await self._adopt(path, plain, claim)
            except ConflictError:
                continue  # it was overwritten or deleted while it was copied
            return True
        raise ConflictError(f"{path}: the plain file changes too often to be adopted; nothing was written")

    async def _claimed(self, path: str) -> Header:
        """The header at a path; a tombstone is made where there is none."""

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            return transitions.tombstone(self.new(None, self.policy)) if base.header is None else None

        claim = (await self.committer.commit(path, step, fresh=True)).header
        assert claim is not None
        return claim

    async def _adopt(self, path: str, plain: FileInfo, claim: Header) -> None:
        stored = await self._copied(path, plain)
        uploads = Uploads(self.committer.chunks, path, [stored] if stored else [])

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            if base.live:
                return None
            if base.header is None or _commit(base.header) != _commit(claim):
                raise ConflictError(f"{path}: the plain file was deleted, or adopted by others and moved or deleted")
            header = self.new(base.header, self.policy, plain)
            header = replace(header, origin=Origin(header.segment, modified_ms(plain)))
            if stored is None:
                return header
            renewed = await attempt.young(self.committer.chunks, stored)
            return replace(header, entries=(renewed.chunk(path, 0),))

        await uploads.settle(self.committer.commit(path, step, fresh=True, uploads=[uploads]))

    async def _copied(self, path: str, plain: FileInfo) -> Stored | None:
        """A chunk with the bytes of a plain file; None if it has none."""
        if not plain.size:
            await self._check_unchanged(path, plain)
            return None
        await self.committer.abilities(path)
        began = Moment.now(self.committer.clock)
        target = f"{names.chunks_folder(path)}/{names.new_chunk_name(0)}"
        try:
            await self._copy(path, plain, target)
        except (RollingError, FileNotFoundError):
            raise
        except OSError as error:
            why = f"the plain file could not be made a segment's, so nothing was written: {error.strerror or error}"
            raise OSError(error.errno or errno.EIO, why, path) from error
        return Stored(target, plain.size, None, modified_ms(plain), began)

    async def _copy(self, path: str, plain: FileInfo, target: str) -> None:
        backend = self.committer.backend
        if backend.can_copy:
            await backend.copy(path, target, plain.token)
        else:
            await self.committer.chunks.copy_through(path, target)
        try:
            # the copy's condition is the token alone: a file of the same bytes that came since is another
            await self._check_unchanged(path, plain)
        except (ConflictError, FileNotFoundError):
            await backend.delete([target])
            raise

    async def _check_unchanged(self, path: str, plain: FileInfo) -> None:
        if shadow(await self.committer.backend.stat(path)) != shadow(plain):
            raise ConflictError(f"{path} changed while it was copied")

    async def remove(self, path: str, incarnation: str | None = None) -> bool:
        """Delete a plain file, on condition that it is what was seen, where the store can.

        Parameters
        ----------
        incarnation
            Only the plain file of this incarnation.

        Returns
        -------
        bool
            False if there is none, or none of this incarnation, or a segment has taken its place.
        """
        backend = self.committer.backend
        for _ in range(ADOPTIONS_MAX):
            loaded = await self.committer.headers.load(path)
            plain = None if loaded.live else await self.lookup.plain(path, loaded)
            if plain is None:
                await self.committer.headers.secure(path)  # whoever deleted it may not have flushed that
                return False
            if not _is_meant(path, plain, incarnation):
                return False
            if not (await self.committer.abilities(path)).delete_if or plain.token is None:
                await backend.delete([path])
            elif incarnation is not None and not await delete_shadowed(self.committer, path, shadow(plain)):
                continue  # another has been written meanwhile, perhaps of the same bytes
            elif incarnation is None and not await backend.delete_if(path, plain.token):
                continue  # another has been written meanwhile
            # who adopted it before it went has its bytes: then it is a segment that is to be deleted
            return await self._void_claims(path)
        raise ConflictError(f"{path}: the plain file changes too often to be deleted; it is still there")

    async def _void_claims(self, path: str) -> bool:
        """Replace a tombstone over which somebody may be about to adopt; false if there is a segment by now."""

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            return base.header if base.header is not None and base.header.deleted else None

        if (await self.committer.headers.load(path)).header is None:
            return True
        now = (await self.committer.commit(path, step, fresh=True)).header
        return now is None or now.deleted
