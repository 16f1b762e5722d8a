"""A followed segment: conditional polls look at it, and blocks of it move to a tier.

All state of a follower is in the segment's header; its memory only saves requests. An offload of a stream by policies
is here, too: it follows each segment once.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial

from rollingfs.backend.tiers import check_tier
from rollingfs.errors import TIER_ERRORS, worded
from rollingfs.folders.collect_tree import SEGMENTS_AT_ONCE_MAX
from rollingfs.format import names, transitions
from rollingfs.format.header import Header
from rollingfs.policy import OffloadPolicy
from rollingfs.runtime.values import added, value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.index_pages import read_map
from rollingfs.segment.files.rewrite_commits import window_of
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.change import roll
from rollingfs.segment.verbs.offload import DamagedBlocksError, Offloaded, check_may_move, offload
from rollingfs.stream import blocks
from rollingfs.stream.blocks import RETRY_S_MAX, SLOW_S, Hot, Move, OffloadStatus, Wait
from rollingfs.stream.ledger import Ledgers, Policies, check_policy, check_retention, policies_of
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.members import Members

logger = logging.getLogger("rollingfs")

OF_ONE_POLICY = (ValueError, *TIER_ERRORS)
"""Errors of a policy or of its tier: the policies of other segments may still be carried out."""


@value_class
class _Damage:
    """Blocks that stay where they are, because chunks of them are damaged; the bytes after them move."""

    segment: str
    """The incarnation."""
    end: int
    """End of the last damaged block."""
    oldest_ms: int
    """When the first byte was written."""
    retry_s: float
    """When all are tried again, by the monotonic clock: somebody may have mended them."""
    text: str


class Followed:
    """A segment whose blocks move to a tier as it grows.

    Parameters
    ----------
    given
        The fields that count before all policies; with a tier, no policy counts.
    default
        The policy of the filesystem.

    Raises
    ------
    ValueError
        It is the memory of a stream.
    """

    def __init__(self, client: At, path: str, given: OffloadPolicy, default: OffloadPolicy | None = None) -> None:
        check_may_move(path)
        self.path = path
        self.told: tuple[int, str | None] | None = None
        """The progress and the error in the last report: of the follower alone."""
        self.moved = Offloaded()
        """All that was moved so far."""
        self.token: str | None = None
        """Of the header that `_hot` shows; None: it is read again."""
        self._client, self._given, self._default = client, given, default
        self._ledger: Ledger | None = None
        """Of its folder, resolved; None: it is read at each new header."""
        self._asked: Asked | None = None
        self._own: OffloadPolicy | None = None
        self._damage: _Damage | None = None
        self._block: tuple[int, float] | None = None
        """The end of the newest block, and when it was assigned."""
        self._offloaded_s: float | None = None
        self._hot: Hot | None = None
        self._failures = 0
        self._retry_s = 0.0
        """When a move that failed is tried again, by the monotonic clock."""
        self._error: str | None = None
        self._moving_s: float | None = None
        """When the move under way began, by the monotonic clock."""

    @property
    def status(self) -> OffloadStatus:
        """Return the progress at the last look; sends no request."""
        hot, error, moving_s, damage = self._hot, self._error, self._moving_s, self._damage
        if error is None and damage is not None:
            error = damage.text
        took_s = 0.0 if moving_s is None else time.monotonic() - moving_s
        if took_s >= SLOW_S:
            error = (
                f"{self.path}: a block has been on its way to the tier {self.tier!r} for {took_s:.0f} s; the tier, or "
                "the hot store, is slow. Nothing is lost, and nothing else is moved meanwhile"
            )
        if hot is None:
            return OffloadStatus(0, 0, 0.0, error)
        lag_bytes = 0
        if self._asked is not None:
            lag_bytes = hot.hot_bytes if blocks.keeps_newest(self._asked) else hot.length - hot.start
        oldest_ms = hot.oldest_ms if damage is None else min(hot.oldest_ms, damage.oldest_ms)
        lag_s = max(0.0, (self._client.now_ms() - oldest_ms) / 1000) if lag_bytes else 0.0
        end, assigned_s = self._block or (0, None)
        assigned = min(end, hot.length) if moving_s is not None else hot.start
        return OffloadStatus(hot.start, lag_bytes, lag_s, error, self.tier, assigned, assigned_s, self._offloaded_s)

    @property
    def tier(self) -> str | None:
        """Return the tier of its blocks at the last look."""
        return None if self._asked is None else self._asked.tier

    @property
    def poll_s_max(self) -> float:
        """Return the longest pause between two polls."""
        return blocks.poll_s_max(self._asked)

    async def look(self, ledger: Ledger | None = None, known: Segment | None = None) -> Wait | Move:
        """Poll the header by a conditional request, and return the next step.

        While a failed move waits to be tried again, this shows only how the segment grows.

        Parameters
        ----------
        ledger
            Of its folder, resolved; by default it is read at each new header.
        known
            A header that was just loaded; by default it is loaded.
        """
        if ledger != self._ledger:
            self._ledger, self.token = ledger, None
        if self._damage is not None and time.monotonic() >= self._damage.retry_s:
            self._damage = self.token = None
        if self._hot is None or self._client.now_ms() >= self._hot.next_ms:
            self.token = None  # the policy lets more chunks go by now, though the header may be the same
        token = self.token
        loaded = known or await self._client.headers.load(self.path, token)
        if token is None or loaded.token != token:
            await read_map(self._client.headers, self.path, self._take, loaded)
        assert self._hot is not None
        left_s = self._retry_s - time.monotonic()
        if left_s > 0:
            return Wait(left_s)
        now = Wait(math.inf) if self._asked is None else blocks.plan(self._hot, self._client.now_ms(), self._asked)
        if isinstance(now, Move):
            return now
        self._succeeded()  # an error of a move is over, too: another follower has moved the block
        retry_s = math.inf if self._damage is None else self._damage.retry_s - time.monotonic()
        return replace(now, pause_s=min(now.pause_s, max(blocks.poll_s_min(self._asked), retry_s)))

    async def move(self, block: Move) -> Wait:
        """Move a block, unless a policy forbids it by now; what was not committed moves by the next try."""
        self._moving_s = time.monotonic()
        assert self._hot is not None
        self._block = (self._hot.length if block.upto is None else block.upto), self._client.now_ms() / 1000
        try:
            did = await self._move(block)
        except DamagedBlocksError:
            return Wait(0.0)
        finally:
            self._moving_s = None
        self._succeeded()
        self._offloaded_s = self._client.now_ms() / 1000 if did.chunks else self._offloaded_s
        self.moved = added(self.moved, did)
        return Wait(0.0 if did.chunks else blocks.poll_s_min(self._asked))

    async def move_all(self, known: Segment | None = None) -> Offloaded:
        """Move all blocks that are full or old now; an error is raised, for a damaged chunk after all other blocks."""
        while isinstance(block := await self.look(known=known), Move):
            known = None
            if (await self.move(block)).pause_s:
                break
        if self._damage is not None:
            raise DamagedBlocksError(self._damage.text)
        return self.moved

    async def _take(self, loaded: Segment) -> None:
        """Take over a header that was read."""
        header, before = loaded.header, self._hot
        if header is None or header.deleted:
            self._hot = self.token = None
            if await self._client.headers.plain(loaded) is None:
                raise transitions.missing(self.path)
            raise ValueError(
                f"{self.path}: it is a plain file, which another program may still write, so it is not followed; "
                "nothing was moved. Offload it once, or append to it, to make it a segment"
            )
        self._hot, self.token = await self._found(header, before), loaded.token

    async def _ask(self, ledger: Ledger | None) -> Asked | None:
        """Return the tier and the times of its blocks; None if no block is to move."""
        if self._given.tier is not None:
            return Asked.by(self._given)
        if ledger is None:
            ledger = await Ledgers(self._client).resolved(names.parent(self.path))
        return Asked.by(self._given.over(Policies(None, self._own, ledger.offload, self._default).offload))

    async def _found(self, header: Header, before: Hot | None) -> Hot:
        """Return the hot bytes, up to the first full block; what was in a tier once is not looked at again."""
        self._own, damage = header.offload, self._damage
        self._asked = asked = await self._ask(self._ledger)
        if asked is None:  # no chunk is looked at, so the next look begins at the first one
            self._damage = None
            return replace(blocks.look(header, self._client.now_ms()), start=header.start)
        check_tier(self._client.backend, asked.tier, self.path)
        passed = damage.end if damage is not None and damage.segment == header.segment else 0
        rule = replace(asked, chosen=replace(asked.chosen, start=passed))
        now_ms = self._client.now_ms()
        hot = blocks.look(header, now_ms, rule)
        is_same = before is not None and before.segment == header.segment
        position = before.start if is_same and before is not None else header.start
        is_last = False
        while not is_last and hot.block_end is None:
            chunks, is_last = await window_of(self._client, self.path, header, position, rule.block_bytes)
            hot = blocks.with_chunks(hot, chunks, rule, header, now_ms)
            position = chunks[-1].end if chunks else position
        if hot.start >= passed:  # the blocks are gone, or in the tier
            self._damage = None
        return blocks.since(hot, before)

    async def _move(self, block: Move) -> Offloaded:
        hot, path = self._hot, self.path
        assert hot is not None
        ledger = await Ledgers(self._client).resolved(names.parent(path))
        asked = await self._ask(ledger)
        if asked != self._asked:  # a policy has changed since the look
            self._asked, self.token = asked, None if asked else self.token
        if asked is None:
            return Offloaded()
        check_retention(path, asked, ledger)
        upto = block.upto
        if upto is None:
            upto = await roll(self._client, path, hot.segment)
        now = replace(asked, chosen=replace(asked.chosen, upto=upto, start=block.start))
        try:
            did = await offload(self._client, path, now, segment=hot.segment)
        except DamagedBlocksError as error:
            self._pass(hot, upto, str(error))
            raise
        seen = self._client.headers.seen(path)  # the commit's own; the next poll finds it unchanged
        if seen is not None and seen.header is not None and seen.live and seen.header.segment == hot.segment:
            await read_map(self._client.headers, path, self._take, seen)
        return did

    def _pass(self, hot: Hot, end: int, text: str) -> None:
        """Leave damaged blocks that end by an offset, and go on after them."""
        first = self._damage or _Damage(hot.segment, end, hot.oldest_ms, time.monotonic() + RETRY_S_MAX, text)
        if self._damage is None or first.text != text:
            logger.warning("%s: a block is not offloaded now, those behind it are: %s", self.path, text)
        self._damage, self.token = replace(first, end=end), None

    def _succeeded(self) -> None:
        if self._error is not None:
            logger.info("%s: offload goes on", self.path)
        self._failures, self._retry_s, self._error = 0, 0.0, None

    def failed(self, error: Exception, *, is_move: bool) -> Wait:
        """Note an error of a look or a move for the status; return the pause, and whether no segment is there."""
        left_s = self._retry_s - time.monotonic()
        if left_s > 0:  # the status keeps the error that waits
            logger.debug("%s: %s", self.path, error)
            return Wait(left_s)
        self.token = None  # read again: it may be gone, or another incarnation; and the pause counts for its new header
        text = str(error) or repr(error)
        if self._error is None:
            is_told = isinstance(error, OSError | ValueError)
            logger.warning("%s is not offloaded now, and is tried again: %s", self.path, text, exc_info=not is_told)
        pause_s = blocks.retry_s(self._failures, random.random())
        self._failures, self._error = self._failures + 1, text
        self._retry_s = time.monotonic() + pause_s if is_move else 0.0
        return Wait(pause_s, is_over=isinstance(error, FileNotFoundError) and not is_move)


# -- an offload by policies, once -------------------------------------------------------------------------------


@value_class
class StreamOffloaded:
    """The chunks that an offload of a stream moved."""

    moved: Mapping[str, Offloaded] = field(default_factory=dict)
    """By path; only segments that had chunks to move."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By path, why segments were left as they are."""


