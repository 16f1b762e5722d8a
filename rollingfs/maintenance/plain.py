"""The plain copy: the bytes of a sealed segment as one file under its plain name, which any tool can read.

The header stays the truth: its chunks are neither moved nor referred to by other means. The copy is hidden by the
header, as an adopted plain file is, and goes as that does: with a delete, a rename or an overwrite, and by collection
once a truncation has made it stale. Before it is written, the header says so, because a file under a name that is used
again could come to life under a tombstone that does not know it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rollingfs import layout, names, transitions
from rollingfs.adoption import shadow
from rollingfs.attempt import Attempt
from rollingfs.backend.contract import FileInfo, Part, PendingUpload
from rollingfs.commit import Committer
from rollingfs.errors import ConflictError, CorruptChunkError, SegmentNotSealedError, SegmentTruncatedError
from rollingfs.fetch import Fetcher
from rollingfs.header import Chunk, Header, Phase, PlainCopy
from rollingfs.headers import Loaded
from rollingfs.lookup import View
from rollingfs.maintenance.steps import Progress, Steps
from rollingfs.runtime import backoff_s

logger = logging.getLogger("rollingfs")

COPY_BYTES_MAX = 5 * 1024**4
"""Of one object, on S3."""
PARTS_MAX = 4_000
"""Of one join. S3 takes 10,000, and the backend cuts 5 TiB into at most 5,120 and one more for each of these."""
READ_BYTES_MAX = 16 * 1024 * 1024
ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a segment, to be copied from a chunk by the store, or else to be read and written."""

    start: int
    end: int
    chunk: Chunk | None = None


@dataclass(frozen=True, slots=True)
class Copied:
    """What writing a plain copy took."""

    size: int = 0
    """Bytes of the file that was written; 0 if it was there already."""
    joined_bytes: int = 0
    """Copied on the server."""
    copied_bytes: int = 0
    """Read and written through this client."""


