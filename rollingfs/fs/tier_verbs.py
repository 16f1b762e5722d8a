"""The verbs that move chunks between the hot store and tiers, as coroutines of the core."""

from __future__ import annotations

from collections.abc import Callable

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.client import Client
from rollingfs.format import names, transitions
from rollingfs.fs.progress import begin
from rollingfs.fs.segment_verbs import SegmentVerbs
from rollingfs.maintenance.offload import DELETION_LAG_S, TIER_DEFAULT, Chosen, Offloaded, Offloader
from rollingfs.maintenance.roll import Roller
from rollingfs.maintenance.steps import Progress
from rollingfs.policy import parse_seconds
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.offload_policy import Asked, check_retention


class TierVerbs:
    """Moves chunks of segments, over paths as callers write them.

    Parameters
    ----------
    to_write
        Makes the backend's path of a segment that is to be changed.
    """

    def __init__(self, client: Client, to_write: Callable[[str], str]) -> None:
        self.client = client
        self.to_write = to_write
        self.offloader = Offloader(client.committer)
        self.roller = Roller(client.committer)

    def committed(self, target: str) -> str:
        """The segment to which a verb with this first argument commits."""
        return self.to_write(target)

    async def offload(
        self,
        path: str,
        tier: str = TIER_DEFAULT,
        upto: int | None = None,
        after_bytes: int | str | None = None,
        after_age: float | str | None = None,
        deletion_lag: float | str = DELETION_LAG_S,
        *,
        progress: Progress | None = None,
        callback: Callback = DEFAULT_CALLBACK,
    ) -> Offloaded:
        """Move the chunks of a segment to a tier; readers see no difference, and writers may go on.

        Each copy is read back and verified before the segment names it. The inline tail and chunks in other tiers stay.
        A call that was broken off can be repeated; what it has left is collected.

        Parameters
        ----------
        tier
            The alias of one of the filesystem's `tiers`.
        upto
            Move only chunks that end at or before this segment offset.
        after_bytes, after_age
            Move only chunks that lie before the newest so many bytes (or text like ``"64MiB"``), or that are older than
            so many seconds (or text like ``"7d"``). Of both, one is enough.
        deletion_lag
            Seconds (or text like ``"4h"``) for which the old files stay, for readers that opened the segment before.
            They go with the next truncation, collection, consolidation or offload after that.
        progress
            Called with the number of bytes that were done since the last call; all of them are the segment's size.
        callback
            The same, in fsspec's way.

        Raises
        ------
        UnknownTierError
            The filesystem has no such tier.
        FileNotFoundError
            There is no such segment or file.
        BadOffsetError, ValueError
            A number cannot be meant, or the retention of the folder, a stream, forbids it; nothing was moved.
        CorruptChunkError
            A chunk or its copy is damaged; that chunk stays where it is.
        """
        path, chosen = self.to_write(path), Chosen.parse(upto, after_bytes, after_age)
        lag_s = parse_seconds(deletion_lag)
        await _check_retention(self.client, path, Asked(tier, chosen, lag_s))
        tell = await self._begin(path, callback, progress)
        return await self.offloader.offload(path, tier, chosen, lag_s=lag_s, progress=tell)

    async def onload(
        self,
        path: str,
        tier: str | None = None,
        upto: int | None = None,
        deletion_lag: float | str = DELETION_LAG_S,
        *,
        progress: Progress | None = None,
        callback: Callback = DEFAULT_CALLBACK,
    ) -> Offloaded:
        """Move the chunks of a segment back from a tier, or from all tiers; otherwise as `offload`."""
        path = self.to_write(path)
        lag_s, tell = parse_seconds(deletion_lag), await self._begin(path, callback, progress)
        return await self.offloader.onload(path, tier, Chosen.parse(upto, None, None), lag_s=lag_s, progress=tell)

    async def roll(self, path: str) -> int:
        """Make the inline tail of a segment a chunk now, in one commit; readers see no difference.

        An offload moves only chunks, so roll first to move all bytes. A segment with nothing inline stays as it is, and
        so does a plain file. Sealed segments, and those that an owner holds, are rolled too.

        Returns
        -------
        int
            The segment offset before which all bytes lie in chunks: the length when it was rolled.

        Raises
        ------
        FileNotFoundError
            There is no such segment or file.
        AppendOutcomeUnknown
            It is not known whether it was rolled. No byte is lost; roll again.
        CommitTimeoutError
            It was not rolled. No byte is lost; roll again.
        """
        return await rolled(self.client, self.roller, self.to_write(path), None)

    async def _begin(self, path: str, callback: Callback, progress: Progress | None) -> Progress:
        """Adopt a plain file, which has no chunks that could be moved; returns what counts the bytes."""
        if not await self.client.segments.adopt(path):
            raise transitions.missing(path)
        header = (await self.client.headers.load(path)).header
        return begin(callback, header.size if header is not None else 0, progress)


