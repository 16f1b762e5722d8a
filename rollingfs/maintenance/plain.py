"""The plain copy: the bytes of a sealed segment as one file under its plain name, which any tool can read.

The header stays the truth: its chunks are neither moved nor referred to by other means. The copy is hidden by the
header, as an adopted plain file is, and goes as that does: with a delete, a rename or an overwrite, and by collection
once a truncation has made it stale. Before it is written, the header says so, because a file under a name that is used
again could come to life under a tombstone that does not know it.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace

from rollingfs.backend.contract import ABSENT, FileInfo, Part
from rollingfs.commit.attempt import Attempt
from rollingfs.commit.committer import Committer
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.shadowing import delete_shadowed, let_pass, names_file, shadow
from rollingfs.errors import (
    ConflictError,
    CorruptChunkError,
    SegmentNotSealedError,
    SegmentTruncatedError,
    UnsafeBackendError,
)
from rollingfs.format import names, placement, transitions
from rollingfs.format.header import Adopted, Chunk, Header, Phase, PlainCopy
from rollingfs.maintenance.pieces import Piece, plan_pieces
from rollingfs.maintenance.plain_files import READ_BYTES_MAX, Judged, PlainFiles
from rollingfs.maintenance.steps import Progress, Steps
from rollingfs.read.piece_checks import PieceChecks
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Snapshot
from rollingfs.runtime.concurrency import backoff_s

logger = logging.getLogger("rollingfs")

COPY_BYTES_MAX = 5 * 1024**4
"""Of one object, on S3."""
PARTS_MAX = 4_000
"""Of one join. S3 takes 10,000, and the backend cuts 5 TiB into at most 5,120 and one more for each of these."""
ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True)
class Copied:
    """What writing a plain copy took."""

    size: int = 0
    """Bytes of the file that was written; 0 if it was there already."""
    joined_bytes: int = 0
    """Copied on the server."""
    copied_bytes: int = 0
    """Read and written through this client."""


class _UnjudgedError(Exception):
    """The file under the plain name came, or changed, since it was looked at."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """The header that says that the copy is being written, and what is there."""

    header: Header
    old: FileInfo | None
    """What the copy is to replace."""


@dataclass(frozen=True, slots=True)
class _Written:
    copied: Copied
    file: Adopted | None
    """Token and date, seen right after it was written; None if another was there by then."""


class PlainCopies:
    """Writes plain copies of sealed segments, and settles those that were never finished."""

    def __init__(self, committer: Committer, fetcher: Fetcher) -> None:
        self.committer = committer
        self.store = committer.store
        self.fetcher = fetcher
        self.backend = self.store.backend
        self.files = PlainFiles(committer, fetcher)

    async def write(self, path: str, *, segment: str | None = None, progress: Progress | None = None) -> Copied:
        """Write what is retained of a sealed segment as one file under its plain name, unless it is there.

        Parameters
        ----------
        segment
            Only this incarnation.
        progress
            Told of the bytes that are done.

        Raises
        ------
        FileNotFoundError
            There is no such segment.
        SegmentNotSealedError
            It may still grow.
        FileExistsError
            A file that is not the segment's has its plain name, hidden by the header; or a folder has it.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        ValueError
            It is larger than an object can be.
        UnsafeBackendError
            The store cannot be kept from overwriting a file that another program puts there meanwhile, or cannot
            replace an older copy only. Nothing was written.
        ConflictError
            Others truncated it, or wrote its plain copy, too often meanwhile.
        """
        steps: Steps | None = None
        for count in range(1, ATTEMPTS_MAX + 1):
            try:
                begun = await self._begin(path, segment)
            except FileExistsError:
                if steps is not None:  # somebody put it there after this call began
                    await self._release(path)
                raise
            if begun is not None:
                header = begun.header
                segment = header.segment
                steps = steps or Steps(header.size, progress)
                copied = await self._attempt(path, begun, steps)
                if copied is not None:
                    steps.reach(steps.total)
                    return copied
            await self.store.runtime.sleep(backoff_s(count))
        raise ConflictError(
            f"{path}: the segment or its plain copy changed {ATTEMPTS_MAX} times while it was written; try again"
        )

    async def _attempt(self, path: str, begun: _Begun, steps: Steps) -> Copied | None:
        """Write and commit the copy, if it is not there; None if others were faster."""
        if not begun.header.is_copying:
            return Copied()
        try:
            written = await self._write(path, begun, steps)
        except (FileNotFoundError, FileExistsError, ConflictError, SegmentTruncatedError) as error:
            await self._check_changed(path, begun.header, error)
            return None
        if written is None or not await self._confirm(path, begun.header, written.file):
            return None
        return written.copied

    # -- the header before and after -------------------------------------------------------------------------

    async def _begin(self, path: str, segment: str | None) -> _Begun | None:
        """Commit that the copy is being written, and what is there of earlier ones; None if others were at it."""
        judged = await self.files.judge(path)
        old: FileInfo | None = None

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            nonlocal old
            found = _sealed(base.header, path, segment)
            if found.size > COPY_BYTES_MAX:
                raise ValueError(f"{path} holds {found.size} bytes: at most {COPY_BYTES_MAX} fit one object")
            old = await self.files.stat(path)
            if old is not None and names_file(found, old) and found.has_plain_copy:
                return None
            if old is None and self.backend.has_folders and await self.backend.is_folder(path):
                raise FileExistsError(17, "A folder has its plain name, so there can be no plain copy", path)
            if not _is_ours(found, old, judged):
                raise FileExistsError(
                    17, "A file that is not the segment's has its plain name; move it away, then try again", path
                )
            is_whole = _is_whole(found, old, judged)  # of a writer that has not committed it
            if not is_whole:
                await self._check_store(path, old)
            copy = PlainCopy(found.segment, found.start, None if is_whole else self.store.now_ms())
            return replace(found, plain_copy=copy, adopted=shadow(old) or found.adopted)

        try:
            header = (await self.committer.commit(path, step, fresh=True)).header
        except _UnjudgedError:
            return None
        assert header is not None
        return _Begun(header, old)

    async def _check_store(self, path: str, old: FileInfo | None) -> None:
        """Refuse a store on which a file that another program writes meanwhile could be lost."""
        if not await self.files.replaces(path) and old is not None and not await self.files.deletes(path):
            raise UnsafeBackendError(
                f"{path}: this store can neither replace nor delete a file on condition that it is the one that was "
                "seen, so the older file of this name stays; delete it with another tool, then try again"
            )

    async def _confirm(self, path: str, header: Header, file: Adopted | None) -> bool:
        """Commit that the copy is whole; False if it is not a copy of what is there now, or not there any more."""
        is_whole = False

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            nonlocal is_whole
            is_whole = False
            found = base.header
            if found is None or found.deleted or found.segment != header.segment or found.start != header.start:
                return None
            # also of a source that is merging, whose tombstone is then to name the copy. Looked at after the header was
            # read: of several writers, whoever commits last has seen the last file
            copy = await self.files.stat(path)
            if copy is None or copy.size != header.size or shadow(copy) != file:
                return None
            is_whole = True
            return replace(found, adopted=file, plain_copy=PlainCopy(found.segment, found.start))

        committed = await self.committer.commit(path, step, fresh=True)
        if not is_whole and not _is_live(committed.header, header.segment):
            await self._withdraw(path, file)
        return is_whole

    async def _withdraw(self, path: str, file: Adopted | None) -> None:
        """Take away a copy that came too late: the segment was deleted, moved or replaced before.

        Where the store has no conditional delete, it is hidden as one that came in time is.
        """
        if await self.files.deletes(path):
            await delete_shadowed(self.store, path, file)
            return

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            copy = await self.files.stat(path)
            if base.header is None or copy is None or shadow(copy) != file or names_file(base.header, copy):
                return None
            await let_pass(self.store, path, file)
            return replace(base.header, adopted=file)

        await self.committer.commit(path, step, fresh=True)

    async def settle(self, path: str) -> None:
        """Give up a copy that is being written, or that somebody died at: the next delete or rename takes it along.

        Its writer, if he is alive, notices, and takes away what he has written. A file of somebody else stays.

        Raises
        ------
        ConflictError
            Others changed the file too often meanwhile.
        """
        header = (await self.store.headers.load(path)).header
        if header is None or not header.is_copying:
            return
        for upload in await self.files.uploads(path):
            await self.backend.abort_upload(upload)  # so that it cannot become a file after all
        await self._release(path)

    async def _release(self, path: str) -> None:
        """Commit that no copy is being written, and which file under the plain name is one."""
        for count in range(1, ATTEMPTS_MAX + 1):
            judged = await self.files.judge(path)

            async def step(base: Loaded, attempt: Attempt, judged: Judged | None = judged) -> Header | None:
                found = base.header
                if found is None or not found.is_copying:
                    return None
                old = await self.files.stat(path)
                if _is_ours(found, old, judged):
                    return replace(found, plain_copy=None, adopted=shadow(old) or found.adopted)
                logger.warning("%s: the file of this name is not its plain copy, and is left alone", path)
                return replace(found, plain_copy=None)

            with contextlib.suppress(_UnjudgedError):
                await self.committer.commit(path, step)
                return
            await self.store.runtime.sleep(backoff_s(count))
        raise ConflictError(f"{path}: the file of its plain name changed {ATTEMPTS_MAX} times; try again")

    # -- the bytes -------------------------------------------------------------------------------------------

    async def _write(self, path: str, begun: _Begun, steps: Steps) -> _Written | None:
        """Write the file; None if the header does not ask for it any more."""
        header = begun.header
        pieces = await self._pieces(path, header)
        if all(piece.chunk is None for piece in pieces):
            over = await self._over(path, begun)
            if over is None:
                return None
            token = await self._through(path, header, Piece(header.start, header.length), path, steps, over)
            return _Written(Copied(header.size, 0, header.size), await self.files.seen(path, token))
        made: list[str] = []
        try:
            parts = [await self._part(path, header, piece, made, steps) for piece in pieces]
            parts = await self._fewer(path, parts, made)
            over = await self._over(path, begun)
            if over is None:
                return None
            token = await self.backend.join(parts, path, over)
        finally:
            if made:
                await self.backend.delete(made)
        joined = sum(piece.end - piece.start for piece in pieces if piece.chunk is not None)
        steps.add(joined)
        return _Written(Copied(header.size, joined, header.size - joined), await self.files.seen(path, token))

    async def _over(self, path: str, begun: _Begun) -> str | None:
        """What the file may be written over, not long before that; None if it is not wanted any more."""
        now = (await self.store.headers.load(path)).header
        wanted = begun.header
        if now is None or not now.is_copying or (now.segment, now.start) != (wanted.segment, wanted.start):
            return None
        if begun.old is None or begun.old.token is None:
            return ABSENT
        if await self.files.replaces(path):
            return begun.old.token if shadow(await self.files.stat(path)) == shadow(begun.old) else None
        return ABSENT if await delete_shadowed(self.store, path, shadow(begun.old)) else None

    async def _pieces(self, path: str, header: Header) -> list[Piece]:
        if not self.backend.can_join:
            return [Piece(header.start, header.length)]
        chunks = await self.store.pages.unfold(path, header.entries)
        retained = [placement.clip(chunk, header.start, chunk.end) for chunk in chunks if chunk.end > header.start]
        kept = [chunk for chunk in retained if isinstance(chunk, Chunk)]
        return plan_pieces(kept, header.start, header.length, self.backend.join_part_bytes_min)

    async def _part(self, path: str, header: Header, piece: Piece, made: list[str], steps: Steps) -> Part:
        """What is to be joined for a piece: a range of its chunk, or a file that is made for it."""
        if piece.chunk is not None:
            begin = piece.chunk.offset + piece.start - piece.chunk.start
            return Part(names.resolve(path, piece.chunk.file), begin, begin + piece.end - piece.start)
        file = f"{names.chunks_folder(path)}/{names.new_chunk_name(piece.start)}"
        made.append(file)
        await self._through(path, header, piece, file, steps)
        return Part(file, 0, piece.end - piece.start)

    async def _fewer(self, path: str, parts: list[Part], made: list[str]) -> list[Part]:
        """As many parts as one join takes, by joining runs of them first."""
        while len(parts) > PARTS_MAX:
            runs = [parts[first : first + PARTS_MAX] for first in range(0, len(parts), PARTS_MAX)]
            parts = []
            for run in runs:
                file = f"{names.chunks_folder(path)}/{names.new_chunk_name(0)}"
                made.append(file)
                await self.backend.join(run, file)
                parts.append(Part(file, 0, sum(part.end - part.start for part in run)))
        return parts

    async def _through(
        self, path: str, header: Header, piece: Piece, target: str, steps: Steps, over: str | None = None
    ) -> str | None:
        """Read a range and write it as a file, in bounded memory; the file's token, if it is written over another."""
        view, checks, start = Snapshot(path, header, None), PieceChecks(), piece.start
        upload = await self.backend.open_write(target, over)
        try:
            while start < piece.end:
                last = min(start + READ_BYTES_MAX, piece.end)
                await upload.write(await self.fetcher.read(view, start, last, checks=checks))
                steps.add(last - start)
                start = last
            return await upload.finish()
        except BaseException:
            await upload.abort()
            raise

    async def _check_changed(self, path: str, header: Header, error: Exception) -> None:
        """Explain why the copy could not be written: what changed meanwhile, or a chunk that is missing."""
        now = (await self.store.headers.load(path)).header
        is_refused = isinstance(error, FileExistsError | ConflictError)
        if not is_refused and now is not None and now.version == header.version:
            raise CorruptChunkError(f"{path}: a chunk that its header names is missing: {error}") from error
        logger.info("%s: its plain copy is begun again: %s", path, error)


def check_sealed(header: Header, path: str) -> None:
    """Refuse a segment that may still grow.

    Raises
    ------
    SegmentNotSealedError
        It is not sealed.
    """
    if not header.sealed:
        raise SegmentNotSealedError(
            f"{path} is not sealed; seal() it before its plain copy is written; nothing was written"
        )


def _sealed(header: Header | None, path: str, segment: str | None) -> Header:
    found = transitions.live(header, path, segment)
    if found.phase is Phase.MERGING:
        raise transitions.MergeFoundError(path, found)
    check_sealed(found, path)
    return found


def _is_ours(header: Header, file: FileInfo | None, judged: Judged | None) -> bool:
    """Whether there is no file, or one that the segment may replace."""
    if file is None or names_file(header, file):
        return True
    if judged is None or judged.file != shadow(file):
        raise _UnjudgedError
    return judged.is_copy


def _is_whole(header: Header, file: FileInfo | None, judged: Judged | None) -> bool:
    """Whether a file that the header does not name is a copy of what is retained now."""
    if file is None or judged is None:
        return False
    return judged.is_copy and judged.file == shadow(file) and file.size == header.size


def _is_live(header: Header | None, segment: str) -> bool:
    return header is not None and not header.deleted and header.segment == segment
