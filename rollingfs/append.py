"""Appends: those that wait for the same segment are gathered into one commit."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from rollingfs import layout, transitions
from rollingfs.attempt import Attempt, Slot
from rollingfs.chunks import Stored
from rollingfs.commit import Committer
from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown, RollingError
from rollingfs.header import Chunk, Entry, Header, Page
from rollingfs.headers import Loaded
from rollingfs.layout import Item, Spill
from rollingfs.transitions import Guard

GROUP_APPENDS_MAX = 1024
GROUP_BYTES_MAX = 16 * 1024 * 1024
LINGER_SHARE = 0.4
"""Of a commit's time: so long is waited for those who have just been answered, and may append again."""
LINGER_STEP_SHARE = 0.05
"""Of that time: how often it is looked whether they are there."""
UPLOADS_MAX = 8
"""How many chunks of one commit are written at once."""


@dataclass(eq=False)
class Append:
    """One caller's append, waiting for its turn."""

    data: Sequence[bytes | Stored]
    guard: Guard = field(default_factory=Guard)
    attrs: Mapping[str, str] = field(default_factory=dict)
    offset: int = -1
    """Where its data begins, once it is done."""
    header: Header | None = None
    """What its commit made, once it is done; what it met if there was nothing to do."""
    error: BaseException | None = None
    done: bool = False
    named: set[str] = field(default_factory=set)
    """Chunk references that attempts which were sent have named: only collection may delete them."""

    @property
    def inline_size(self) -> int:
        return sum(len(item) for item in self.data if isinstance(item, bytes))

    def fail(self, error: BaseException) -> None:
        self.error, self.done = error, True


class Appender:
    """Gathers appends; whoever gets a segment's slot commits for all that wait."""

    def __init__(self, committer: Committer) -> None:
        self.committer = committer
        self._queues: dict[str, deque[Append]] = {}
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """In a child process: nobody waits, and nobody holds the lock."""
        self._queues = {}
        self._lock = threading.Lock()

    async def append(self, path: str, append: Append) -> Append:
        """Commit an append, alone or with others.

        Raises
        ------
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        RollingError, FileNotFoundError
            Its guard, or the segment's state, forbids it; nothing was written.
        """
        with self._lock:
            self._queues.setdefault(path, deque()).append(append)
        await self.committer.runtime.shield(self._lead(path, append))
        if append.error is not None:
            raise append.error
        return append

    async def _lead(self, path: str, append: Append) -> None:
        slot = self.committer.slot(path)
        deadline_s = self.committer.deadline_s()
        try:
            while not append.done:
                try:
                    async with slot.lock.held():
                        if not append.done:
                            await self._commit_group(path, slot, deadline_s)
                except transitions.MergeFoundError as found:
                    await self.committer.resolve_merge(path, found)
        except BaseException as error:  # noqa: BLE001 - it is the caller's outcome, raised there
            self._leave(path, append, error)

    def _leave(self, path: str, append: Append, error: BaseException) -> None:
        """The caller breaks off: an append of its own that still waits was not committed."""
        with self._lock:
            queue = self._queues.get(path, deque())
            is_waiting = append in queue
            if is_waiting:
                queue.remove(append)
        if isinstance(error, KeyboardInterrupt):
            append.fail(_interruption(path, append, is_waiting, error))
        elif not append.done:
            append.fail(error)

    def _take(self, path: str) -> list[Append]:
        group: list[Append] = []
        size = 0
        with self._lock:
            queue = self._queues.get(path, deque())
            while queue and len(group) < GROUP_APPENDS_MAX:
                size += queue[0].inline_size
                if group and size > GROUP_BYTES_MAX:
                    break
                group.append(queue.popleft())
            if not queue:
                self._queues.pop(path, None)
        return group

    def _give_back(self, path: str, group: Sequence[Append]) -> None:
        with self._lock:
            waiting = [append for append in group if not append.done]
            self._queues.setdefault(path, deque()).extendleft(reversed(waiting))

    def _waiting(self, path: str) -> int:
        with self._lock:
            return len(self._queues.get(path, ()))

    async def _linger(self, path: str, slot: Slot) -> None:
        """Wait for as many appends as there were last time: else threads split into two groups that take turns."""
        linger_s = slot.turns.commit_s * LINGER_SHARE
        until_s = time.monotonic() + linger_s
        while self._waiting(path) < slot.turns.together and time.monotonic() < until_s:
            await self.committer.runtime.sleep(linger_s * LINGER_STEP_SHARE)

    async def _commit_group(self, path: str, slot: Slot, deadline_s: float) -> None:
        await self._linger(path, slot)
        group = self._take(path)
        plan = _Group(self.committer, path, group)
        named: set[str] = set()
        try:
            committed = await self.committer.commit_held(
                path, slot, plan.step, fresh=plan.is_large, deadline_s=deadline_s, named=named
            )
        except transitions.MergeFoundError:
            self._give_back(path, group)
            raise
        except AppendInterrupted as interrupt:
            self._interrupted(path, plan, interrupt)
            raise
        except Exception as error:  # noqa: BLE001 - it is raised by each of them, in its own thread
            plan.fail(error)
        except BaseException as error:
            unknown = AppendOutcomeUnknown(f"{path}: the commit of this append was broken off by {error!r}")
            plan.fail(unknown)
            raise
        else:
            assert committed.header is not None
            plan.succeed(committed.header)
        finally:
            slot.turns.together = len(group) + self._waiting(path)
            for append in group:  # who waits for the slot looks at it when this is over
                append.named |= named

    def _interrupted(self, path: str, plan: _Group, interrupt: AppendInterrupted) -> None:
        """Ctrl-C hit the leader: the others of its group are told what is known, or are tried again."""
        seen = self.committer.headers.seen(path)
        if interrupt.outcome == "committed" and seen is not None and seen.header is not None:
            plan.succeed(seen.header)
        elif interrupt.outcome == "not committed":
            self._give_back(path, plan.group)
        else:
            plan.fail(AppendOutcomeUnknown(f"{path}: the thread that committed for this append was interrupted"))