async def offload_by_policy(client: At, known: Segment, ledger: Ledger) -> Offloaded | None:
    """Offload a segment by its policy; None if no level of it has a tier.

    Parameters
    ----------
    known
        The segment as it was just loaded.
    ledger
        The policy of the segment's folder.

    Raises
    ------
    ValueError
        The policy contradicts the retention of the folder; no chunk was moved.
    """
    path, policies = known.path, policies_of(known.path, known.header, ledger, client.offload_policy)
    policy, asked = policies.offload, Asked.by(policies.offload)
    if policy is None or asked is None:
        return None
    check_policy(path, policies, ledger, "nothing was moved")
    if asked.max_delay_s is not None:  # what fills no block yet waits, and the inline bytes move too
        return await Followed(client, path, policy).move_all(known)
    return await offload(client, path, asked, known=known.header)


async def offload_stream(members: Members, asked: Asked | None) -> StreamOffloaded:
    """Offload every segment of a stream; plain files stay as they are.

    Parameters
    ----------
    asked
        None for the policy of each segment. The failure of a policy or of its tier is then reported as that
        of a segment.

    Raises
    ------
    ValueError
        The retention of the stream forbids it; or there is no policy to decide.
    UnknownTierError
        The filesystem has no such tier.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    """
    client, ledger = members.client, await members.ledgers.resolved(members.path)
    check_retention(members.path, asked, ledger)
    found = await members.find(with_rows=False)
    members.warn(found.unreadable)
    views = [view for view in found.snapshots.values() if view.header is not None]
    owns = (ledger.offload, client.offload_policy, *(view.header.offload for view in views if view.header))
    if asked is None and not any(owns):
        raise ValueError(
            f"{members.path}: neither the segments, nor the folder, nor the filesystem has an offload policy; nothing "
            f"was moved: set one by {worded('set_policy')}, or name a tier"
        )
    moved: dict[str, Offloaded] = {}
    failed = members.reasons(found.unreadable)

    async def one(view: Segment) -> None:
        path = view.path
        try:
            if asked is None:
                did = await offload_by_policy(client, view, ledger)
            else:
                did = await offload(client, path, asked, known=view.header)
        except FileNotFoundError:
            return  # it was deleted or replaced meanwhile
        except (OSError, ValueError) as error:
            is_reported = isinstance(error, OSError) and members.is_reported(error)
            if not is_reported and (asked is not None or not isinstance(error, OF_ONE_POLICY)):
                raise
            logger.warning("%s is not offloaded: %s", path, error)
            failed[path] = str(error)
            return
        if did is not None and did.files:
            moved[path] = did

    await client.runtime.gather([partial(one, view) for view in views], SEGMENTS_AT_ONCE_MAX)
    return StreamOffloaded(dict(sorted(moved.items())), dict(sorted(failed.items())))