class HandleTierVerbs:
    """The same verbs for a handle on a segment, which is bound to its incarnation.

    Parameters
    ----------
    verbs
        The other verbs of the handle.
    """

    def __init__(self, client: Client, verbs: SegmentVerbs) -> None:
        self.client = client
        self.offloader = Offloader(client.committer)
        self.roller = Roller(client.committer)
        self.verbs = verbs

    def committed(self, target: object) -> str:
        """The path of the segment, with any first argument."""
        return self.verbs.path

    async def offload(
        self,
        tier: str = TIER_DEFAULT,
        upto: int | None = None,
        after_bytes: int | str | None = None,
        after_age: float | str | None = None,
        deletion_lag: float | str = DELETION_LAG_S,
        *,
        progress: Progress | None = None,
        callback: Callback = DEFAULT_CALLBACK,
    ) -> Offloaded:
        chosen, lag_s = Chosen.parse(upto, after_bytes, after_age), parse_seconds(deletion_lag)
        await _check_retention(self.client, self.verbs.path, Asked(tier, chosen, lag_s))
        header = await self.verbs.bound()
        tell = begin(callback, header.size, progress)
        try:
            return await self.offloader.offload(
                self.verbs.path, tier, chosen, segment=header.segment, lag_s=lag_s, progress=tell
            )
        finally:
            await self.verbs.refresh()

    async def onload(
        self,
        tier: str | None = None,
        upto: int | None = None,
        deletion_lag: float | str = DELETION_LAG_S,
        *,
        progress: Progress | None = None,
        callback: Callback = DEFAULT_CALLBACK,
    ) -> Offloaded:
        chosen, lag_s = Chosen.parse(upto, None, None), parse_seconds(deletion_lag)
        header = await self.verbs.bound()
        tell = begin(callback, header.size, progress)
        try:
            return await self.offloader.onload(
                self.verbs.path, tier, chosen, segment=header.segment, lag_s=lag_s, progress=tell
            )
        finally:
            await self.verbs.refresh()

    async def roll(self) -> int:
        try:
            return await rolled(self.client, self.roller, self.verbs.path, self.verbs.guard().segment)
        finally:
            await self.verbs.refresh()

    offload.__doc__ = TierVerbs.offload.__doc__
    onload.__doc__ = TierVerbs.onload.__doc__
    roll.__doc__ = TierVerbs.roll.__doc__


async def rolled(client: Client, roller: Roller, path: str, segment: str | None) -> int:
    """Roll a segment, perhaps only of one incarnation; a plain file has nothing inline."""
    try:
        return await roller.roll(path, segment)
    except FileNotFoundError:
        view = await client.lookup.view(path, fresh=True)
        if view.header is not None:  # adopted or made meanwhile, or another than the one that is meant
            return await roller.roll(path, segment)
        if segment is not None and segment not in view.incarnations:
            raise
        return view.length


async def _check_retention(client: Client, path: str, asked: Asked) -> None:
    """Refuse an offload that does not go with the retention of the stream in whose folder a segment lies."""
    if not names.is_ledger(path):
        check_retention(path, asked, await Ledgers(client).load(names.parent(path)))
