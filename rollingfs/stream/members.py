"""The segments of a stream: their names, their present states, and where to cut them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from rollingfs.errors import CorruptHeaderError, SegmentTruncatedError
from rollingfs.folders.listing import REPORT, OnError, Scan, scan as scan_folder
from rollingfs.format import merging, names
from rollingfs.format.header import Chunk, Header
from rollingfs.format.listing_codec import Row
from rollingfs.format.transitions import missing
from rollingfs.runtime.interpreter import collected_later
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.read.folder_contents import Sorted, is_of_entry
from rollingfs.segment.segment import Segment
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import check_member_name

logger = logging.getLogger("rollingfs")

LOOKS_MAX = 16
"""Maximum number of listings of a folder in which others keep moving segments."""
WINDOW_BYTES_MIN = 64 * 1024
WINDOW_BYTES_MAX = 16 * 1024 * 1024
"""Maximum number of bytes to search for the end of a record; a longer record is kept, and all that is before it."""


View = Segment | Row
"""A segment by its header, or by the row of its folder."""


@value_class
class Listed:
    """The segments of a stream, by name."""

    views: dict[str, View]
    unreadable: dict[str, OSError]
    is_by_rows: bool
    """As of a `Scan`."""
    listed_s: float | None = None
    """The store's time after all looks, if its listing had it."""

    @property
    def snapshots(self) -> dict[str, Segment]:
        """The segments that are known by their headers, not only by a row."""
        return {name: view for name, view in self.views.items() if isinstance(view, Segment)}

    def without_files(self) -> Listed:
        """Return the same without plain files."""
        plain = {name for name, view in self.snapshots.items() if view.header is None}
        return replace(self, views={name: view for name, view in self.views.items() if name not in plain})

    @property
    def names(self) -> list[str]:
        """The names of all segments, sorted."""
        return sorted([*self.views, *self.unreadable])

    def gone(self, asked: Iterable[tuple[str, str | None]]) -> set[tuple[str, str | None]]:
        """Return the missing segments among the given names and incarnations."""
        return {
            (name, incarnation)
            for name, incarnation in asked
            if name not in self.unreadable
            and (name not in self.views or incarnation not in self.views[name].incarnations)
        }


