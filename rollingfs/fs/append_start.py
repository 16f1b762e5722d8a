"""The start of a file for writing: an empty file, or the end of a segment that it appends to."""

from __future__ import annotations

from rollingfs.errors import SegmentSealedError
from rollingfs.format import transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import Guard
from rollingfs.fs.binding import Binding
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.verbs.change import acquire
from rollingfs.segment.verbs.create import create


@value_class
class Start:
    """Begin of a file for writing."""

    is_there: bool = False
    """Whether a segment or plain file exists."""
    position: int = 0
    """The number of bytes that it retains."""
    segment: str | None = None
    """The incarnation that is appended to; None for a plain file, and for a missing segment."""
    epoch: int | None = None
    """The epoch of an exclusive writer."""
    first: int = 0
    """The segment offset of the first retained byte."""


async def check_absent(client: At, path: str) -> None:
    """Refuse to create a file where a segment, a plain file or a folder exists.

    Raises
    ------
    FileExistsError
        There is a segment or a plain file.
    FolderOccupiedError
        There is a folder with something in it.
    """
    try:
        await client.headers.view(path, fresh=True)
    except FileNotFoundError:
        await client.contents.check_no_folder(path)
        return
    raise transitions.exists(path)


async def find_end(at: Binding, owner: str | None) -> Start:
    """The end that a file appends to; with an owner, the segment is created if it is missing, and acquired.

    Raises
    ------
    SegmentSealedError
        The segment is sealed.
    FencedError
        Another holds the segment exclusively, and no owner is given.
    FolderOccupiedError
        There is a folder with something in it.
    """
    client, path = at.client, at.path
    try:
        view = await client.headers.view(path, fresh=True)
    except FileNotFoundError:
        if owner is None:
            await client.contents.check_no_folder(path)
            return Start()
        header, position, is_there, first = await _created(at), 0, False, 0
    else:
        position, is_there, first = view.size, True, view.start
        if view.header is None and owner is None:
            return Start(is_there, position)
        header = view.header or await at.header()
    if owner is None and header.phase is not Phase.MERGING:
        transitions.check(header, Guard(), path)
    if header.sealed:
        raise SegmentSealedError(
            f"{path} is sealed at length {header.length}; it takes no more bytes, so nothing was written"
        )
    if owner is None:
        return Start(is_there, position, header.segment, first=first)
    header = await acquire(client, path, owner)
    return Start(True, header.size, header.segment, header.epoch, header.start)


async def _created(at: Binding) -> Header:
    try:
        return await create(at.client, at.path)
    except FileExistsError:
        return await at.header()
