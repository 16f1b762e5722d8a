"""`Follower`: moves growing segments to a tier, block by block, while writers and readers go on."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fsspec import AbstractFileSystem

from rollingfs.backend.tiers import check_tier
from rollingfs.fs.core import core
from rollingfs.policy import OffloadPolicy, parse_bytes
from rollingfs.segment.files.rewrite import REWRITE_BYTES_MAX
from rollingfs.stream.blocks import POLL_S_MAX, Move, OffloadStatus, Wait
from rollingfs.stream.follow import Followed
from rollingfs.stream.following import Following

logger = logging.getLogger("rollingfs")

MEMORY_BYTES_DEFAULT = 256 * 1024 * 1024
LOOKS_AT_ONCE_MAX = 8
BUSY_MAX = 64
"""Maximum segments that are looked at or moved, or wait for that; the others are only planned."""

Told = Callable[[str, OffloadStatus], None]


class Follower:
    """Follows growing segments, and moves them to a tier block by block; readers and writers see no difference.

    Of a folder it follows every segment below with an offload policy that has a tier, also segments that come
    later. A listing a poll shows changed segments; the others cost no request.

    A block is the oldest bytes that are not in the tier yet. Once the block has `block_bytes`, or its oldest byte is
    `max_delay` old, or the segment is sealed, the follower rolls the segment if need be, and offloads the block.
    Between blocks it polls: an unchanged header is a conditional request without a body.

    A follower keeps no state beyond the headers. So any other may take its place after a crash, and two that
    follow the same segment are safe. Writers never wait for a follower. A segment that fails is tried again, after
    pauses that grow to 5 minutes, and does not stop the others.

    It is also a context: it follows in a thread of its own until the block of the context ends.

    Parameters
    ----------
    paths
        Segments and folders, or a single path. A plain file is not followed, because another program may still write
        it.
    tier
        An alias among the filesystem's `tiers`, instead of the policies'; by default each segment's
        `OffloadPolicy` decides. A segment of `paths` without a policy goes to ``"cold"``.
    block_bytes
        Bytes (or text like ``"64MiB"``) of a full block; by default the policy's, or 64 MiB.
    max_delay
        Seconds (or text like ``"600s"``) after which a block moves although it is not full; by default the value of the
        policy, or 600 s.
    fs
        The filesystem.
    deletion_lag
        Time for which the old files stay, as in `offload`; by default the policy's, or 4 hours.
    max_memory
        Bytes (or text) that the moves under way may hold together: a move for each 96 MiB, and at least one. Other
        blocks wait in the hot store, and are read from there later.
    on_change
        Called with a path and its status when a block has moved, or when the error is another than before.

    Raises
    ------
    UnknownTierError
        The filesystem has no such tier.
    ValueError
        A number or a name cannot be meant, or no path is given.
    """

    def __init__(
        self,
        paths: str | Iterable[str],
        tier: str | None = None,
        block_bytes: int | str | None = None,
        max_delay: float | str | None = None,
        *,
        fs: AbstractFileSystem,
        deletion_lag: float | str | None = None,
        max_memory: int | str = MEMORY_BYTES_DEFAULT,
        on_change: Told | None = None,
    ) -> None:
        given = OffloadPolicy(tier, None, None, deletion_lag, block_bytes, max_delay)
        memory_bytes = parse_bytes(max_memory)
        if memory_bytes < 1:
            raise ValueError(f"max_memory is {memory_bytes}: it must be at least 1 byte")
        below = core(fs)
        found = dict.fromkeys(map(below.strip, [paths] if isinstance(paths, str) else paths))
        if not found:
            raise ValueError("a follower needs at least one segment or folder to follow")
        if tier is not None:
            check_tier(below.client.backend, tier, next(iter(found)))
        self._following = Following(below.client, given)
        for path in found:
            self._following.add(path)
        self._bridge = below.bridge
        self._moves_max = max(1, memory_bytes // REWRITE_BYTES_MAX)
        self._on_change = on_change
        self._told: dict[str, tuple[int, str | None]] = {}
        self._queue: list[tuple[float, str]] = []
        """When segments are due, by the monotonic clock; a heap. A segment's newest entry counts."""
        self._due_s: dict[str, float] = {}
        self._retry_s: dict[str, float] = {}
        self._poll_s = POLL_S_MAX
        """The shortest pause between two listings that a segment asks for."""
        self._listed_s = -math.inf
        self._busy: dict[str, asyncio.Task[float]] = {}
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._is_ended = False
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._following.followed)} segments>"

    def status(self) -> Mapping[str, OffloadStatus]:
        """Return the status of each segment, by its path, as the last looks have shown; sends no request."""
        return {path: one.status for path, one in list(self._following.followed.items())}

    # -- running -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Follow until `stop`, or, without a folder, until all segments are sealed and wholly in the tier.

        Ctrl-C lets the blocks under way come to their end; a second Ctrl-C does not, and loses no byte.
        """
        asyncio.run(self._run_in_threads())

    async def _run_in_threads(self) -> None:
        workers = ThreadPoolExecutor(LOOKS_AT_ONCE_MAX + self._moves_max, "rollingfs-follower")
        asyncio.get_running_loop().set_default_executor(workers)
        await self._run()

    async def _run(self) -> None:
        """`run`, on the caller's event loop; to cancel it is to stop it, and waits for the blocks under way."""
        self._loop, self._wake, self._is_ended = asyncio.get_running_loop(), asyncio.Event(), False
        looks, moves = asyncio.Semaphore(LOOKS_AT_ONCE_MAX), asyncio.Semaphore(self._moves_max)
        for path in self._following.followed:
            self._plan(path, 0.0)
        try:
            while not self._stopped.is_set() and (self._busy or self._due_s or self._following.folders):
                self._wake.clear()
                await self._list()
                self._begin(looks, moves)
                await self._sleep()
                self._raise()
        finally:
            self._is_ended = True
            if self._busy:
                await asyncio.wait(list(self._busy.values()))
            self._loop = None
        self._raise()

    def _raise(self) -> None:
        """Raise the error of a callback in a task."""
        error, self._failed = self._failed, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """End `run` once the blocks under way have moved; from any thread, or from a signal handler."""
        self._stopped.set()
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(wake.set)

    def start(self) -> Follower:
        """Follow in a thread of its own; `close` ends it."""
        if self._thread is not None:
            raise RuntimeError("the follower was started already")
        self._thread = threading.Thread(target=self._run_here, name="rollingfs-follower", daemon=True)
        self._thread.start()
        return self

    def _run_here(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - `close` raises it
            self._error = error

    def close(self) -> None:
        """Stop, and wait until the blocks under way have moved; raises what ended the thread before."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Follower:
        return self.start()

    def __exit__(self, *exc: Any) -> None:
        self.close()

    # -- what is due -----------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """List the folders, if it is time; what has changed is due now."""
        if not self._following.folders or time.monotonic() < self._listed_s + self._poll_s:
            return
        try:
            due = await self._bridge.arun(self._following.look_around())
        except OSError as error:
            logger.warning("not all folders can be listed now, so nothing new is followed: %s", error)
            due = []
        self._listed_s = time.monotonic()
        self._poll_s = min((one.poll_s_max for one in self._following.unnamed()), default=POLL_S_MAX)
        for path in self._due_s.keys() - self._following.followed.keys() - self._busy.keys():
            self._forget(path)
        for one in due:
            if one.path not in self._retry_s:
                self._plan(one.path, 0.0)

    def _plan(self, path: str, pause_s: float) -> None:
        at_s = time.monotonic() + pause_s
        if at_s < math.inf:
            self._due_s[path] = at_s
            heapq.heappush(self._queue, (at_s, path))
        else:
            self._forget(path)

    def _forget(self, path: str) -> None:
        self._due_s.pop(path, None)
        self._retry_s.pop(path, None)
        self._told.pop(path, None)

    def _begin(self, looks: asyncio.Semaphore, moves: asyncio.Semaphore) -> None:
        """Begin to look at the segments that are due, some at a time."""
        while self._queue and len(self._busy) < BUSY_MAX and self._queue[0][0] <= time.monotonic():
            at_s, path = heapq.heappop(self._queue)
            one = self._following.followed.get(path)
            if one is None or path in self._busy or self._due_s.get(path) != at_s:
                continue
            del self._due_s[path]
            task = self._busy[path] = asyncio.ensure_future(self._follow(one, looks, moves))
            task.add_done_callback(partial(self._done, path))

    def _done(self, path: str, task: asyncio.Task[float]) -> None:
        del self._busy[path]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._plan(path, task.result())
        else:
            self._failed = self._failed or error
        assert self._wake is not None
        self._wake.set()

    async def _sleep(self) -> None:
        """Wait until something is due, a task is done, or all ends."""
        assert self._wake is not None
        times = [self._queue[0][0]] if self._queue and len(self._busy) < BUSY_MAX else []
        if self._following.folders:
            times.append(self._listed_s + self._poll_s)
        pause_s = max(0.0, min(times, default=math.inf) - time.monotonic())
        with contextlib.suppress(TimeoutError):
            if not self._stopped.is_set() and (self._busy or times):
                await asyncio.wait_for(self._wake.wait(), None if pause_s == math.inf else pause_s)

    # -- one segment ---------------------------------------------------------------------------------------

    async def _follow(self, one: Followed, looks: asyncio.Semaphore, moves: asyncio.Semaphore) -> float:
        """Look at a segment, move a block of it if that is due; returns the pause until the next look."""
        left_s = self._retry_s.get(one.path, 0.0) - time.monotonic()
        if left_s > 0:  # what failed is tried again later: see meanwhile how the segment grows
            async with looks:
                is_over = await self._bridge.arun(one.glance())
            if not is_over:
                return min(one.poll_s_max, left_s)
        self._retry_s.pop(one.path, None)
        listed = self._following.listed(one.path)
        async with looks:
            now: Wait | Move = await self._bridge.arun(one.look())
            if one.is_missing and await self._bridge.arun(self._following.is_folder(one.path)):
                self._listed_s = -math.inf
                return math.inf
        if isinstance(now, Move):
            now = await self._moved(one, now, moves)
        self._tell(one)
        return self._pause_s(one, now, listed)

    def _pause_s(self, one: Followed, now: Wait, listed: str | None) -> float:
        is_named = self._following.is_named(one.path)
        has_no_policy = one.tier is None and one.status.last_error is None
        if now.is_over or (not is_named and (one.is_missing or has_no_policy)):
            self._following.end(one, listed)
            return math.inf
        if not is_named:
            self._poll_s = min(self._poll_s, one.poll_s_max)
        if one.status.last_error is not None and not one.is_moving:
            self._retry_s[one.path] = time.monotonic() + now.pause_s
            return min(one.poll_s_max, now.pause_s)
        return now.pause_s if is_named or not now.due_s else now.due_s

    async def _moved(self, one: Followed, block: Move, moves: asyncio.Semaphore) -> Wait:
        """Move a block, once there is room for it."""
        async with moves:
            if self._is_ended or self._stopped.is_set():
                return Wait(0.0)
            return await self._bridge.arun(one.move(block))

    def _tell(self, one: Followed) -> None:
        status = one.status
        news = (status.cold_end, status.last_error)
        if self._on_change is not None and self._told.get(one.path) != news:
            self._told[one.path] = news
            self._on_change(one.path, status)
