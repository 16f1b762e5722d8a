"""Export: the retained bytes of a segment as one plain file under another name, on its own store or on any other.

The file appears whole. On the segment's own store its bytes are joined by the store, as far as chunks are large enough
to be parts; all other bytes pass through the client, which compares the checksums of the chunks that it reads whole.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Sequence
from functools import partial

from rollingfs.backend.contract import Backend, Over, Part, Upload, finished
from rollingfs.backend.metered import is_same
from rollingfs.backend.tier_marks import check_marks
from rollingfs.commit.index_pages import LOOKS_MAX
from rollingfs.commit.shadowing import names_file
from rollingfs.errors import ConflictError, SegmentTruncatedError
from rollingfs.format import names, placement
from rollingfs.format.codec import parse_header
from rollingfs.format.header import Chunk, Header
from rollingfs.maintenance.passing import pass_through
from rollingfs.maintenance.pieces import Piece, in_files, plan_pieces
from rollingfs.maintenance.steps import Progress, Steps
from rollingfs.read.piece_checks import PieceChecks
from rollingfs.read.ranges import Fetcher
from rollingfs.read.read_job import missing_chunk
from rollingfs.read.snapshot import Snapshot
from rollingfs.runtime.values import value_class

logger = logging.getLogger("rollingfs")

OBJECT_BYTES_MAX = 5 * 1024**4
"""Maximum bytes of one object, on S3."""


@value_class
class Exported:
    """What an export wrote."""

    path: str
    target: str
    """Path on its store."""
    size: int
    """Bytes of the file."""
    joined_bytes: int
    """Copied on the server, or within the kernel."""
    copied_bytes: int
    """Read and written through this client."""
    length: int
    """End offset of the segment when the export began: the file ends there."""


class Exporter:
    """Writes segments and plain files of one backend as plain files."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self.backend = fetcher.backend

    async def export(
        self, view: Snapshot, target: Backend, name: str, *, overwrite: bool = False, progress: Progress | None = None
    ) -> Exported:
        """Write what a snapshot retains as one file.

        Parameters
        ----------
        target, name
            Where: a backend, which may be that of the segment, and a path of it.
        overwrite
            Replace a file that is there.
        progress
            Takes the number of bytes that were done since the last call.

        Raises
        ------
        FileExistsError
            A file is there, and `overwrite` is false; or a segment is there.
        IsADirectoryError
            A folder is there.
        ValueError
            The name is the segment's own, or one that is reserved; or the file would be larger than an object can be.
        SegmentTruncatedError
            Bytes of the snapshot were truncated away meanwhile. There is no file.
        FileNotFoundError
            The segment is gone. There is no file.
        ConflictError
            A plain file was replaced meanwhile, or another export to this name has begun. There is no file.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum. There is no file.
        """
        await self._check_target(view, target, name, overwrite)
        await clean(target, name)
        upload = partial(target.open_write, name, Over.ANYTHING if overwrite else Over.NOTHING)
        steps, now = Steps(view.size, progress), view
        for _ in range(LOOKS_MAX):
            try:
                run = _Run(self.fetcher, now, view.start, view.length, steps)
                joined = await run.write(target, name, await upload())
            except FileNotFoundError as error:
                now = await self._look_again(view, now, error)
            else:
                await self._check_shown(target, name)
                steps.reach(view.size)
                return Exported(view.path, name, view.size, joined, view.size - joined, view.length)
        raise ConflictError(f"{view.path}: its chunks were replaced {LOOKS_MAX} times; nothing was written, try again")

    async def is_done(self, view: Snapshot, target: Backend, name: str) -> bool:
        """Whether a file is there that is as long as the snapshot, and not older than its last change.

        Raises
        ------
        FileExistsError, IsADirectoryError, ValueError
            As `export`: the target cannot be meant.
        """
        await self._check_target(view, target, name, overwrite=True)
        try:
            info = await target.stat(name)
        except FileNotFoundError:
            return False
        changed_s = view.plain.modified if view.plain is not None else 0.0
        if view.header is not None:
            changed_s = view.header.modified_ms / 1000
        return info.size == view.size and info.modified >= changed_s

    async def _check_target(self, view: Snapshot, target: Backend, name: str, overwrite: bool) -> None:
        """Refuse a target before anything is touched."""
        names.check_segment_name(name)
        if names.is_hidden_segment(name):
            raise ValueError(
                f"{name}: the name is reserved for what rollingfs itself keeps in a folder; nothing was written"
            )
        if is_same(target, self.backend) and name == view.path:
            raise ValueError(f"{name} cannot be exported to its own name; nothing was written, choose another name")
        if not target.capability.has_folders and view.size > OBJECT_BYTES_MAX:
            raise ValueError(f"{view.path} holds {view.size} bytes, but one object at most {OBJECT_BYTES_MAX}")
        if await target.is_folder(name):
            raise IsADirectoryError(errno.EISDIR, "The target is a folder; nothing was written", name)
        if await _segment_at(target, name) is not None:
            why = "The target is a segment, which would hide the file; nothing was written, choose another name"
            raise FileExistsError(errno.EEXIST, why, name)
        if not overwrite and await _exists(target, name):
            raise FileExistsError(
                errno.EEXIST, "The target exists; nothing was written, overwrite=True replaces it", name
            )

    async def _check_shown(self, target: Backend, name: str) -> None:
        """Take back a file that a segment hides which came since the first look.

        Raises
        ------
        FileExistsError
            There is such a segment.
        """
        header = await _segment_at(target, name)
        if header is None:
            return
        info = await target.stat(name)
        if names_file(header, info):
            return  # the segment is made of this file, which was seen before
        is_gone = (
            target.capability.can_delete_if and info.token is not None and await target.delete_if(name, info.token)
        )
        left = "nothing of it is left" if is_gone else "its file stays, hidden by the segment"
        why = f"The target became a segment during the export; {left}: choose another name"
        raise FileExistsError(errno.EEXIST, why, name)

    async def _look_again(self, view: Snapshot, seen: Snapshot, error: FileNotFoundError) -> Snapshot:
        """The snapshot's bytes as they lie now, after a file was missing."""
        now = await still_there(self.fetcher, view)
        if now.header is not None and now.token != seen.token:
            return now
        missing = str(error.filename or "")
        if names.CHUNKS_SUFFIX in missing and names.EXPORT_PREFIX not in missing:
            await check_marks(
                self.backend, self.fetcher.runtime, now.header.tiers if now.header is not None else (), view.path
            )
            raise missing_chunk(missing, view.path) from error
        raise error


