"""Copies and renames of files, also of files whose names leave no room for `$header`.

On a disk, names of 249 to 255 bytes are such names. A plain file of such a name cannot become a segment.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator

from rollingfs.errors import ConflictError
from rollingfs.segment.at import At
from rollingfs.segment.files.adopt import ADOPTIONS_MAX, remove_plain
from rollingfs.segment.files.intakes import replacement
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.create import overwrite as overwrite_segment
from rollingfs.segment.verbs.rename import rename as rename_segment
from rollingfs.segment.write.ingest import PIECE_BYTES


async def copy(client: At, view: Segment, parts: AsyncIterator[bytes], target: str, *, overwrite: bool = True) -> None:
    """Give `target` the bytes of a snapshot, in one commit.

    Parameters
    ----------
    parts
        These bytes.
    overwrite
        Replace `target`; otherwise a taken name refuses the copy (`FileExistsError`).
    """
    try:
        intake = replacement(client, target, create_only=not overwrite)
        try:
            async for data in parts:
                await intake.take(data)
        except BaseException:
            await intake.abort()
            raise
        await overwrite_segment(client, target, intake, create_only=not overwrite)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        from rollingfs.segment.verbs.export import export

        await export(client, view, client.backend, target, overwrite=overwrite)


async def rename(client: At, source: str, target: str, *, overwrite: bool) -> None:
    """Give a segment or plain file another name.

    A plain file that cannot become a segment is copied, then deleted if it still is the file that was copied.

    Raises
    ------
    FileNotFoundError, FileExistsError, FencedError, FolderOccupiedError
        As the verb `rename` of a segment.
    ConflictError
        Other programs keep changing a plain file: it is still there, and `target` has a copy of what it was.
    """
    try:
        await rename_segment(client, source, target, overwrite=overwrite)
        return
    except OSError as error:
        view = await client.lookup.view(source, fresh=True) if error.errno == errno.ENAMETOOLONG else None
        if view is None or view.plain is None:
            raise
    for _ in range(ADOPTIONS_MAX if overwrite else 1):
        view = await client.lookup.view(source, fresh=True)
        await copy(client, view, _parts(client, view), target, overwrite=overwrite)
        if await remove_plain(client, source, view.incarnations[0]):
            return
    raise ConflictError(f"{source}: the plain file changes too often to be moved; it is still there, and copied")


async def _parts(client: At, view: Segment) -> AsyncIterator[bytes]:
    for start in range(view.start, view.length, PIECE_BYTES):
        yield await client.fetcher.read(view, start, min(start + PIECE_BYTES, view.length))
