"""Export: the retained bytes of a segment as a plain file under another name, on its own store or on any other.

The file appears whole. On the segment's own store its bytes are joined by the store, as far as chunks are large enough
to be parts; all other bytes pass through the client, which compares the checksums of the chunks that it reads whole.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from functools import partial

from rollingfs.backend.contract import Backend, Over, Part, Upload, finished
from rollingfs.backend.tier_marks import check_marks
from rollingfs.backend.wrapper import is_same
from rollingfs.errors import FULL, ConflictError, SegmentTruncatedError, not_committed, worded
from rollingfs.format import names, placement
from rollingfs.format.codec import parse_header
from rollingfs.format.header import Chunk, Header
from rollingfs.runtime.meters import Progress, Steps
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.index_pages import LOOKS_MAX
from rollingfs.segment.files.copies import CopyPiece, fill, in_files, plan_pieces
from rollingfs.segment.read.piece_checks import PieceChecks
from rollingfs.segment.read.read_job import missing_chunk
from rollingfs.segment.segment import Segment, names_file

logger = logging.getLogger("rollingfs")

taken = partial(FileExistsError, errno.EEXIST)

OBJECT_BYTES_MAX = 5 * 1024**4
"""Maximum bytes of an object, on S3."""


@value_class
class Exported:
    """The result of an export."""

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


async def export(
    at: At, view: Segment, target: Backend, name: str, *, overwrite: bool = False, progress: Progress | None = None
) -> Exported:
    """Write the bytes that a snapshot retains as a file.

    Parameters
    ----------
    target, name
        A backend, which may be the segment's own, and a path on it.
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
        The name is the segment's own or reserved; or the file would be larger than an object can be.
    SegmentTruncatedError
        Bytes of the snapshot were truncated away during the export. There is no file.
    FileNotFoundError
        The segment is gone. There is no file.
    ConflictError
        A plain file was replaced during the export, or another export to this name has begun. There is no file.
    CorruptChunkError
        A chunk is missing, too short, or fails its checksum. There is no file.
    """
    await _check_target(at, view, target, name, overwrite)
    await clean(target, name)
    upload = partial(target.open_write, name, Over.ANYTHING if overwrite else Over.NOTHING)
    whole, steps, now = CopyPiece(view.start, view.length), Steps(view.size, progress), view
    for _ in range(LOOKS_MAX):
        try:
            joined = await _write(at, now, whole, target, name, await upload(), steps)
        except FileNotFoundError as error:
            now = await _look_again(at, view, now, error)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise not_committed(error, name) from error
        else:
            await _check_shown(target, name)
            steps.reach(view.size)
            return Exported(view.path, name, view.size, joined, view.size - joined, view.length)
    raise ConflictError(f"{view.path}: its chunks were replaced {LOOKS_MAX} times; nothing was written, try again")


async def is_exported(at: At, view: Segment, target: Backend, name: str) -> bool:
    """Return whether a file is as long as the snapshot, and not older than its last change.

    Raises
    ------
    FileExistsError, IsADirectoryError, ValueError
        As `export`: the target cannot be meant.
    """
    await _check_target(at, view, target, name, overwrite=True)
    try:
        info = await target.stat(name)
    except FileNotFoundError:
        return False
    changed_s = view.modified.timestamp() if view.header is not None or view.plain is None else view.plain.modified
    return info.size == view.size and info.modified >= changed_s


async def _check_target(at: At, view: Segment, target: Backend, name: str, overwrite: bool) -> None:
    """Refuse a target before anything is touched."""
    names.check_segment_name(name)
    if names.is_hidden_segment(name):
        raise ValueError(
            f"{name}: the name is reserved for what rollingfs itself keeps in a folder; nothing was written"
        )
    if is_same(target, at.backend) and name == view.path:
        raise ValueError(f"{name} cannot be exported to its own name; nothing was written, choose another name")
    if not target.capability.has_folders and view.size > OBJECT_BYTES_MAX:
        raise ValueError(f"{view.path} holds {view.size} bytes, but one object at most {OBJECT_BYTES_MAX}")
    if await target.is_folder(name):
        raise IsADirectoryError(errno.EISDIR, "The target is a folder; nothing was written", name)
    if await _segment_at(target, name) is not None:
        raise taken("The target is a segment, which would hide a file; nothing was written, choose another name", name)
    if not overwrite:
        with contextlib.suppress(FileNotFoundError):
            await target.stat(name)
            raise taken(f"The target exists; nothing was written, {worded(overwrite=True)} replaces it", name)


async def _check_shown(target: Backend, name: str) -> None:
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
    is_gone = target.capability.can_delete_if and info.token is not None and await target.delete_if(name, info.token)
    left = "nothing of it is left" if is_gone else "its file stays, hidden by the segment"
    raise taken(f"The target became a segment during the export; {left}: choose another name", name)


async def _look_again(at: At, view: Segment, seen: Segment, error: FileNotFoundError) -> Segment:
    """Return the present places of the snapshot's bytes, after a file was missing."""
    await at.headers.load_newer(view.path, seen.token)
    now = await still_there(at, view, view.start)
    if now.header is not None and now.token != seen.token:
        return now
    missing = str(error.filename or "")
    if names.CHUNKS_SUFFIX in missing and names.EXPORT_PREFIX not in missing:
        await check_marks(at.backend, at.runtime, now.header.tiers if now.header is not None else (), view.path)
        raise missing_chunk(missing, view.path) from error
    raise error


