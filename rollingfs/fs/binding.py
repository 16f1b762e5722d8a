"""`Binding`: the segment that a verb is for, any segment at a path, or the incarnation that a handle is bound to."""

from __future__ import annotations

from rollingfs.errors import BadOffsetError, SegmentSealedError, SegmentTruncatedError
from rollingfs.format import transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.fs import arguments
from rollingfs.fs.arguments import Attrs
from rollingfs.fs.core import Core
from rollingfs.runtime.values import cached
from rollingfs.segment.at import At
from rollingfs.segment.files.adopt import adopt
from rollingfs.segment.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.segment.read.revalidate import Current, read_current
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.change import acquire
from rollingfs.segment.verbs.create import create


class Binding(Current):
    """The difference of verbs by path and by handle: the guard of a commit, and the state after it.

    By path it is unbound: a verb changes any segment there. A handle's binding guards every commit by the
    incarnation of its snapshot, and by the epoch that the handle holds; its verbs keep the snapshot up to date.

    Parameters
    ----------
    place
        The path of any segment, to be changed; or the segment that the handle is opened on.
    held
        The epoch that the handle holds, if it is exclusive.

    Raises
    ------
    ValueError, IsADirectoryError
        A segment cannot have this path.
    """

    def __init__(self, core: Core, place: str | Segment, held: int | None = None) -> None:
        self.core, self.client, self.held = core, core.client, held
        if isinstance(place, Segment):
            super().__init__(self.client.headers, place.path, place, is_bound=True)
        else:
            self.path, self._headers = core.to_write(place), core.client.headers

    @cached
    def _checks(self) -> PieceChecks:
        return PieceChecks(RUNS_MAX)

    @property
    def segment(self) -> str | None:
        """The id of the incarnation that is meant; None for whatever is there."""
        # also for a plain file: a commit is meant for the file that was seen, not for another that gets its name
        return next(iter(self.known.incarnations), None) if self.is_bound else None

    def guard(self, expected_offset: int | None = None, expected_attrs: Attrs = None) -> Guard:
        """Return the condition for a commit.

        Raises
        ------
        TypeError
            A condition is of a wrong kind.
        """
        if expected_offset is None and expected_attrs is None:
            return NO_GUARD if not self.is_bound else Guard(self.segment, self.held)
        if expected_offset is not None:
            arguments.check_offset(self.path, expected_offset, "expected_offset")
        arguments.check_attrs(self.path, expected_attrs, "expected_attrs")
        return Guard(self.segment, self.held, expected_offset, expected_attrs or {})

    # -- before and after a commit -------------------------------------------------------------------------

    async def bind(self) -> None:
        """Adopt a handle's plain file before a verb other than append, so that the verb changes the adopted segment.

        Raises
        ------
        FileNotFoundError
            The plain file is gone, or another has its name.
        """
        if not self.is_bound or self.known.header is not None:
            return
        meant = self.segment
        if not await adopt(self.client, self.path, meant):
            return  # the verb itself finds the present file
        loaded = await self.client.headers.load(self.path)
        transitions.check_incarnation(transitions.live(loaded.header, self.path), meant, self.path)
        self.snapshot = loaded

    async def header(self) -> Header:
        """Return the newest header; a plain file is adopted.

        Raises
        ------
        FileNotFoundError
            There is no such segment or file.
        """
        if not self.is_bound:
            if not await adopt(self.client, self.path):
                raise transitions.missing(self.path)
            return transitions.live((await self.client.headers.load(self.path)).header, self.path)
        await self.bind()
        header = (await self.look()).header
        assert header is not None
        return header

    # -- what only a handle does ---------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Take a new snapshot.

        Raises
        ------
        FileNotFoundError
            The segment is gone, or another has its name.
        """
        if self.is_bound:
            await self.look()

    async def read(self, start: int, end: int, verify: bool = False) -> bytes:
        """Return all bytes ``[start, end)``, in segment offsets.

        A chunk that was read from end to end, by a call or by several of this handle, is verified.

        Parameters
        ----------
        verify
            Read and verify whole chunks, also where only a part is wanted.

        Raises
        ------
        SegmentTruncatedError
            `start` is before the segment's; the message has the range that is there.
        BadOffsetError
            The range is negative, or ends beyond the present end of the segment.
        FileNotFoundError
            The segment is gone, or another has its name.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        if start < 0 or end < start:
            raise BadOffsetError(f"{self.path}: there are no bytes {start} to {end}; ask for 0 <= start <= end")

        def span(snapshot: Segment) -> tuple[int, int]:
            if snapshot.start <= start and end <= snapshot.length:
                return start, end
            if start < snapshot.start:
                raise SegmentTruncatedError(
                    f"{self.path}: bytes {start} to {end} were truncated away; {snapshot.extent}"
                )
            raise BadOffsetError(f"{self.path}: there are no bytes {start} to {end}; {snapshot.extent}")

        began = self.known
        current = Current(
            self.client.headers, self.path, began, is_bound=True
        )  # of this call alone: a look of another thread may be too old for it
        current.believe()
        checks = None if verify else self._checks
        [answer] = await read_current(self.client.fetcher, [(current, span)], checks=checks, verify=verify)
        if end > began.length:  # else the caller goes on from the snapshot: its length may be an expected offset
            self.snapshot = current.snapshot
        if isinstance(answer, Exception):
            raise answer
        return answer


# -- the start of a file for writing ---------------------------------------------------------------------------


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


async def find_end(at: Binding, owner: str | None) -> Segment | None:
    """Return the segment or plain file that a file appends to, or None.

    With an owner, the segment is created if it is missing, and acquired.

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
            return None
        header = await _created(at)
    else:
        if view.header is None and owner is None:
            return view
        header = view.header or await at.header()
    if owner is None and header.phase is not Phase.MERGING:
        transitions.check(header, Guard(), path)
    if header.sealed:
        raise SegmentSealedError(
            f"{path} is sealed at length {header.length}; it takes no more bytes, so nothing was written"
        )
    if owner is not None:
        view = Segment(path, await acquire(client, path, owner))
    return view


async def _created(at: Binding) -> Header:
    try:
        return await create(at.client, at.path)
    except FileExistsError:
        return await at.header()
