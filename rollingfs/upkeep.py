"""What a handle does for the health of its segment, and how it follows it."""

from __future__ import annotations

from rollingfs.bridge import Bridge
from rollingfs.client import Client
from rollingfs.lookup import View
from rollingfs.maintenance.consolidate import READERS_GRACE_S, Consolidated, Consolidator
from rollingfs.maintenance.verify import Verified, Verifier
from rollingfs.policy import parse_seconds
from rollingfs.snapshot import Snapshot
from rollingfs.tail import POLL_S_MAX, POLL_S_MIN, Tail


class Upkeep(Snapshot):
    """The part of `Segment` that changes no bytes."""

    _client: Client
    _bridge: Bridge

    async def _look(self, *, fresh: bool = True) -> View:
        raise NotImplementedError

    def consolidate(self, grace: float | str = READERS_GRACE_S) -> Consolidated:
        """Join small neighbouring chunks into chunks of the policy's size; appends and readers may go on beside it.

        Parameters
        ----------
        grace
            Seconds (or text like ``"10min"``) for which the old files stay for readers that opened the segment
            before. They go with the next truncation, collection or consolidation after that.

        Raises
        ------
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        return self._bridge.run(self._to_consolidate(grace), commits=self.path)

    async def _consolidate(self, grace: float | str = READERS_GRACE_S) -> Consolidated:
        return await self._bridge.arun(self._to_consolidate(grace))

    async def _to_consolidate(self, grace: float | str) -> Consolidated:
        header = (await self._look()).header
        if header is None:
            return Consolidated()  # a plain file is one chunk
        consolidator = Consolidator(self._client.committer, self._client.fetcher)
        result = await consolidator.consolidate(self.path, segment=header.segment, grace_s=parse_seconds(grace))
        await self._look(fresh=False)
        return result

    def verify(self) -> list[Verified]:
        """Read every chunk; one row for each, which says whether it is there, as long and with the bytes it should be.

        Raises
        ------
        CorruptHeaderError
            The header itself is damaged.
        """
        return self._bridge.run(self._to_verify())

    async def _verify(self) -> list[Verified]:
        return await self._bridge.arun(self._to_verify())

    async def _to_verify(self) -> list[Verified]:
        await self._look()
        return await Verifier(self._client).verify(self.path)

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
            follow=follow,
            poll_s_min=poll_s_min,
            poll_s_max=poll_s_max,
        )