class _Run:
    """One attempt to write the bytes ``[start, end)`` of a snapshot."""

    def __init__(self, fetcher: Fetcher, view: Snapshot, start: int, end: int, steps: Steps) -> None:
        self.fetcher = fetcher
        self.view = view
        self.start = start
        self.end = end
        self.steps = steps
        self.checks = PieceChecks()
        self.joined = 0

    async def write(self, target: Backend, name: str, upload: Upload) -> int:
        """Write the file; returns how many bytes the store copied."""
        made: list[str] = []
        try:
            async with finished(upload):
                files = await self._plan(target)
                if len(files) == 1:
                    await self._fill(upload, files[0])
                else:  # the store joins at most `parts_max` parts
                    for pieces in files:
                        await upload.copy(await self._part_file(target, name, pieces, made))
                if not self.joined:
                    await self.fetcher.complete(self.view, self.checks)
                await still_there(self.fetcher, self.view, self.start)
        finally:
            if made:
                await target.delete(made)
        return self.joined

    async def _plan(self, target: Backend) -> list[list[Piece]]:
        part_min = target.capability.join_part_bytes_min
        pieces = [Piece(self.start, self.end)] if self.end > self.start else []
        if is_same(target, self.fetcher.backend) and target.capability.can_join and self.end - self.start > part_min:
            chunks = await self._chunks()
            if all(target.tiers.get(chunk.tier, not chunk.tier) for chunk in chunks):  # else the server cannot join
                pieces = plan_pieces(chunks, self.start, self.end, part_min)
        return in_files(pieces) if part_min else [pieces]

    async def _chunks(self) -> list[Chunk]:
        """The parts of chunk files that hold the bytes; of a plain file, which is none, all of it."""
        view = self.view
        if view.header is None:
            return [Chunk(0, view.length, "", None, 0)]
        entries = placement.overlapping(view.header.entries, self.start, min(self.end, view.header.tail_start))
        chunks = await self.fetcher.pages.unfold(view.path, entries)
        clipped = [
            placement.clip(chunk, self.start, self.end)
            for chunk in chunks
            if chunk.start < self.end and self.start < chunk.end
        ]
        return [chunk for chunk in clipped if isinstance(chunk, Chunk)]

    async def _part_file(self, target: Backend, name: str, pieces: Sequence[Piece], made: list[str]) -> Part:
        """Write some pieces as a temporary file."""
        made.append(names.export_path(name))
        async with finished(await target.open_write(made[-1])) as upload:
            await self._fill(upload, pieces)
        return Part(made[-1], 0, sum(piece.size for piece in pieces))

    async def _fill(self, upload: Upload, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.chunk is None:
                await pass_through(self.fetcher, self.view, piece.start, piece.end, upload, self.checks, self.steps)
            else:
                await upload.copy(self._part(piece, piece.chunk))
                self.joined += piece.size
                self.steps.add(piece.size)

    def _part(self, piece: Piece, chunk: Chunk) -> Part:
        view = self.view
        first = chunk.offset + piece.start - chunk.start
        if view.header is None:
            return Part(view.path, first, first + piece.size, view.token)
        return Part(names.locate(view.path, chunk.file, chunk.tier), first, first + piece.size)


async def clean(target: Backend, name: str) -> None:
    """Remove the remains of dead exports to a name: unfinished uploads, and temporary files."""
    try:
        for pending in await target.list_uploads(names.parent(name), name.rpartition("/")[2]):
            logger.info("%s: aborting the upload of an export that did not end", name)
            await target.abort_upload(pending)
    except PermissionError as error:
        logger.info("%s: what earlier exports have left cannot be seen or aborted: %s", name, error)
    folder = names.temporary_folder(name)
    try:
        entries = (await target.list(folder)).entries
    except FileNotFoundError:
        return
    left = [info.path for info in entries if info.path.startswith(f"{folder}/{names.EXPORT_PREFIX}")]
    if left:
        logger.info("%s: deleting %d temporary files of exports that did not end", name, len(left))
        await target.delete(left)
    if len(left) == len(entries) and target.capability.has_folders:
        with contextlib.suppress(OSError):  # another client has begun to write in it, or has removed it
            await target.remove_folder(folder)


async def still_there(fetcher: Fetcher, view: Snapshot, start: int | None = None) -> Snapshot:
    """The segment as it is now, if it still is the one of a snapshot and retains its bytes (from `start` on).

    Raises
    ------
    FileNotFoundError, ConflictError, SegmentTruncatedError
        It does not. There is no file.
    """
    start = view.start if start is None else start
    try:
        now = await fetcher.lookup.view(view.path, fresh=True)
    except FileNotFoundError as error:
        why = "The segment was deleted or renamed while it was exported; nothing was written"
        raise FileNotFoundError(errno.ENOENT, why, view.path) from error
    if view.incarnations and not set(view.incarnations) & set(now.incarnations):
        raise ConflictError(f"{view.path} was replaced while it was exported; nothing was written, export it again")
    if now.start > start:
        raise SegmentTruncatedError(
            f"{view.path} was truncated to begin at {now.start} while its bytes from {start} on were exported; "
            "nothing was written, export it again"
        )
    return now


async def _segment_at(target: Backend, name: str) -> Header | None:
    """The header of the segment that has a name; None for a tombstone."""
    try:
        header = parse_header((await target.read(names.header_path(name))).data, name)
    except FileNotFoundError:
        return None
    return None if header is None or header.deleted else header


async def _exists(target: Backend, name: str) -> bool:
    try:
        await target.stat(name)
    except FileNotFoundError:
        return False
    return True
