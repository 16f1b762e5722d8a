"""`Follower`: moves growing segments to a tier, block by block, while writers and readers go on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsspec import AbstractFileSystem

from rollingfs.commit.chunk_files import CHECK_BYTES_MAX
from rollingfs.fs.core import core
from rollingfs.maintenance.offload import COPIES_AT_ONCE_MAX
from rollingfs.policy import DELETION_LAG_S, parse_bytes, parse_seconds
from rollingfs.stream.blocks import BLOCK_BYTES, MAX_DELAY_S, BlockRule, Move, OffloadStatus, Wait
from rollingfs.stream.follow import Followed

MEMORY_BYTES_DEFAULT = 256 * 1024 * 1024
MOVE_BYTES_MAX = COPIES_AT_ONCE_MAX * 2 * CHECK_BYTES_MAX
"""What one move may hold: some copies, each with a piece that was read and a part that is sent."""
LOOKS_AT_ONCE_MAX = 8

Told = Callable[[str, OffloadStatus], None]


class Follower:
    """Follows growing segments, and moves them to a tier block by block; readers and writers see no difference.

    A block is the oldest bytes that are not in the tier yet. Once the block has `block_bytes`, or its oldest byte is
    `max_delay` old, or the segment is sealed, the follower rolls the segment if need be, and offloads the block.
    Between blocks it polls: an unchanged header is one conditional request without a body.

    A follower keeps nothing but what the headers say. So any other may take its place after a crash, and two that
    follow one segment are safe. Writers never wait for a follower. A segment that fails is tried again, after
    pauses that grow to 5 minutes, and does not stop the others.

    It is also a context: it follows in a thread of its own until the block of the context ends.

    Parameters
    ----------
    paths
        The segments, or one of them. A plain file is not followed, because another program may still write it.
    tier
        The alias of one of the filesystem's `tiers`.
    block_bytes
        Bytes (or text like ``"64MiB"``) of a full block.
    max_delay
        Seconds (or text like ``"600s"``) after which a block moves although it is not full.
    fs
        The filesystem.
    deletion_lag
        For how long the old files stay, as in `offload`.
    max_memory
        Bytes (or text) that the moves under way may hold together: one move for each 64 MiB, and at least one. Other
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
        tier: str = "cold",
        block_bytes: int | str = BLOCK_BYTES,
        max_delay: float | str = MAX_DELAY_S,
        *,
        fs: AbstractFileSystem,
        deletion_lag: float | str = DELETION_LAG_S,
        max_memory: int | str = MEMORY_BYTES_DEFAULT,
        on_change: Told | None = None,
    ) -> None:
        rule, lag_s = BlockRule.parse(block_bytes, max_delay), parse_seconds(deletion_lag)
        if lag_s < 0:
            raise ValueError(f"deletion_lag is {lag_s} s: it must be at least 0")
        memory_bytes = parse_bytes(max_memory)
        if memory_bytes < 1:
            raise ValueError(f"max_memory is {memory_bytes}: it must be at least 1 byte")
        below = core(fs)
        found = dict.fromkeys(map(below.to_write, [paths] if isinstance(paths, str) else paths))
        if not found:
            raise ValueError("a follower needs at least one segment to follow")
        self._followed = [Followed(below.client, path, tier, rule, lag_s) for path in found]
        self._bridge = below.bridge
        self._moves_max = max(1, memory_bytes // MOVE_BYTES_MAX)
        self._on_change = on_change
        self._told: dict[str, tuple[int, str | None]] = {}
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._followed)} segments>"

    def status(self) -> Mapping[str, OffloadStatus]:
        """How far each segment is, by its path, as the last looks have shown; asks the store nothing."""
        return {one.path: one.status for one in self._followed}

    # -- running -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Follow until `stop`, or until all segments are sealed and wholly in the tier.

        Ctrl-C lets the blocks under way come to their end; a second Ctrl-C does not, and loses nothing.
        """
        asyncio.run(self._run_in_threads())

    async def _run_in_threads(self) -> None:
        workers = ThreadPoolExecutor(LOOKS_AT_ONCE_MAX + self._moves_max, "rollingfs-follower")
        asyncio.get_running_loop().set_default_executor(workers)
        await self._run()

    async def _run(self) -> None:
        """`run`, on the caller's event loop; to cancel it is to stop it, and waits for the blocks under way."""
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        if self._stopped.is_set():
            return
        looks, moves = asyncio.Semaphore(LOOKS_AT_ONCE_MAX), asyncio.Semaphore(self._moves_max)
        tasks = [asyncio.ensure_future(self._follow(one, looks, moves)) for one in self._followed]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._ended.set()
            await asyncio.wait(tasks)
            self._loop = None
        for task in tasks:
            task.result()

    def stop(self) -> None:
        """End `run` once the blocks under way have moved; from any thread, or from a signal handler."""
        self._stopped.set()
        loop, ended = self._loop, self._ended
        if loop is not None and ended is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(ended.set)

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

    # -- one segment ---------------------------------------------------------------------------------------

    async def _follow(self, one: Followed, looks: asyncio.Semaphore, moves: asyncio.Semaphore) -> None:
        assert self._ended is not None
        while not self._stopped.is_set() and not self._ended.is_set():
            async with looks:
                now: Wait | Move = await self._bridge.arun(one.look())
            if isinstance(now, Move):
                now = await self._moved(one, now, moves)
            self._tell(one)
            if now.is_over:
                return
            await self._pause(one, now.pause_s, looks)

    async def _pause(self, one: Followed, pause_s: float, looks: asyncio.Semaphore) -> None:
        """Wait; if that is long, because the tier is away, see meanwhile how the segment grows."""
        assert self._ended is not None
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), min(pause_s, one.poll_s_max))
            pause_s -= one.poll_s_max
            if pause_s <= 0:
                return
            async with looks:
                await self._bridge.arun(one.glance())

    async def _moved(self, one: Followed, block: Move, moves: asyncio.Semaphore) -> Wait:
        """Move a block, once there is room for it."""
        assert self._ended is not None
        async with moves:
            if self._ended.is_set():
                return Wait(0.0)
            return await self._bridge.arun(one.move(block))

    def _tell(self, one: Followed) -> None:
        status = one.status
        news = (status.cold_end, status.last_error)
        if self._on_change is not None and self._told.get(one.path) != news:
            self._told[one.path] = news
            self._on_change(one.path, status)
