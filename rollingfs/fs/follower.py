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
from rollingfs.folders.collect_tree import Tree, tree_below
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.policy import TIER_DEFAULT, OffloadPolicy, parse_bytes
from rollingfs.segment.files.rewrite import REWRITE_BYTES_MAX
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.stream.blocks import POLL_S_MAX, Move, OffloadStatus, Wait
from rollingfs.stream.follow import Followed
from rollingfs.stream.ledger import Ledgers, Policies
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.upkeep import OFFLOAD, Upkeep

logger = logging.getLogger("rollingfs")

MEMORY_BYTES_DEFAULT = 256 * 1024 * 1024
LOOKS_AT_ONCE_MAX = 8
"""Threads in addition to the threads that move blocks."""
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
        memory_bytes = parse_bytes(max_memory)
        if memory_bytes < 1:
            raise ValueError(f"max_memory is {memory_bytes}: it must be at least 1 byte")
        below = core(fs)
        found = dict.fromkeys(map(below.strip, [paths] if isinstance(paths, str) else paths))
        if not found:
            raise ValueError("a follower needs at least one segment or folder to follow")
        if tier is not None:
            check_tier(below.client.backend, tier, next(iter(found)))
        self._client, self._bridge = below.client, below.bridge
        self._given = OffloadPolicy(tier, None, None, deletion_lag, block_bytes, max_delay)
        """Options that count before all policies; with a tier, no policy counts."""
        self._followed: dict[str, Followed] = {}
        """The given segments, and all below the folders that may need a step."""
        self._folders = set(filter(below.client.contents.is_top, found))
        for path in (one for one in found if one not in self._folders):
            ask = partial(self._ask, True)
            self._followed[path] = Followed(self._client, names.check_new_name(path), ask, is_named=True)
        self._upkeep = Upkeep(self._client, (OFFLOAD,))
        """Its rounds are the listings of the folders, and it remembers the segments that need no step."""
        self._moves_max = max(1, memory_bytes // REWRITE_BYTES_MAX)
        self._on_change = on_change
        self._queue: list[tuple[float, str]] = []
        """When segments are due, by the monotonic clock; a heap. A segment's newest entry counts."""
        self._list_s = -math.inf
        """When the folders are listed next, by the monotonic clock."""
        self._busy: dict[str, asyncio.Task[float]] = {}
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._followed)} segments>"

    def status(self) -> Mapping[str, OffloadStatus]:
        """Return the status of each segment, by its path, as the last looks have shown; sends no request."""
        return {path: one.status for path, one in list(self._followed.items())}

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
        """Run as `run` does, on the caller's event loop; a cancel stops it, and waits for the blocks under way."""
        self._prepare()
        try:
            while not self._stopped.is_set() and (self._busy or self._queue or self._folders):
                self._wake.clear()
                await self._list()
                self._begin()
                await self._sleep()
        except BaseException:
            self._stopped.set()  # so that no further block begins
            raise
        finally:
            if self._busy:
                await asyncio.wait(list(self._busy.values()))
            self._loop = None
        self._raise()

    def _prepare(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        self._moves = asyncio.Semaphore(self._moves_max)
        for path in [path for path, one in self._followed.items() if one.due_s == math.inf]:
            self._plan(path, 0.0)

    def _raise(self) -> None:
        """Raise the error of a callback, or of the thread."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """End `run` once the blocks under way have moved; from any thread, or from a signal handler."""
        self._stopped.set()
        if (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._wake.set)

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
        self._raise()

    def __enter__(self) -> Follower:
        return self.start()

    def __exit__(self, *exc: Any) -> None:
        self.close()

    # -- what is due -----------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """List the folders, if it is time; segments that are new or have changed are due now."""
        if not self._folders or time.monotonic() < self._list_s:
            return
        try:
            tree = await self._bridge.arun(tree_below(self._client, *sorted(self._folders)))
            await self._bridge.arun(self._upkeep.take(tree))
        except OSError as error:
            logger.warning("not all folders can be listed now, so nothing new is followed: %s", error)
        else:
            self._take(tree)
        found = (one.poll_s_max for one in self._followed.values() if not one.is_named)
        self._list_s = time.monotonic() + min(found, default=POLL_S_MAX)

    def _take(self, tree: Tree) -> None:
        """Plan a look at each segment that is new, has another header, or whose folders have another policy."""
        for path, error in tree.unlisted.items():
            logger.info("%s: not followed now, because it cannot be listed: %s", path, error)
        wanted = {path for path in tree.segments if not names.is_hidden_segment(path)}
        self._followed = {path: one for path, one in self._followed.items() if path in wanted or one.is_named}
        for path in sorted(wanted):
            one = self._followed.get(path)
            if (one is not None and one.is_named) or self._upkeep.rests(path, self._ledger(path)):
                continue
            if one is None:
                one = self._followed[path] = Followed(self._client, path, partial(self._ask, False))
            one.token = None
            self._plan(path, 0.0)

    def _ledger(self, path: str) -> Ledger | None:
        return self._upkeep.ledgers.by_folder.get(names.parent(path))

    def _plan(self, path: str, pause_s: float) -> None:
        if (one := self._followed.get(path)) is not None:
            one.due_s = time.monotonic() + pause_s
        if one is not None and pause_s < math.inf:
            heapq.heappush(self._queue, (one.due_s, path))

    def _begin(self) -> None:
        """Begin to look at the segments that are due, some at a time."""
        while self._queue and len(self._busy) < BUSY_MAX and self._queue[0][0] <= time.monotonic():
            at_s, path = heapq.heappop(self._queue)
            one = self._followed.get(path)
            if one is not None and one.due_s == at_s and path not in self._busy:
                task = self._busy[path] = asyncio.ensure_future(self._follow(one))
                task.add_done_callback(partial(self._done, path))

    def _done(self, path: str, task: asyncio.Task[float]) -> None:
        del self._busy[path]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._plan(path, task.result())
        else:
            self._error = error
            self._stopped.set()
        self._wake.set()

    async def _sleep(self) -> None:
        """Wait until something is due, a task is done, or all ends."""
        times = [self._queue[0][0]] if self._queue and len(self._busy) < BUSY_MAX else []
        times += [self._list_s] if self._folders else []
        if (self._busy or times) and not self._stopped.is_set():
            pause_s = max(0.0, min(times) - time.monotonic()) if times else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause_s)

    # -- one segment ---------------------------------------------------------------------------------------

    async def _ask(self, is_named: bool, path: str, own: OffloadPolicy | None, ledger: Ledger | None) -> Asked | None:
        """Return the tier and the times of a segment's blocks; without a policy, the default tier of a given one."""
        if self._given.tier is not None:
            return Asked.by(self._given)
        default = self._client.offload_policy
        if ledger is None and not is_named:
            ledger = self._ledger(path)
        if ledger is None:
            ledger = await Ledgers(self._client).resolved(names.parent(path))
        if is_named:
            named = OffloadPolicy(TIER_DEFAULT)
            default = named if default is None else default.over(named)
        return Asked.by(self._given.over(Policies(None, own, ledger.offload, default).offload))

    async def _follow(self, one: Followed) -> float:
        """Look at a segment, move a block of it if that is due; returns the pause until the next look."""
        listed, ledger = self._upkeep.tree.tokens.get(one.path), self._ledger(one.path)
        began_s = self._client.now_ms() / 1000
        now: Wait | Move = await self._bridge.arun(one.look())
        if one.is_missing and one.is_named and await self._bridge.arun(self._client.backend.is_folder(one.path)):
            self._folders.add(one.path)  # its segments are followed then
            del self._followed[one.path]
            self._list_s = -math.inf
            return math.inf
        if isinstance(now, Move):
            async with self._moves:
                now = Wait(0.0) if self._stopped.is_set() else await self._bridge.arun(one.move(now))
        self._tell(one)
        if one.is_named:
            return math.inf if now.is_over else now.pause_s
        has_no_policy = one.tier is None and one.status.last_error is None
        is_over = now.is_over or one.is_missing or has_no_policy
        token = one.token or (listed if is_over else None)  # a later listing may show the token of a new segment
        if token is not None:
            self._upkeep.let_rest(one.path, token, ledger, began_s)
        if is_over:
            self._followed.pop(one.path, None)
            return math.inf
        self._list_s = min(self._list_s, time.monotonic() + one.poll_s_max)
        return now.pause_s

    def _tell(self, one: Followed) -> None:
        status = one.status
        news = (status.cold_end, status.last_error)
        if self._on_change is not None and one.told != news:
            one.told = news
            self._on_change(one.path, status)