async def _write(
    at: At, view: Segment, whole: CopyPiece, target: Backend, name: str, upload: Upload, steps: Steps
) -> int:
    """Write a range of a snapshot as a file, once; return the number of bytes that the store copied."""
    made: list[str] = []
    checks = PieceChecks()
    try:
        async with finished(upload):
            files = await _plan(at, view, whole, target)
            if len(files) == 1:
                await fill(at, view, upload, files[0], checks, steps, None)
            else:  # the store joins at most `parts_max` parts
                for pieces in files:
                    made.append(names.export_path(name))
                    async with finished(await target.open_write(made[-1])) as part:
                        await fill(at, view, part, pieces, checks, steps, None)
                    await upload.copy(Part(made[-1], 0, sum(piece.size for piece in pieces)))
            joined = sum(piece.size for pieces in files for piece in pieces if piece.chunk is not None)
            if not joined:
                await at.fetcher.complete(view, checks)
            await still_there(at, view, whole.start)
    finally:
        if made:
            await target.delete(made)
    return joined


async def _plan(at: At, view: Segment, whole: CopyPiece, target: Backend) -> list[list[CopyPiece]]:
    part_min = target.capability.join_part_bytes_min
    pieces = [whole] if whole.size else []
    if is_same(target, at.backend) and target.capability.can_join and whole.size > part_min:
        chunks = await _chunks(at, view, whole)
        if all(target.tiers.get(chunk.tier, not chunk.tier) for chunk in chunks):  # else the server cannot join
            pieces = plan_pieces(chunks, whole.start, whole.end, part_min)
    return in_files(pieces) if part_min else [pieces]


async def _chunks(at: At, view: Segment, whole: CopyPiece) -> list[Chunk]:
    """Return the parts of chunk files that hold a range; or all of a plain file."""
    if view.header is None:
        return [Chunk(0, view.length, "", None, 0)]
    entries = placement.overlapping(view.header.entries, whole.start, min(whole.end, view.header.tail_start))
    chunks = await at.pages.unfold(view.path, entries)
    return [
        placement.clip(chunk, whole.start, whole.end)
        for chunk in chunks
        if chunk.start < whole.end and whole.start < chunk.end
    ]


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


async def still_there(at: At, view: Segment, start: int) -> Segment:
    """Return the present snapshot, if it is of the same segment and retains the bytes from `start` on.

    Raises
    ------
    FileNotFoundError, ConflictError, SegmentTruncatedError
        It does not. There is no file.
    """
    try:
        now = await at.headers.view(view.path, fresh=True)
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
    """Return the header of the segment that has a name; None for a tombstone."""
    try:
        header = parse_header((await target.read(names.header_path(name))).data, name)
    except FileNotFoundError:
        return None
    return None if header is None or header.deleted else header
