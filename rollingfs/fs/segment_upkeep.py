"""What a handle does for the health of its segment, and how it follows it."""

from __future__ import annotations

from rollingfs.client import Client
from rollingfs.fs.segment_facts import Snapshot
from rollingfs.fs.tail import POLL_S_MAX, POLL_S_MIN, Tail
from rollingfs.maintenance.consolidate import READERS_GRACE_S, Consolidated, Consolidator
from rollingfs.maintenance.steps import Progress
from rollingfs.maintenance.verify import Verified, Verifier
from rollingfs.policy import parse_seconds
from rollingfs.read.snapshot import View
from rollingfs.runtime.bridge import Bridge


class Upkeep(Snapshot):
    """The part of `Segment` that changes no bytes."""

    _client: Client
    _bridge: Bridge

    async def _look(self, *, fresh: bool = True) -> View:
        raise NotImplementedError

    def consolidate(self, grace: float | str = READERS_GRACE_S, *, progress: Progress | None = None) -> Consolidated:
        """Join small neighbouring chunks into chunks of the policy's size; appends and readers may go on beside it.

        Parameters
        ----------
        grace
            Seconds (or text like ``"10min"``) for which the old files stay for readers that opened the segment
            before. They go with the next truncation, collection or consolidation after that.
        progress
            Told how many more bytes are done, of as many as the segment has, from whatever thread the library runs on.

        Raises
        ------
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        return self._bridge.run(self._to_consolidate(grace, progress), commits=self.path)

    async def _consolidate(
        self, grace: float | str = READERS_GRACE_S, *, progress: Progress | None = None
    ) -> Consolidated:
        return await self._bridge.arun(self._to_consolidate(grace, progress))

    async def _to_consolidate(self, grace: float | str, progress: Progress | None) -> Consolidated:
        header = (await self._look()).header
        if header is None:
            return Consolidated()  # a plain file is one chunk
        consolidator = Consolidator(self._client.committer, self._client.fetcher)
        result = await consolidator.consolidate(
            self.path, segment=header.segment, grace_s=parse_seconds(grace), progress=progress
        )
        await self._look(fresh=False)
        return result

    def verify(self, *, progress: Progress | None = None) -> list[Verified]:
        """Read every chunk; one row for each, which says whether it is there, as long and with the bytes it should be.

        Parameters
        ----------
        progress
            Told how many more bytes were read, of as many as the segment has, from whatever thread the library runs
            on.

        Raises
        ------
        CorruptHeaderError
            The header itself is damaged.
        """
        return self._bridge.run(self._to_verify(progress))

    async def _verify(self, *, progress: Progress | None = None) -> list[Verified]:
        return await self._bridge.arun(self._to_verify(progress))

    async def _to_verify(self, progress: Progress | None) -> list[Verified]:
        await self._look()
        return await Verifier(self._client.fetcher).verify(self.path, progress=progress)

    def tail(
        self,
        offset: int | None = None,
        follow: bool = True,
        *,
        poll_s_min: float = POLL_S_MIN,
        poll_s_max: float = POLL_S_MAX,
    ) -> Tail:
        """Its bytes as they come, to iterate over with `for` or `async for`; see `Tail`.

        Parameters
        ----------
        offset
            Where to begin, as a segment offset; by default at the first retained byte. To see only what is new, begin
            at `length`.
        follow
            Wait for more until the segment is sealed; else end where it ends now.
        poll_s_min, poll_s_max
            The shortest and the longest pause between two polls, in seconds.
        """
        segment = self._view.header.segment if self._view.header is not None else None
        return Tail(
            self._client,
            self._bridge,
            self.path,
            offset,
            segment=segment,
            was_plain=segment is None,
            follow=follow,
            poll_s_min=poll_s_min,
            poll_s_max=poll_s_max,
        )
