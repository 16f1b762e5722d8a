"""`Segment`: a handle on one segment, bound to its incarnation, speaking segment offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rollingfs.client import Client
from rollingfs.commit.chunk_files import Staged
from rollingfs.commit.header_cache import NOTHING, Loaded
from rollingfs.errors import BadOffsetError, SegmentTruncatedError
from rollingfs.format import transitions
from rollingfs.format.header import Header
from rollingfs.format.transitions import Guard
from rollingfs.fs import arguments
from rollingfs.fs.chunk_list import ChunkList
from rollingfs.fs.segment_upkeep import Upkeep
from rollingfs.fs.sync_async import name_for_users
from rollingfs.maintenance import Collected
from rollingfs.policy import parse_seconds
from rollingfs.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.read.snapshot import View
from rollingfs.runtime.bridge import Bridge
from rollingfs.write.ingest import Data, Intake, is_small


class Segment(Upkeep):
    """A handle on one segment.

    Its attributes are a snapshot, which moves on with the handle's own verbs and with `refresh`; `read` looks again
    past the known end. A handle is bound to the incarnation that it was opened on: once that is deleted or replaced,
    everything is a `FileNotFoundError`. Every verb has an async twin of its name with an underscore before it.

    Made by ``fs.segment(path)``.
    """

    def __init__(
        self, client: Client, bridge: Bridge, view: View, strip: Callable[[str], str], held: int | None = None
    ) -> None:
        super().__init__(view, client.segments.policy, held)
        self._client = client
        self._bridge = bridge
        self._strip = strip
        self._checks = PieceChecks(RUNS_MAX)

    @classmethod
    async def open(
        cls, client: Client, bridge: Bridge, path: str, strip: Callable[[str], str] | None = None
    ) -> Segment:
        """A handle on what is at a path now.

        Parameters
        ----------
        strip
            Makes the backend's own path of the paths that `concat` is given.

        Raises
        ------
        FileNotFoundError
            Neither a segment nor a plain file.
        """
        view = await client.lookup.view(path, fresh=True)
        return cls(client, bridge, view, strip or client.backend.strip)

    # -- the snapshot --------------------------------------------------------------------------------------

    @property
    def chunks(self) -> ChunkList:
        """Its chunks, in order; the bytes behind the last one are inline in the header."""
        return ChunkList(self._client, self._bridge, self._view)

    def refresh(self) -> None:
        """Take a new snapshot.

        Raises
        ------
        FileNotFoundError
            The segment is gone, or another has its name.
        """
        self._bridge.run(self._look())

    async def _refresh(self) -> None:
        await self._bridge.arun(self._look())

    async def _look(self, *, fresh: bool = True) -> View:
        """The segment as it is now; unless `fresh`, as it was within the cache time."""
        loaded = None if fresh else self._client.headers.recent(self.path)
        if loaded is None and self._view.header is None:
            view = await self._client.lookup.view(self.path, fresh=True)
        else:
            loaded = loaded or await self._client.headers.load(self.path)
            view = View(self.path, transitions.live(loaded.header, self.path), loaded.token)
        self._keep(view)
        return view

    def _keep(self, view: View) -> None:
        bound = self._view.header
        if bound is not None:
            is_same = view.header is not None and view.header.segment == bound.segment
        else:  # a plain file that another tool goes on writing may be read on, but not what was written over it
            is_same = view.header is None or view.header.was_plain
        if not is_same:
            raise FileNotFoundError(2, transitions.GONE, self.path)
        self._view = view

    def _advance(self, made: Header | None = None) -> None:
        """After an own commit: the newest header of this incarnation, which `made`, if given, says."""
        bound = made or self._view.header
        seen = self._client.headers.seen(self.path) or NOTHING
        is_newer = made is None or (seen.header is not None and seen.header.version >= made.version)
        if bound is not None and seen.live and self._is_of(bound, seen) and is_newer:
            self._view = View(self.path, seen.header, seen.token)
        elif made is not None:
            self._view = View(self.path, made, None)

    @staticmethod
    def _is_of(bound: Header, loaded: Loaded) -> bool:
        return loaded.header is not None and loaded.header.segment == bound.segment

    async def _bind(self) -> None:
        """Adopt a plain file before a verb other than append changes it: then the verb means what was adopted.

        Raises
        ------
        FileNotFoundError
            The plain file is gone, or is another by now.
        """
        meant = self._guard().segment
        if self._view.header is not None or not await self._client.segments.adopt(self.path, meant):
            return  # the verb finds what there is
        loaded = await self._client.headers.load(self.path)
        found = transitions.check_incarnation(transitions.live(loaded.header, self.path), meant, self.path)
        self._view = View(self.path, found, loaded.token)

    def _guard(
        self, expected_offset: int | None = None, expected_attrs: Mapping[str, str | None] | None = None
    ) -> Guard:
        # of a plain file, too: what the handle has seen, and no other file that gets its name
        segment = next(iter(self._view.incarnations), None)
        return arguments.guard(self.path, expected_offset, expected_attrs, segment=segment, epoch=self._held)

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, start: int, end: int, verify: bool = False) -> bytes:
        """The bytes ``[start, end)``, in segment offsets, all of them.

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
            The range is negative, or ends beyond the end that the segment has now.
        FileNotFoundError
            The segment is gone, or another has its name.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        return self._bridge.run(self._to_read(start, end, verify))

    async def _read(self, start: int, end: int, verify: bool = False) -> bytes:
        return await self._bridge.arun(self._to_read(start, end, verify))

    async def _to_read(self, start: int, end: int, verify: bool) -> bytes:
        if start < 0 or end < start:
            raise BadOffsetError(f"{self.path}: there are no bytes {start} to {end}; ask for 0 <= start <= end")
        view = await self._look(fresh=False)
        if not view.start <= start <= end <= view.length:
            view = await self._look()
        if start < view.start:
            raise SegmentTruncatedError(
                f"{self.path}: bytes {start} to {end} were truncated away; it holds {view.start} to {view.length}"
            )
        if end > view.length:
            raise BadOffsetError(
                f"{self.path}: there are no bytes {start} to {end}; it holds {view.start} to {view.length}"
            )
        if start == end:
            return b""
        checks = None if verify else self._checks
        return await self._client.fetcher.read(view, start, end, checks=checks, verify=verify)

    # -- writing -------------------------------------------------------------------------------------------

    def append(
        self,
        data: Data,
        expected_offset: int | None = None,
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> int:
        """Append, all or nothing, in one commit.

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
            Whether it took place cannot be said.
        """
        guard = self._guard(expected_offset, expected_attrs)
        arguments.check_attrs(self.path, attrs)
        # uploads are a call of their own, which Ctrl-C cancels with nothing committed
        waits = not is_small(data)
        taken = self._bridge.run(self._to_take(data, guard), waits=waits)
        return self._bridge.run(self._to_append(taken, attrs, guard), commits=self.path)

    async def _append(
        self,
        data: Data,
        expected_offset: int | None = None,
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> int:
        guard = self._guard(expected_offset, expected_attrs)
        arguments.check_attrs(self.path, attrs)
        return await self._bridge.arun(self._to_append(data, attrs, guard))

    async def _to_take(self, data: Data, guard: Guard) -> Intake:
        intake = self._client.segments.addition(self.path, guard)
        await intake.take(data)
        await intake.flush()
        return intake

    async def _to_append(self, data: Data, attrs: Mapping[str, str | None] | None, guard: Guard) -> int:
        written = await self._client.segments.extend(self.path, data, attrs=attrs, guard=guard)
        self._advance(written.header)
        return written.offset

    def stage(self, data: Data) -> Staged:
        """Upload chunks without committing them; returns the receipt to `append`. Needs no epoch."""
        return self._bridge.run(self._client.segments.stage(self.path, data))

    async def _stage(self, data: Data) -> Staged:
        return await self._bridge.arun(self._client.segments.stage(self.path, data))

    def seal(self) -> int:
        """Let the segment take no more bytes; returns its length. A sealed one stays as it is."""
        return self._bridge.run(self._to_seal(), commits=self.path)

    async def _seal(self) -> int:
        return await self._bridge.arun(self._to_seal())

    async def _to_seal(self) -> int:
        await self._bind()
        length = await self._client.segments.seal(self.path, self._guard())
        self._advance()
        return length

    def truncate(self, offset: int) -> int:
        """Drop the bytes before `offset`; returns how many bytes wait for the collection of other folders.

        Raises
        ------
        BadOffsetError
            The offset is negative or beyond the end.
        """
        return self._bridge.run(self._to_truncate(offset), commits=self.path)

    async def _truncate(self, offset: int) -> int:
        return await self._bridge.arun(self._to_truncate(offset))

    async def _to_truncate(self, offset: int) -> int:
        arguments.check_offset(self.path, offset)
        await self._bind()
        try:
            return await self._client.segments.truncate(self.path, offset, self._guard())
        finally:
            self._advance()

    def concat(
        self,
        sources: Sequence[str | Segment],
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> int:
        """Append other segments, all sealed, without moving bytes; they are gone afterwards.

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
        ValueError
            A source comes twice, or is this segment.
        """
        return self._bridge.run(self._to_concat(sources, attrs, expected_attrs), commits=self.path)

    async def _concat(
        self,
        sources: Sequence[str | Segment],
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> int:
        return await self._bridge.arun(self._to_concat(sources, attrs, expected_attrs))

    async def _to_concat(
        self,
        sources: Sequence[str | Segment],
        attrs: Mapping[str, str | None] | None,
        expected_attrs: Mapping[str, str | None] | None,
    ) -> int:
        if isinstance(sources, str):
            raise TypeError(f"{self.path}: concat takes a list of sources, not one path; nothing was changed")
        arguments.check_attrs(self.path, attrs)
        paths = [source.path if isinstance(source, Segment) else self._strip(source) for source in sources]
        meant = {one.path: one._guard().segment for one in sources if isinstance(one, Segment)}
        await self._bind()
        guard = self._guard(expected_attrs=expected_attrs)
        offset = await self._client.concats.concat(self.path, paths, attrs=attrs, guard=guard, meant=meant)
        self._advance()
        return offset

    def delete(self) -> None:
        """Delete the segment."""
        self._bridge.run(self._client.segments.delete(self.path, self._guard()), commits=self.path)

    async def _delete(self) -> None:
        await self._bridge.arun(self._client.segments.delete(self.path, self._guard()))

    def collect(self, grace: float | str | None = None, dry_run: bool = False) -> Collected:
        """Delete the files that nobody refers to any more, here and in the folders that the chunks lie in.

        Parameters
        ----------
        grace
            Seconds (or text like ``"1h"``) for which unreferenced files are left alone; by default 24 hours. Less is
            your word that nobody writes.
        dry_run
            Only say what would be deleted.
        """
        return self._bridge.run(self._to_collect(grace, dry_run))

    async def _collect(self, grace: float | str | None = None, dry_run: bool = False) -> Collected:
        return await self._bridge.arun(self._to_collect(grace, dry_run))

    async def _to_collect(self, grace: float | str | None, dry_run: bool) -> Collected:
        await self._look()
        grace_s = None if grace is None else parse_seconds(grace)
        collected = await self._client.collector.collect(self.path, grace_s=grace_s, dry_run=dry_run)
        self._advance()
        return collected

    # -- exclusive writers ---------------------------------------------------------------------------------

    def acquire(self, owner: str) -> Segment:
        """Take the segment exclusively, from whoever holds it.

        Returns
        -------
        Segment
            A handle that carries the new epoch: until another acquires the segment, it alone can change it.
        """
        return self._bridge.run(self._to_acquire(owner), commits=self.path)

    async def _acquire(self, owner: str) -> Segment:
        return await self._bridge.arun(self._to_acquire(owner))

    async def _to_acquire(self, owner: str) -> Segment:
        header = await self._client.segments.acquire(self.path, owner, self._guard())
        self._advance(header)
        view = self._view if self._view.header is header else View(self.path, header, None)
        return Segment(self._client, self._bridge, view, self._strip, header.epoch)

    def release(self) -> None:
        """Give back a segment that this handle holds exclusively.

        Raises
        ------
        FencedError
            Another has acquired it.
        ValueError
            This handle holds nothing.
        """
        self._bridge.run(self._to_release(), commits=self.path)

    async def _release(self) -> None:
        await self._bridge.arun(self._to_release())

    async def _to_release(self) -> None:
        if self._held is None:
            raise ValueError(f"{self.path}: this handle holds no epoch to release; acquire() returns one that does")
        await self._client.segments.release(self.path, self._guard())
        self._held = None
        self._advance()


name_for_users(Upkeep, "Segment")