class Members:
    """Finds the segments of a stream.

    Parameters
    ----------
    path
        The stream's folder, as the backend names it. Segments directly in it are the stream's.
    on_error
        Treatment of segments that cannot be read: ``"report"`` goes on with the others, ``"raise"`` raises.
    """

    def __init__(self, client: At, path: str, on_error: OnError = REPORT) -> None:
        self.client = client
        self.ledgers = Ledgers(client)
        self.path = path
        self.on_error = on_error
        self._prefix = f"{path.rstrip('/')}/"
        self.last: Listed | None = None
        """The segments that the last listing showed."""

    def name_of(self, path: str) -> str:
        """Return a segment's name within the stream.

        Raises
        ------
        ValueError
            The path names no segment of this stream.
        """
        folder, _, name = path.rpartition("/")
        if folder != self.path.rstrip("/") or not name:
            raise ValueError(f"{path!r} is not a segment of the stream {self.path!r}")
        return name

    def path_of(self, name: str) -> str:
        """Return the inverse of `name_of`."""
        return self._prefix + name

    def is_reported(self, error: OSError) -> bool:
        """Return whether to go on without the segment that this error is about."""
        return self.on_error == REPORT and is_of_entry(error)

    async def find(self, *, with_rows: bool = True) -> Listed:
        """Return the segments as a listing shows them now.

        Parameters
        ----------
        with_rows
            Whether the folder's rows may stand for headers.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        try:
            scan = await scan_folder(self.client, self.path, self.on_error, with_rows=with_rows)
        except (FileNotFoundError, NotADirectoryError):
            await self.ledgers.check(self.path)
            raise
        found = self._listed(scan)
        self.last = found
        return found

    @collected_later()
    def _listed(self, scan: Scan) -> Listed:
        """Return the segments of a listing, by name."""
        views: dict[str, View] = {self.name_of(path): view for path, view in scan.listed.items()}
        views |= {row.name: row for row in scan.rows.values()}
        errors = {self.name_of(path): error for path, error in scan.errors.items()}
        for name in list(views):
            try:
                check_member_name(name)
            except ValueError as error:  # a file of another tool: no ledger could name it
                del views[name]
                errors[name] = CorruptHeaderError(f"{self.path}: {error}")
        return Listed(views, errors, scan.is_by_rows, scan.listed_s)

    async def find_once(self, named: Iterable[str] = (), *, settles: bool = False) -> Listed:
        """Return the present segments, each with its incarnation. No byte is in two, also while others move segments.

        Each plain file is looked at, because a listing may have no token of it, or another than the look.

        Parameters
        ----------
        named
            More names that may be segments here, which a listing may have missed.
        settles
            Finish or undo moves that were broken off, and wait for the others (see `Merges.resolve`).
        """
        found = await self.find()
        for _ in range(LOOKS_MAX if settles else 0):
            if not await self._settle(found):
                break
            found = await self.find()
        count = len(found.views)
        plain = [name for name, view in found.snapshots.items() if view.header is None]
        await self._look_again(found, {*plain, *named} - {*found.views.keys() - plain, *found.unreadable})
        if not found.is_by_rows or plain or len(found.views) != count or self.client.backend.capability.has_folders:
            found = await self._confirmed(found)
        await self._leave_out_taken(found)
        return found

    async def _confirmed(self, found: Listed) -> Listed:
        """Return the found segments, without segments that were moved during the look.

        It is not needed where rows stand for all, and were written before a store listed the names, in order: the
        target of a later move has another token, and of an earlier one the source has.
        """
        # A header that was read before a move and its target's that was read after it show the same bytes. So each
        # segment must be there when all are read; what others have appended since may be left out.
        seen = dict(found.views)
        listing = await self.client.backend.list(self.path)
        tokens = {self.name_of(path): token for path, token in Sorted.of(listing.entries).headers.items()}
        changed = {name for name, view in seen.items() if _token(view) is None or tokens.get(name) != _token(view)}
        plain = {name for name, view in found.snapshots.items() if view.header is None}
        await self._look_again(found, {name for name in changed if name not in plain or name in tokens})
        for name, view in found.views.items():
            if name in seen and seen[name].incarnations == view.incarnations:
                found.views[name] = seen[name]
        return replace(found, listed_s=listing.now)

    async def _settle(self, found: Listed) -> bool:
        """Settle the moves whose sources were found; returns whether any was settled."""

        async def one(path: str, header: Header) -> bool:
            try:
                await self.client.commits.merges.resolve(path, header)
            except OSError as error:
                if not self.is_reported(error):
                    raise
                logger.warning("%s: a concat or rename of it cannot be finished or undone: %s", path, error)
                return False
            return True

        calls = [partial(one, self.path_of(name), header) for name, header in _sources(found)]
        return any(await self.client.contents.gather(calls))

    async def _look_again(self, found: Listed, asked: Iterable[str]) -> None:
        """Look at segments by their names, whatever a listing has."""
        paths = {name: self.path_of(name) for name in asked}
        looks = await self.client.contents.gather([partial(self._look_if_there, path) for path in paths.values()])
        for name, seen in zip(paths, looks, strict=True):
            found.views.pop(name, None)
            if isinstance(seen, Segment):
                found.views[name] = seen
            elif seen is not None:
                found.unreadable[name] = seen

    async def _leave_out_taken(self, found: Listed) -> None:
        """Leave out the sources whose bytes the target of a move has already."""
        marked = _sources(found)
        taken = await self.client.contents.gather([partial(self._is_taken, header) for _, header in marked])
        for (name, _), is_taken in zip(marked, taken, strict=True):
            if is_taken:
                del found.views[name]

    async def _is_taken(self, header: Header) -> bool:
        merge = header.merge
        assert merge is not None
        path = names.find(self.path, merge.target)
        if path is None:
            return False
        try:
            target = (await self.client.headers.load(path)).header
        except OSError as error:
            if not self.is_reported(error):
                raise
            return False  # then nobody counts the target's bytes
        return target is not None and merging.has_merged(target, merge)

    async def times(self, found: Listed) -> tuple[float, float]:
        """Return the present time, and a time by which all found bytes had been written, in seconds since 1970.

        A store's own clock decides; its dates may be whole seconds, so the second time is the end of the second. The
        clock of a client may be slower than the writers' clocks: no byte is older than its segment's date.
        """
        store, backend = self.client, self.client.backend
        if backend.capability.has_clock:
            now = found.listed_s or await store.now_s(names.ledger_path(self.path))
            return now, now + backend.capability.date_step_s
        now = await store.now_s(names.ledger_path(self.path))
        return now, max([now, *(_written_s(view) for view in found.views.values())])

    async def look(self, path: str) -> Segment | OSError:
        """Return a segment as it is now, or why it cannot be read.

        Raises
        ------
        FileNotFoundError
            It is not there.
        """
        try:
            return await self.client.headers.view(path, fresh=True)
        except OSError as error:
            if not self.is_reported(error):
                raise
            return error

    async def _look_if_there(self, path: str) -> Segment | OSError | None:
        try:
            return await self.look(path)
        except FileNotFoundError:
            return None

    def warn(self, unreadable: Mapping[str, OSError]) -> None:
        """Name in the log the segments that an operation leaves out."""
        for name, error in unreadable.items():
            logger.warning("%s: the segment %s is left out, because it cannot be read: %s", self.path, name, error)

    def reasons(self, unreadable: Mapping[str, OSError]) -> dict[str, str]:
        """Return why segments cannot be read, by path."""
        return {self.path_of(name): str(error) for name, error in unreadable.items()}


def _sources(found: Listed) -> list[tuple[str, Header]]:
    """Return the segments that are being moved."""
    return [(name, view.header) for name, view in found.snapshots.items() if view.header and view.header.merge]


def _token(view: View) -> str | None:
    return view.token if isinstance(view, Row) or view.header is not None else None


def _written_s(view: View) -> float:
    """Return a time by which the newest bytes of a segment were written, by its own dates, in seconds since 1970."""
    if isinstance(view, Row):
        return view.modified_ms / 1000
    return view.modified.timestamp() if view.header is None else (view.header.written_ms or 0) / 1000


# -- offsets to cut at: the end, a point in time, the end of a record ------------------------------------------


async def take_cut(
    members: Members, views: Mapping[str, View], at: float | None, align: bytes | None, now: float
) -> tuple[StreamCut, dict[str, OSError]]:
    """Return a cut of segments, by name, and the unreadable segments that it leaves out.

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
    found |= zip(calls, await members.client.contents.gather(calls.values()), strict=True)
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
    """Return the header, as it is now, of a segment that was seen."""
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
    """Return the offset of a segment before which all bytes were written by a time (seconds since 1970)."""
    if view.header is not None:
        return await _offset_in(client, view.path, view.header, round(at * 1000))
    assert view.plain is not None
    # its date may be a whole second; its bytes may have come at the end of it
    return view.plain.size if view.plain.modified + client.backend.capability.date_step_s <= at else 0


async def _offset_in(client: At, path: str, header: Header, at_ms: int) -> int:
    """Return the end of the leading chunks that were all written by then.

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
