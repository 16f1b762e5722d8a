"""Find offsets to cut segments at: their end, a point in time, the end of a record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rollingfs.errors import SegmentTruncatedError
from rollingfs.folders.listing import REPORT
from rollingfs.format.header import Chunk, Header
from rollingfs.format.listing_codec import Row
from rollingfs.format.transitions import missing
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.members import Members, View

WINDOW_BYTES_MIN = 64 * 1024
WINDOW_BYTES_MAX = 16 * 1024 * 1024
"""Maximum number of bytes to search for the end of a record; a longer record is kept, and all that is before it."""


async def take_cut(
    members: Members, views: Mapping[str, View], at: float | None, align: bytes | None, now: float
) -> tuple[StreamCut, dict[str, OSError]]:
    """A cut of segments, by name, and the unreadable segments that it leaves out.

    Parameters
    ----------
    at
        Cut before everything that may have been written after this time (seconds since 1970), as far as the
        chunks' times show; by default at the end.
    now
        A time by which all bytes of the views had been written.
    align
        Cut after the last of these delimiters up to the offset found so. Without such a delimiter
        within `WINDOW_BYTES_MAX`, cut at the start.
    """
    ends = at is None and align is None
    calls = {name: partial(_offset_or_error, members, view, at, align) for name, view in views.items() if not ends}
    found: dict[str, int | OSError] = {name: view.length for name, view in views.items()} if ends else {}
    found |= zip(calls, await members.listings.gather(calls.values()), strict=True)
    failed = {name: offset for name, offset in found.items() if isinstance(offset, OSError)}
    members.warn(failed)
    offsets = {name: offset for name, offset in found.items() if not isinstance(offset, OSError)}
    when = now if at is None else at
    incarnations = {name: known[0] for name in offsets if (known := views[name].incarnations)}
    return StreamCut(offsets, when, sum(views[name].size for name in offsets), incarnations), failed


async def _offset_or_error(members: Members, view: View, at: float | None, align: bytes | None) -> int | OSError:
    """Return the offset to cut a segment at, or the error of a page or chunk that is needed for it."""
    try:
        return await _offset(members, view, at, align)
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError) and members.on_error == REPORT
        if not (is_gone or members.is_reported(error)):
            raise
        return error


async def _offset(members: Members, view: View, at: float | None, align: bytes | None) -> int:
    end = view.length
    if isinstance(view, Row):
        if align is None and (at is None or view.modified_ms <= round(at * 1000)):
            return end
        view = await _same(members, members.path_of(view.name), view)
    offset = end if at is None else min(await offset_at(members.client, view, at), end)
    return offset if align is None else min(await _aligned(members, view, offset, align), end)


async def _same(members: Members, path: str, seen: View) -> Segment:
    """The header, as it is now, of a segment that was seen."""
    view = await members.client.headers.view(path, fresh=True)
    if view.incarnations != seen.incarnations:
        raise missing(path)
    return view


async def _aligned(members: Members, view: Segment, offset: int, delimiter: bytes) -> int:
    if not delimiter:
        raise ValueError("a delimiter to align to must not be empty")
    window = WINDOW_BYTES_MIN
    while offset > view.start:
        first = max(view.start, offset - window)
        try:
            data = await members.client.fetcher.read(view, first, offset)
        except SegmentTruncatedError:  # somebody has trimmed it since the look
            view = await _same(members, view.path, view)
            continue
        found = data.rfind(delimiter)
        if found >= 0:
            return first + found + len(delimiter)
        if first == view.start or window >= WINDOW_BYTES_MAX:
            break
        window *= 16
    return view.start


async def offset_at(client: At, view: Segment, at: float) -> int:
    """The offset of a segment before which all bytes were written by a time (seconds since 1970)."""
    if view.header is not None:
        return await _offset_in(client, view.path, view.header, round(at * 1000))
    assert view.plain is not None
    # its date may be a whole second; its bytes may have come at the end of it
    return view.plain.size if view.plain.modified + client.backend.capability.date_step_s <= at else 0


async def _offset_in(client: At, path: str, header: Header, at_ms: int) -> int:
    """The end of the leading chunks that were all written by then.

    A chunk has the time of its newest byte. So the first newer chunk may begin with older bytes, which stay.
    The inline tail counts as older if its last byte is, or if no commit came since.
    """
    if header.modified_ms <= at_ms or (header.written_ms is not None and header.written_ms <= at_ms):
        return header.length
    offset = header.start
    for entry in header.entries:
        chunks = [entry] if isinstance(entry, Chunk) else await client.pages.chunks(path, entry)
        for chunk in chunks:
            # an adopted plain file, which has no checksum, has the date of a store
            step_s = client.backend.capability.date_step_s if chunk.crc32c is None else 0
            if chunk.at_ms + step_s * 1000 > at_ms:
                return offset
            offset = max(offset, chunk.end)
    return offset