def _interruption(path: str, append: Append, is_waiting: bool, error: KeyboardInterrupt) -> AppendInterrupted:
    """What is known of an append when Ctrl-C hits its caller."""
    if isinstance(error, AppendInterrupted):
        return error
    if append.done and append.error is None:
        outcome = "committed"
    elif is_waiting or (append.done and not isinstance(append.error, AppendOutcomeUnknown)):
        outcome = "not committed"
    else:
        outcome = "unknown"  # another thread is committing it
    return AppendInterrupted(f"{path}: interrupted; the append is {outcome}", outcome)


class _Group:
    """A group of appends as one step of the commit loop."""

    def __init__(self, committer: Committer, path: str, group: Sequence[Append]) -> None:
        self.committer = committer
        self.path = path
        self.group = group
        self._offsets: dict[Append, int] = {}

    @property
    def is_large(self) -> bool:
        """Whether chunk files were uploaded for it.

        Then it begins with the header as it is after that, so that a refusal finds them named by no attempt, and
        they can be deleted; beside an upload the request is cheap.
        """
        return any(isinstance(item, Stored) for append in self.group for item in append.data)

    def succeed(self, header: Header) -> None:
        for append, offset in self._offsets.items():
            append.offset, append.header, append.done = offset, header, True

    def fail(self, error: Exception) -> None:
        for append in self.group:
            if not append.done:
                append.fail(error)

    async def step(self, base: Loaded, attempt: Attempt) -> Header | None:
        """The header with all appends of the group that it allows; the others fail, if it is fresh."""
        header = base.header
        items: list[Item] = []
        self._offsets = {}
        for append in self.group:
            if append.done:
                continue
            offset = (header.length if header else 0) + sum(_size(item) for item in items)
            try:
                admitted = self._admit(header, append, offset)
                added = await as_items(self.committer, self.path, append.data, attempt)
            except transitions.MergeFoundError:
                raise
            except (RollingError, FileNotFoundError, ValueError) as error:
                if not attempt.fresh:
                    raise
                append.fail(error)
                continue
            header = admitted
            self._offsets[append] = offset
            items += added
        if not self._offsets or header is None:
            return None
        if not items and header is base.header:
            return None
        return await grow(self.committer, self.path, header, items, attempt)

    def _admit(self, header: Header | None, append: Append, offset: int) -> Header:
        found = transitions.check(header, append.guard, self.path, length=offset)
        transitions.check_open(found, self.path)
        return transitions.with_attrs(found, append.attrs, self.path)


def _size(item: Item) -> int:
    return len(item) if isinstance(item, bytes) else item.length


