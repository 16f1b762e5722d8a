"""`Follower`: moves growing segments to a tier, block by block, while writers and readers go on."""

from __future__ import annotations

import asyncio
import contextlib
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
from rollingfs.folders.collect_tree import tree_below
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.policy import TIER_DEFAULT, OffloadPolicy, parse_bytes
from rollingfs.runtime.interpreter import main_has_ended
from rollingfs.segment.files.rewrite import REWRITE_BYTES_MAX
from rollingfs.stream.blocks import POLL_S_MAX, Move, OffloadStatus, Wait
from rollingfs.stream.follow import Followed
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.upkeep import OFFLOAD, TIME_STEP_S, Upkeep

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
        self._folders = set(filter(below.client.contents.is_top, found))
        self._named = {names.check_new_name(path): None for path in found if path not in self._folders}
        """The given segments; others were found below a folder."""
        self._paths = dict(self._named)
        """All segments, first those that were looked at longest ago."""
        default, named = self._client.offload_policy, OffloadPolicy(TIER_DEFAULT)
        named = named if default is None else default.over(named)
        self._followed = {path: Followed(self._client, path, self._given, named) for path in self._paths}
        """The given segments, and all below the folders that a policy counts for."""
        self._moves_max = max(1, memory_bytes // REWRITE_BYTES_MAX)
        self._on_change = on_change
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._is_stopped = False
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
            while not self._is_stopped:
                self._wake.clear()
                await self._list()
                pause_s = self._begin()
                if pause_s == math.inf and not self._busy:
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), None if pause_s == math.inf else pause_s)
        except BaseException:
            self._is_stopped = True  # so that no further block begins
            raise
        finally:
            if self._busy:
                await asyncio.wait(list(self._busy.values()))
            self._loop = None
        self._raise()

    def _prepare(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        self._moves = asyncio.Semaphore(self._moves_max)
        self._upkeep = Upkeep(self._client, (OFFLOAD,))
        """Its rounds are the listings of the folders, and it remembers when each segment is due."""
        self._list_s = -math.inf
        """When the folders are listed next, by the monotonic clock."""

    def _raise(self) -> None:
        """Raise the error of a callback, or of the thread."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """End `run` once the blocks under way have moved; from any thread, or from a signal handler."""
        self._is_stopped = True
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
            if not main_has_ended():
                logger.error(
                    "the follower of %s has ended: %r", ", ".join(sorted({*self._named, *self._folders})), error
                )

    def has_failed(self) -> bool:
        """Return whether an error has ended the thread; `close` raises it."""
        return self._error is not None

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
            for path, reason in tree.unlisted.items():
                logger.info("%s: not followed now, because it cannot be listed: %s", path, reason)
            wanted = {*self._named, *(path for path in tree.segments if not names.is_hidden_segment(path))}
            self._paths = {path: None for path in (*self._paths, *sorted(wanted)) if path in wanted}
            self._followed = {path: one for path, one in self._followed.items() if path in wanted}
        found = (one.poll_s_max for path, one in self._followed.items() if path not in self._named)
        self._list_s = time.monotonic() + min(found, default=POLL_S_MAX)

    def _ledger(self, path: str) -> Ledger | None:
        return self._upkeep.ledgers.by_folder.get(names.parent(path))

    def _begin(self) -> float:
        """Begin to look at segments that are due, some at a time; return the pause until a listing or another look."""
        pause_s = max(0.0, self._list_s - time.monotonic()) if self._folders else math.inf
        for path in [path for path in self._paths if path not in self._busy]:
            if len(self._busy) >= BUSY_MAX:
                break  # the end of any of them wakes us
            if (left_s := self._upkeep.rest_s(path, self._ledger(path))) > 0:
                pause_s = min(pause_s, left_s)
                continue
            self._paths[path] = self._paths.pop(path)
            task = self._busy[path] = asyncio.ensure_future(self._follow(path))
            task.add_done_callback(partial(self._done, path))
        return pause_s

    def _done(self, path: str, task: asyncio.Task[None]) -> None:
        del self._busy[path]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._error = error
            self._is_stopped = True
        self._wake.set()

    # -- one segment ---------------------------------------------------------------------------------------

    async def _follow(self, path: str) -> None:
        """Look at a segment, move a block of it if that is due, and note when it is due again."""
        one = self._followed.get(path) or Followed(self._client, path, self._given, self._client.offload_policy)
        upkeep, is_named, ledger = self._upkeep, path in self._named, self._ledger(path)
        listed, number, began_s = upkeep.tree.tokens.get(path), upkeep.round, self._client.now_ms() / 1000
        now: Wait | Move = Wait(0.0)
        self._followed[path] = one
        try:
            now = await self._look(one, ledger)
            if path not in self._paths:
                return
            if isinstance(now, Move):
                async with self._moves:
                    now = Wait(0.0) if self._is_stopped else await self._bridge.arun(one.move(now))
            elif one.tier is None and not is_named:
                now = Wait(math.inf, is_over=True)
        except Exception as error:
            if main_has_ended():
                raise  # no thread can begin any longer
            now = one.failed(error, is_move=isinstance(now, Move))
        self._tell(one)
        is_over = now.is_over and not (is_named and one.token is None)  # a missing segment may come
        pause_s = math.inf if is_over else min(one.poll_s_max, now.pause_s) if is_named else now.pause_s
        if not is_named and is_over:
            self._followed.pop(path, None)
        elif not is_named:
            self._list_s = min(self._list_s, time.monotonic() + one.poll_s_max)
        until_s = self._client.now_ms() / 1000 + pause_s + (TIME_STEP_S if pause_s else 0.0)
        upkeep.let_rest(path, one.token or listed, ledger, began_s, until_s, number)

    async def _look(self, one: Followed, ledger: Ledger | None) -> Wait | Move:
        """Look at a segment; follow the segments below, if the path is a folder."""
        try:
            return await self._bridge.arun(one.look(ledger))
        except FileNotFoundError:
            path = one.path
            if path not in self._named or not await self._bridge.arun(self._client.backend.is_folder(path)):
                raise
            self._folders.add(path)
            self._list_s = -math.inf
            del self._named[path], self._followed[path], self._paths[path]
            return Wait(math.inf)

    def _tell(self, one: Followed) -> None:
        status = one.status
        news = (status.cold_end, status.last_error)
        if self._on_change is not None and one.told != news:
            one.told = news
            self._on_change(one.path, status)