class PlainCopies:
    """Writes plain copies of sealed segments, and settles those that were never finished."""

    def __init__(self, committer: Committer, fetcher: Fetcher) -> None:
        self.committer = committer
        self.fetcher = fetcher
        self.backend = committer.backend

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
            A file that is not the segment's has its plain name, hidden by the header.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        ValueError
            It is larger than an object can be.
        ConflictError
            Others truncated it, or wrote its plain copy, too often meanwhile.
        """
        steps: Steps | None = None
        for count in range(1, ATTEMPTS_MAX + 1):
            header, old = await self._begin(path, segment)
            segment = header.segment
            steps = steps or Steps(header.size, progress)
            if not header.is_copying:
                steps.reach(steps.total)
                return Copied()
            if old is not None:
                await self._take_away(path, old)
            try:
                copied = await self._write(path, header, steps)
            except (FileNotFoundError, FileExistsError, SegmentTruncatedError) as error:
                await self._check_changed(path, header, error)
            else:
                if copied is not None and await self._confirm(path, header):
                    return copied
            await self.committer.runtime.sleep(backoff_s(count))
        raise ConflictError(
            f"{path}: the segment or its plain copy changed {ATTEMPTS_MAX} times while it was written; try again"
        )

    # -- the header before and after -------------------------------------------------------------------------

    async def _begin(self, path: str, segment: str | None) -> tuple[Header, FileInfo | None]:
        """Commit that the copy is being written; returns the header, and the older file that has to go first."""
        old: FileInfo | None = None

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            nonlocal old
            found = _sealed(base.header, path, segment)
            if found.size > COPY_BYTES_MAX:
                raise ValueError(f"{path} holds {found.size} bytes: at most {COPY_BYTES_MAX} fit one object")
            old = await self._stat(path)
            is_known = old is not None and found.adopted is not None and found.adopted.token == old.token
            if is_known and found.has_plain_copy:
                return None
            is_strange = old is not None and not is_known and not found.is_copying
            # else somebody wrote a copy since the header was read, and this attempt will fail for it
            if is_strange and (await self.committer.headers.load(path)).token == base.token:
                raise FileExistsError(
                    17, "A file that is not the segment's has its plain name; move it away, then try again", path
                )
            now_ms = self.committer.now_ms()
            return replace(found, plain_copy=PlainCopy(found.segment, found.start, now_ms))

        committed = await self.committer.commit(path, step, fresh=True)
        assert committed.header is not None
        return committed.header, old

    async def _confirm(self, path: str, header: Header) -> bool:
        """Commit that the copy is whole, by its token now; False if it is not a copy of what is there now."""
        is_whole = False

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            nonlocal is_whole
            is_whole = False
            found = base.header
            if found is None or found.deleted or found.segment != header.segment or found.start != header.start:
                return None
            # also of a source that is merging, whose tombstone is then to name the copy. Looked at after the header was
            # read: of several writers, whoever commits last has seen the last file
            copy = await self._stat(path)
            if copy is None or copy.size != header.size:
                return None
            is_whole = True
            return replace(found, adopted=shadow(copy), plain_copy=PlainCopy(found.segment, found.start))

        committed = await self.committer.commit(path, step, fresh=True)
        if not is_whole and not _is_live(committed.header, header.segment):
            await self._withdraw(path, header)
        return is_whole

    async def _withdraw(self, path: str, header: Header) -> None:
        """Take away a copy that came too late: the segment was deleted, moved or replaced before."""
        copy = await self._stat(path)
        if copy is not None and copy.size == header.size:
            await self._take_away(path, copy)

    async def settle(self, path: str) -> None:
        """Give up a copy that is being written, or that somebody died at: the next delete or rename takes it along.

        Its writer, if he is alive, notices, and takes away what he has written.
        """
        header = (await self.committer.headers.load(path)).header
        if header is None or not header.is_copying:
            return
        for upload in await self._uploads(path):
            await self.backend.abort_upload(upload)  # so that it cannot become a file after all

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = base.header
            if found is None or not found.is_copying:
                return None
            return replace(found, plain_copy=None, adopted=shadow(await self._stat(path)) or found.adopted)

        await self.committer.commit(path, step)

    # -- the bytes -------------------------------------------------------------------------------------------

    async def _write(self, path: str, header: Header, steps: Steps) -> Copied | None:
        """Write the file; None if the header does not ask for it any more."""
        pieces = await self._pieces(path, header)
        if all(piece.chunk is None for piece in pieces):
            if not await self._is_wanted(path, header):
                return None
            await self._through(path, header, header.start, header.length, path, steps)
            return Copied(header.size, 0, header.size)
        made: list[str] = []
        try:
            parts = [await self._part(path, header, piece, made, steps) for piece in pieces]
            parts = await self._fewer(path, parts, made)
            if not await self._is_wanted(path, header):  # not long before the name is taken
                return None
            await self.backend.join(parts, path)
        finally:
            if made:
                await self.backend.delete(made)
        joined = sum(piece.end - piece.start for piece in pieces if piece.chunk is not None)
        steps.add(joined)
        return Copied(header.size, joined, header.size - joined)

    async def _pieces(self, path: str, header: Header) -> list[Piece]:
        if not self.backend.can_join:
            return [Piece(header.start, header.length)]
        chunks = await self.committer.pages.unfold(path, header.entries)
        retained = [layout.clip(chunk, header.start, chunk.end) for chunk in chunks if chunk.end > header.start]
        kept = [chunk for chunk in retained if isinstance(chunk, Chunk)]
        return plan_pieces(kept, header.start, header.length, self.backend.join_part_bytes_min)

    async def _part(self, path: str, header: Header, piece: Piece, made: list[str], steps: Steps) -> Part:
        """What is to be joined for a piece: a range of its chunk, or a file that is made for it."""
        if piece.chunk is not None:
            begin = piece.chunk.offset + piece.start - piece.chunk.start
            return Part(names.resolve(path, piece.chunk.file), begin, begin + piece.end - piece.start)
        file = f"{names.chunks_folder(path)}/{names.new_chunk_name(piece.start)}"
        made.append(file)
        await self._through(path, header, piece.start, piece.end, file, steps)
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

    async def _through(self, path: str, header: Header, start: int, end: int, target: str, steps: Steps) -> None:
        """Read a range and write it as a file, in bounded memory."""
        view = View(path, header, None)
        upload = await self.backend.open_write(target)
        try:
            while start < end:
                last = min(start + READ_BYTES_MAX, end)
                await upload.write(await self.fetcher.read(view, start, last))
                steps.add(last - start)
                start = last
            await upload.finish()
        except BaseException:
            await upload.abort()
            raise

    # -- what is there ---------------------------------------------------------------------------------------

    async def _check_changed(self, path: str, header: Header, error: Exception) -> None:
        """Explain why the copy could not be written: what changed meanwhile, or a chunk that is missing."""
        now = (await self.committer.headers.load(path)).header
        if not isinstance(error, FileExistsError) and now is not None and now.version == header.version:
            raise CorruptChunkError(f"{path}: a chunk that its header names is missing: {error}") from error
        logger.info("%s: its plain copy is begun again: %s", path, error)

    async def _is_wanted(self, path: str, header: Header) -> bool:
        now = (await self.committer.headers.load(path)).header
        return now is not None and now.is_copying and (now.segment, now.start) == (header.segment, header.start)

    async def _stat(self, path: str) -> FileInfo | None:
        try:
            return await self.backend.stat(path)
        except FileNotFoundError:
            return None

    async def _take_away(self, path: str, info: FileInfo) -> None:
        """Delete the file under the plain name, if it is the one that was seen."""
        if info.token is not None and (await self.committer.abilities(path)).delete_if:
            await self.backend.delete_if(path, info.token)
            return
        now = await self._stat(path)
        if now is not None and now.token == info.token:
            await self.backend.delete([path])

    async def _uploads(self, path: str) -> list[PendingUpload]:
        """The unfinished uploads of the plain copy, as far as the store lets us know."""
        if not self.backend.can_list_uploads:
            return []
        try:
            uploads = await self.backend.list_uploads(names.parent(path))
        except PermissionError as error:
            logger.info("%s: whether its plain copy is being uploaded is not known: %s", path, error)
            return []
        return [upload for upload in uploads if upload.path == path]


def plan_pieces(chunks: Sequence[Chunk], start: int, end: int, part_bytes_min: int) -> list[Piece]:
    """Cut the bytes ``[start, end)`` of a segment into pieces that a store can join, reading and writing few of them.

    Parameters
    ----------
    chunks
        Those that hold them, one after the other; what comes after the last is the inline tail.
    part_bytes_min
        Of all pieces but the last.
    """
    pieces: list[Piece] = []
    loose: int | None = None  # where bytes begin that are too few for a part
    for chunk in chunks:
        start = chunk.start
        if loose is not None:
            start = min(chunk.end, loose + part_bytes_min)
            if chunk.end - start < part_bytes_min and chunk.end != end:
                start = chunk.end  # its rest would be too few bytes again, and so on from chunk to chunk
            if start - loose >= part_bytes_min:
                _add_loose(pieces, loose, start)
                loose = None
        if loose is None and start < chunk.end:
            if chunk.end - start >= part_bytes_min or chunk.end == end:
                pieces.append(Piece(start, chunk.end, chunk))
            else:
                loose = start
        start = chunk.end
    if loose is not None or start < end:
        _add_loose(pieces, start if loose is None else loose, end)
    return pieces


def _add_loose(pieces: list[Piece], start: int, end: int) -> None:
    """Neighbours that are both read and written are one."""
    if pieces and pieces[-1].chunk is None and pieces[-1].end == start:
        start = pieces.pop().start
    pieces.append(Piece(start, end))


def check_sealed(header: Header, path: str) -> None:
    """Refuse a segment that may still grow.

    Raises
    ------
    SegmentNotSealedError
        It is not sealed.
    """
    if not header.sealed:
        raise SegmentNotSealedError(f"{path} is not sealed; seal() it before its plain copy is written")


def _sealed(header: Header | None, path: str, segment: str | None) -> Header:
    found = transitions.live(header, path, segment)
    if found.phase is Phase.MERGING:
        raise transitions.MergeFoundError(path, found)
    check_sealed(found, path)
    return found


def _is_live(header: Header | None, segment: str) -> bool:
    return header is not None and not header.deleted and header.segment == segment