async def as_items(committer: Committer, path: str, data: Sequence[bytes | Stored], attempt: Attempt) -> list[Item]:
    """Bytes as they are; stored chunks as entries, written again where the age rule asks for it."""
    items: list[Item] = []
    store_now = None
    if any(isinstance(item, Stored) and item.staged for item in data):
        store_now = await committer.backend.now()
    for item in data:
        if isinstance(item, bytes):
            items += [item] if item else []
        else:
            renewed = await committer.chunks.young(attempt.renewed.get(item, item), store_now)
            if renewed is not item:
                attempt.renewed[item] = renewed
            items.append(renewed.chunk(path, 0))
    return items


async def grow(
    committer: Committer, path: str, header: Header, items: Sequence[Item], attempt: Attempt, *, joint: bool = False
) -> Header:
    """Put items behind a header's content, writing as chunks what does not stay inline.

    With `joint`, several small pieces between entries share a file, so that a concat of many sources with
    inline tails costs no request for each.
    """
    now_ms = committer.now_ms()
    policy = header.policy
    aged = policy.max_age is not None and bool(header.tail) and now_ms - header.tail_at_ms > policy.max_age * 1000
    placed, tail = layout.arrange(header.tail, items, policy, spill_all=aged)
    spills = [item.data for item in placed if isinstance(item, Spill)]
    if joint and len(spills) > 1:
        pieces = iter(await _joint(committer, path, spills, policy.max_bytes, attempt))
        shared = [next(pieces) if isinstance(item, Spill) else item for item in placed]
        return transitions.extend(header, layout.place(shared, header.tail_start), tail, now_ms)
    written = iter(await _each(committer, path, header, placed, attempt))
    entries: list[Entry] = [next(written) if isinstance(item, Spill) else item for item in placed]
    return transitions.extend(header, layout.place(entries, header.tail_start), tail, now_ms)


async def _each(
    committer: Committer, path: str, header: Header, placed: Sequence[Spill | Entry], attempt: Attempt
) -> list[Chunk]:
    """Write each spill as a chunk of its own, several at a time; beside them the index pages that they make due."""
    seen: Counter[bytes] = Counter()
    start = header.tail_start
    calls: list[Callable[[], Awaitable[Chunk | None]]] = []
    for item in placed:
        if isinstance(item, Spill):
            seen[item.data] += 1
            calls.append(partial(_written, committer, path, item.data, seen[item.data], start, attempt))
        start += len(item.data) if isinstance(item, Spill) else item.length
    if placed and not any(isinstance(item, Page) for item in placed):
        calls.append(partial(committer.pages.fold_ahead, path, header.entries, len(placed), attempt.pages))
    written = await committer.runtime.gather(calls, UPLOADS_MAX)
    return [chunk for chunk in written if chunk is not None]


async def _joint(
    committer: Committer, path: str, spills: Sequence[bytes], size_max: int, attempt: Attempt
) -> list[Chunk]:
    """Write pieces into as few files as `size_max` allows; one entry for each piece, to be placed."""
    entries: list[Chunk] = []
    groups: list[list[bytes]] = [[]]
    for data in spills:
        if groups[-1] and sum(map(len, groups[-1])) + len(data) > size_max:
            groups.append([])
        groups[-1].append(data)
    for nth, group in enumerate(groups):
        data = b"".join(group)
        stored = attempt.uploads.get((data, -nth - 1))
        if stored is None:
            stored = await committer.chunks.write_shared(path, data)
        else:
            stored = await committer.chunks.young(stored, None)
        attempt.uploads[data, -nth - 1] = stored
        whole, offset = stored.chunk(path, 0), 0
        for piece in group:
            entries.append(replace(whole, length=len(piece), offset=offset, size=stored.size))
            offset += len(piece)
    return entries


async def _written(committer: Committer, path: str, data: bytes, nth: int, start: int, attempt: Attempt) -> Chunk:
    """Write bytes as a chunk, once for all attempts of a commit (but again when they have grown too old).

    Equal bytes that come twice are two chunks (`nth`): one file must not be named by two entries, because the
    truncation of one would delete the other's bytes.
    """
    stored = attempt.uploads.get((data, nth))
    if stored is None:
        stored = await committer.chunks.write(path, data, start)
    else:
        stored = await committer.chunks.young(stored, None)
    attempt.uploads[data, nth] = stored
    return stored.chunk(path, start)
