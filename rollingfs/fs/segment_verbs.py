"""What a handle does with its segment, as coroutines; `Segment` has a blocking and an awaited form of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.client import Client
from rollingfs.commit.chunk_files import Staged
from rollingfs.errors import BadOffsetError, SegmentTruncatedError
from rollingfs.format import transitions
from rollingfs.format.header import Header
from rollingfs.format.transitions import Guard
from rollingfs.fs import arguments
from rollingfs.fs.progress import begin
from rollingfs.maintenance import Collected
from rollingfs.maintenance.consolidate import READERS_GRACE_S, Consolidated, Consolidator
from rollingfs.maintenance.steps import Progress
from rollingfs.maintenance.verify import Verified, Verifier
from rollingfs.policy import parse_seconds
from rollingfs.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.read.revalidate import Current, RevalidatingReads
from rollingfs.read.snapshot import Snapshot
from rollingfs.write.ingest import Data, Intake

if TYPE_CHECKING:
    from rollingfs.fs.segment_handle import Segment


class SegmentVerbs:
    """The verbs of one handle, and the snapshot that they keep up to date.

    Parameters
    ----------
    snapshot
        What the handle is opened on; it is bound to this incarnation.
    strip
        Makes the backend's own path of the paths that `concat` is given.
    handle
        Makes another handle, which holds an epoch.
    held
        The epoch that this handle holds, if it is exclusive.
    """

    def __init__(
        self,
        client: Client,
        snapshot: Snapshot,
        strip: Callable[[str], str],
        handle: Callable[[Snapshot, int], Segment],
        held: int | None = None,
    ) -> None:
        self.path = snapshot.path
        self.held = held
        self._client = client
        self._new_current = partial(Current, client.lookup, snapshot.path, is_bound=True)
        self._current = self._new_current(snapshot)
        self._strip = strip
        self._handle = handle
        self._checks = PieceChecks(RUNS_MAX)

    @property
    def snapshot(self) -> Snapshot:
        """The segment as this handle last saw it."""
        assert self._current.snapshot is not None
        return self._current.snapshot

    def committed(self, target: object) -> str:
        """The path of the segment that a verb commits to, with any first argument."""
        return self.path

    def guard(
        self, expected_offset: int | None = None, expected_attrs: Mapping[str, str | None] | None = None
    ) -> Guard:
        """What must be true of the segment for a commit of this handle."""
        # also for a plain file: a commit is meant for the file that was seen, not for another that gets its name
        segment = next(iter(self.snapshot.incarnations), None)
        return arguments.guard(self.path, expected_offset, expected_attrs, segment=segment, epoch=self.held)

    async def _bind(self) -> None:
        """Adopt a plain file before a verb other than append changes it, so that the verb changes the adopted segment.

        Raises
        ------
        FileNotFoundError
            The plain file is gone, or another has its name.
        """
        meant = self.guard().segment
        if self.snapshot.header is not None or not await self._client.segments.adopt(self.path, meant):
            return  # the verb itself finds the present file
        loaded = await self._client.headers.load(self.path)
        found = transitions.check_incarnation(transitions.live(loaded.header, self.path), meant, self.path)
        self._current.snapshot = Snapshot(self.path, found, loaded.token)

    async def bound(self) -> Header:
        """The newest header of the segment that this handle is bound to; a plain file is adopted."""
        await self._bind()
        header = (await self._current.look()).header
        assert header is not None
        return header

    # -- reading -------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Take a new snapshot.

        Raises
        ------
        FileNotFoundError
            The segment is gone, or another has its name.
        """
        await self._current.look()

    async def read(self, start: int, end: int, verify: bool = False) -> bytes:
        """All bytes ``[start, end)``, in segment offsets.

        A chunk that was read from end to end, by one call or by several of this handle, is verified.

        Parameters
        ----------
        verify
            Read all of each chunk of which only a part is wanted, and verify it.

        Raises
        ------
        SegmentTruncatedError
            `start` lies before the segment's; the message has the range that is there.
        BadOffsetError
            The range is negative, or ends beyond the present end of the segment.
        FileNotFoundError
            The segment is gone, or another has its name.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        if start < 0 or end < start:
            raise BadOffsetError(f"{self.path}: there are no bytes {start} to {end}; ask for 0 <= start <= end")

        def span(snapshot: Snapshot) -> tuple[int, int]:
            if snapshot.start <= start and end <= snapshot.length:
                return start, end
            if start < snapshot.start:
                raise SegmentTruncatedError(
                    f"{self.path}: bytes {start} to {end} were truncated away; {snapshot.extent}"
                )
            raise BadOffsetError(f"{self.path}: there are no bytes {start} to {end}; {snapshot.extent}")

        began = self.snapshot
        current = self._new_current(began)  # of this call alone: a look of another thread may be too old for it
        current.believe()
        checks = None if verify else self._checks
        [answer] = await RevalidatingReads(self._client.fetcher, [(current, span)], checks=checks, verify=verify).run()
        if current.snapshot is not began:
            self._current.snapshot = current.snapshot
        if isinstance(answer, Exception):
            raise answer
        return answer

    # -- writing -------------------------------------------------------------------------------------------

    async def append(
        self,
        data: Data,
        expected_offset: int | None = None,
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> int:
        """Append data, all or nothing, in one commit.

        Parameters
        ----------
        data
            Bytes, a binary file, receipts of `stage`, or an iterable of these; of any size, in bounded memory.
        expected_offset
            The offset at which the data must begin.
        attrs
            Attributes to set in the same commit; None removes one.
        expected_attrs
            What attributes must be; None for one that must not be there.

        Returns
        -------
        int
            The offset at which the data begins.

        Raises
        ------
        SegmentSealedError, FencedError, BadOffsetError, AttributeMismatchError, StagedExpiredError, FileNotFoundError
            Nothing was written.
        AppendOutcomeUnknown
            Nobody can say whether the append took place.
        """
        guard = self.guard(expected_offset, expected_attrs)
        arguments.check_attrs(self.path, attrs)
        written = await self._client.segments.extend(self.path, data, attrs=attrs, guard=guard)
        self._current.advance(written.header)
        return written.offset

    async def take(
        self,
        data: Data,
        expected_offset: int | None = None,
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> Intake:
        """Take the data of an `append`: upload data that is too large for memory, commit nothing."""
        guard = self.guard(expected_offset, expected_attrs)
        arguments.check_attrs(self.path, attrs)
        intake = self._client.segments.addition(self.path, guard)
        await intake.take(data)
        await intake.flush()
        return intake

    async def stage(self, data: Data) -> Staged:
        """Upload chunks without committing them; returns a receipt for `append`. Needs no epoch.

        Each append that is given the receipt commits the data, a second one too.
        """
        return await self._client.segments.stage(self.path, data)

    async def seal(self) -> int:
        """Let the segment take no more bytes; returns its length. A sealed one stays as it is."""
        await self._bind()
        length = await self._client.segments.seal(self.path, self.guard())
        self._current.advance()
        return length

    async def truncate(self, offset: int, erase: bool = False) -> Any:
        """Drop the bytes before `offset`; returns how many bytes wait for the collection of other folders.

        Parameters
        ----------
        erase
            Leave none of these bytes in a file of the segment; returns an `Erased`, as `truncate` of the filesystem.

        Raises
        ------
        BadOffsetError
            The offset is negative or beyond the end.
        """
        arguments.check_offset(self.path, offset)
        arguments.check_switches(erase=erase)
        await self._bind()
        try:
            if erase:
                return await self._client.eraser.erase(self.path, offset, self.guard())
            return await self._client.segments.truncate(self.path, offset, self.guard())
        finally:
            self._current.advance()

    async def concat(
        self,
        sources: Sequence[str | Segment],
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
        as_bytes: bool = False,
    ) -> int:
        """Append other segments, which must be sealed, without moving bytes; they are gone afterwards.

        Parameters
        ----------
        as_bytes
            Also join sources of formats that do not join, as `concat` of the filesystem does.

        Returns
        -------
        int
            The offset at which the first source begins.

        Raises
        ------
        SegmentNotSealedError
            A source is not sealed.
        FileNotFoundError
            A source is not there.
        WholeFileError
            A source is a file of a format that does not join; nothing was joined.
        ValueError
            A source comes twice, or is this segment.
        """
        if isinstance(sources, str):
            raise TypeError(f"{self.path}: concat takes a list of sources, not one path; nothing was changed")
        arguments.check_attrs(self.path, attrs)
        arguments.check_switches(as_bytes=as_bytes)
        paths, meant = [], {}
        for source in sources:
            handle: SegmentVerbs | None = getattr(source, "_verbs", None)
            paths.append(self._strip(source) if handle is None else handle.path)  # type: ignore[arg-type]  # a path
            if handle is not None:
                meant[handle.path] = handle.guard().segment
        await self._bind()
        guard = self.guard(expected_attrs=expected_attrs)
        offset = await self._client.concats.concat(
            self.path, paths, attrs=attrs, guard=guard, meant=meant, as_bytes=as_bytes
        )
        self._current.advance()
        return offset

    async def delete(self) -> None:
        """Delete the segment."""
        await self._client.segments.delete(self.path, self.guard())

    # -- exclusive writers ---------------------------------------------------------------------------------

    async def acquire(self, owner: str) -> Segment:
        """Take the segment exclusively, from whoever holds it.

        Returns
        -------
        Segment
            A handle that has the new epoch. It alone can change the segment until another acquires it.
        """
        header = await self._client.segments.acquire(self.path, owner, self.guard())
        self._current.advance(header)
        snapshot = self.snapshot if self.snapshot.header is header else Snapshot(self.path, header, None)
        return self._handle(snapshot, header.epoch)

    async def release(self) -> None:
        """Give back a segment that this handle holds exclusively.

        Raises
        ------
        FencedError
            Another has acquired it.
        ValueError
            This handle holds no epoch.
        """
        if self.held is None:
            raise ValueError(f"{self.path}: this handle holds no epoch to release; acquire() returns one that does")
        await self._client.segments.release(self.path, self.guard())
        self.held = None
        self._current.advance()

    # -- upkeep --------------------------------------------------------------------------------------------

    async def collect(self, grace: float | str | None = None, dry_run: bool = False) -> Collected:
        """Delete files that nothing refers to any more, here and in the folders where the segment's chunks lie.

        Parameters
        ----------
        grace
            How old a file must be to be deleted, in seconds or as text like ``"1h"``; by default 24 hours. With less,
            you promise that nobody writes. Less counts in the segment's own folder only.
        dry_run
            Delete nothing; return what would be deleted.
        """
        await self._current.look()
        grace_s = None if grace is None else parse_seconds(grace)
        collected = await self._client.collector.collect(self.path, grace_s=grace_s, dry_run=dry_run)
        self._current.advance()
        return collected

    async def consolidate(
        self,
        grace: float | str = READERS_GRACE_S,
        *,
        progress: Progress | None = None,
        callback: Callback = DEFAULT_CALLBACK,
    ) -> Consolidated:
        """Join small neighbouring chunks into chunks of the policy's size; appends and readers may go on meanwhile.

        Parameters
        ----------
        grace
            Seconds (or text like ``"10min"``) for which the old files stay for readers that opened the segment
            before. They go with the next truncation, collection or consolidation after that.
        progress
            Called with the number of bytes that were done since the last call; all of them are the segment's size. The
            calls may come from any thread.
        callback
            The same, in fsspec's way.

        Raises
        ------
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        header = (await self._current.look()).header
        if header is None:
            return Consolidated()  # a plain file is one chunk
        consolidator = Consolidator(self._client.committer, self._client.fetcher)
        tell = begin(callback, header.size, progress)
        result = await consolidator.consolidate(
            self.path, segment=header.segment, grace_s=parse_seconds(grace), progress=tell
        )
        await self._current.look(fresh=False)
        return result

    async def verify(
        self, *, progress: Progress | None = None, callback: Callback = DEFAULT_CALLBACK
    ) -> list[Verified]:
        """Read every chunk; returns a row for each, which says whether the chunk is there and undamaged.

        Parameters
        ----------
        progress
            Called with the number of bytes that were read since the last call; all of them are the segment's size. The
            calls may come from any thread.
        callback
            The same, in fsspec's way.

        Raises
        ------
        CorruptHeaderError
            The header itself is damaged.
        """
        tell = begin(callback, (await self._current.look()).size, progress)
        return await Verifier(self._client.fetcher).verify(self.path, progress=tell)
