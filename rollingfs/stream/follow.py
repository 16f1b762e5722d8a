"""One segment that is followed: looked at by conditional polls, and moved to a tier block by block.

Nothing of a follower is kept anywhere but in the segment's header. What it remembers only saves requests.
"""

from __future__ import annotations

import logging
import random
import time

from rollingfs.backend.tiers import check_tier
from rollingfs.client import Client
from rollingfs.commit.header_cache import Loaded
from rollingfs.format import names, transitions
from rollingfs.format.header import Header
from rollingfs.maintenance.offload import Chosen, Offloader, check_may_move
from rollingfs.maintenance.roll import Roller
from rollingfs.maintenance.swaps import window_of
from rollingfs.policy import DELETION_LAG_S
from rollingfs.stream import blocks
from rollingfs.stream.blocks import SLOW_S, BlockRule, Hot, Move, OffloadStatus, Wait
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.offload_policy import Asked, check_retention

logger = logging.getLogger("rollingfs")


class Followed:
    """One segment, followed.

    Parameters
    ----------
    lag_s
        For how many seconds the old files stay.

    Raises
    ------
    UnknownTierError
        The filesystem has no such tier.
    ValueError
        It is the memory of a stream.
    """

    def __init__(
        self, client: Client, path: str, tier: str, rule: BlockRule | None = None, lag_s: float = DELETION_LAG_S
    ) -> None:
        check_tier(client.backend, tier, path)
        check_may_move(path)
        self.path = path
        self._client = client
        self._store = client.store
        self._tier = tier
        self._rule = rule or BlockRule()
        self._lag_s = lag_s
        self._offloader = Offloader(client.commits)
        self._roller = Roller(client.commits)
        self._hot: Hot | None = None
        self._token: str | None = None
        """Of the header that `_hot` shows."""
        self._failures = 0
        self._error: str | None = None
        self._moving_s: float | None = None
        """When the move under way began, by the monotonic clock."""

    @property
    def status(self) -> OffloadStatus:
        """How far it is, as the last look has shown; asks the store nothing."""
        hot, error, moving_s = self._hot, self._error, self._moving_s
        took_s = 0.0 if moving_s is None else time.monotonic() - moving_s
        if took_s >= SLOW_S:
            error = (
                f"{self.path}: a block has been on its way to the tier {self._tier!r} for {took_s:.0f} s; the tier, or "
                "the hot store, is slow. Nothing is lost, and nothing else is moved meanwhile"
            )
        if hot is None:
            return OffloadStatus(0, 0, 0.0, error)
        lag_s = max(0.0, (self._store.now_ms() - hot.oldest_ms) / 1000) if hot.length > hot.start else 0.0
        return OffloadStatus(hot.start, hot.length - hot.start, lag_s, error)

    async def look(self) -> Wait | Move:
        """Poll the header, one conditional request, and say what to do now. An error goes to the status."""
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001 - one segment that fails must not end the others
            return self._failed(error)
        assert self._hot is not None
        now = blocks.plan(self._hot, self._store.now_ms(), self._rule)
        if isinstance(now, Wait):
            self._succeeded()  # an error of a move is over, too: another follower has moved the block
        return now

    @property
    def poll_s_max(self) -> float:
        """The longest pause between two polls."""
        return self._rule.poll_s_max

    async def glance(self) -> None:
        """Poll the header for the status alone, while a move waits to be tried again."""
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001 - the status keeps the error of the move; `look` tells this one
            logger.debug("%s: %s", self.path, error)

    async def move(self, block: Move) -> Wait:
        """Move a block. An error goes to the status; what was not committed is tried again after a pause."""
        self._moving_s = time.monotonic()
        try:
            count = await self._move(block)
        except Exception as error:  # noqa: BLE001 - as above
            return self._failed(error)
        finally:
            self._moving_s = None
        self._succeeded()
        return Wait(0.0 if count else self._rule.poll_s_min)

    async def _look(self) -> None:
        hot = self._hot
        loaded: Loaded | None
        if hot is not None and self._token is not None:
            loaded = await self._store.headers.newer(self.path, self._token)
            if loaded is None:
                self._hot = blocks.unchanged(hot)
                return
        else:
            loaded = await self._store.headers.load(self.path)
        header = await self._live(loaded)
        try:
            self._hot = await self._found(header, hot)
        except FileNotFoundError:  # an index page is gone: this was an old header, or the segment is damaged
            loaded = await self._store.headers.load(self.path)
            self._hot = await self._found(await self._live(loaded), hot)
        self._token = loaded.token

    async def _live(self, loaded: Loaded) -> Header:
        header = loaded.header
        if header is not None and not header.deleted:
            return header
        self._hot = self._token = None
        if await self._client.lookup.plain(self.path, loaded) is not None:
            raise ValueError(
                f"{self.path}: it is a plain file, which another program may still write, so it is not followed; "
                "nothing was moved. Offload it once, or append to it, to make it a segment"
            )
        raise transitions.missing(self.path)

    async def _found(self, header: Header, before: Hot | None) -> Hot:
        """The hot bytes, up to the first full block; what was in a tier once is not looked at again."""
        now_ms, block_bytes = self._store.now_ms(), self._rule.block_bytes
        hot = blocks.look(header, now_ms)
        is_same = before is not None and before.segment == header.segment
        position = before.start if is_same and before is not None else header.start
        is_last = False
        while not is_last and hot.block_end is None:
            found = await window_of(self._store, self.path, header, position, block_bytes)
            hot, is_last = blocks.with_chunks(hot, found.chunks, block_bytes), found.is_last
            position = found.chunks[-1].end if found.chunks else position
        return blocks.since(hot, before)

    async def _move(self, block: Move) -> int:
        hot, path = self._hot, self.path
        assert hot is not None
        ledger = await Ledgers(self._client).resolved(names.parent(path))
        check_retention(path, Asked(self._tier, Chosen(), self._lag_s), ledger)
        upto = block.upto
        if upto is None:
            upto = await self._roller.roll(path, hot.segment)
        chosen = Chosen(upto=upto, start=block.start)
        did = await self._offloader.offload(path, self._tier, chosen, segment=hot.segment, lag_s=self._lag_s)
        seen = self._store.headers.seen(path)  # the commit's own; the next poll finds it unchanged
        if seen is not None and seen.header is not None and seen.live and seen.header.segment == hot.segment:
            self._hot, self._token = await self._found(seen.header, hot), seen.token
        return did.chunks

    def _succeeded(self) -> None:
        if self._error is not None:
            logger.info("%s: offload goes on", self.path)
        self._failures, self._error = 0, None

    def _failed(self, error: Exception) -> Wait:
        if isinstance(error, FileNotFoundError):
            self._token = None  # deleted, or another incarnation: the next look shows it
        text = str(error) or repr(error)
        if self._error is None:
            is_told = isinstance(error, OSError | ValueError)
            logger.warning("%s is not offloaded now, and is tried again: %s", self.path, text, exc_info=not is_told)
        self._failures, self._error = self._failures + 1, text
        return Wait(blocks.retry_s(self._failures - 1, random.random()))
