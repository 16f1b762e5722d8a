"""One world: clients with clocks of their own on one store, and a list of drawn operations that they run."""

import asyncio
import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import rollingfs.segment.at
from rollingfs import RollingFileSystem
from rollingfs.backend.contract import Backend
from rollingfs.errors import (
    AppendOutcomeUnknown,
    CommitTimeoutError,
    CorruptChunkError,
    CorruptHeaderError,
    LostCommitError,
    NoSegmentError,
    RollingError,
    StagedExpiredError,
    TierFailedError,
    UnflushedError,
    UnsafeBackendError,
)
from rollingfs.format import names
from rollingfs.format.header import AGE_S_MAX, GRACE_S, Header
from rollingfs.policy import OffloadPolicy, RollingPolicy
from rollingfs.segment.at import At
from rollingfs.segment.commit.chunk_files import Staged
from rollingfs.segment.verbs.erase import Erased
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.retention import RetentionPolicy
from rollingfs.stream.upkeep import Upkeep
from tests.simulation import checks, model, stream_checks
from tests.simulation.clock import Wall
from tests.simulation.draw import MOVED, Handle, Op
from tests.simulation.faces import filesystem_of
from tests.simulation.faults import Way
from tests.simulation.history import Doing, History, Violation, running
from tests.simulation.lasting import Following, check_lasting
from tests.simulation.lies import Lies
from tests.simulation.logs import Shipping
from tests.simulation.model import Bound, Seg
from tests.simulation.plan import PATHS, Plan, Step
from tests.simulation.store import KINDS, Store
from tests.simulation.tables import Tables
from tests.simulation.threads import SimulatedThreads
from tests.simulation.verbs import Verbs
from tests.simulation.witness import PASSING, Witness
from tests.support.faults import Crashed, Fault

OUTSIDE = {"/topmost/notes.txt": b"a plain file", "/outside/a": b"of another folder", "/outside/a.log": b"a log"}
HEADERS_CACHED_S = (0.0, 0.0, 0.0, 5.0, 600.0)
COMMIT_TIMEOUTS_S = (1.5, 6.0, 6.0, 6.0, 60.0)
COMMIT_IS_LAST = {
    model.create, model.append, model.overwrite, model.write_new, model.seal, model.acquire, model.release,
    model.concat, model.rename,
}  # fmt: skip
"""Verbs that do nothing after their commit: after an error of the store they did not take effect."""
FAULTY_SHARES = (*[0.0] * 30, *[0.04] * 6, *[0.15] * 6, *[0.4] * 2, 1.0)


class World:
    """Runs a plan, and checks it."""

    stores = KINDS
    faulty_shares: Sequence[float] = FAULTY_SHARES

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed ^ 0x5EED)
        self.paths = PATHS[: plan.paths]
        self.folders = ("/top", "/top/sub", "/other", *([MOVED] if len(self.paths) == len(PATHS) else []))
        self.failure: Violation | None = None
        self.counts: Counter[str] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.tokens = 1
        self.handles: list[Handle] = []
        self.opened: list[tuple[str, str]] = []
        self.receipts: list[tuple[Staged, bytes, float]] = []
        self.bounds: dict[tuple[str, str], Bound] = {}
        self.cuts: list[tuple[str, StreamCut]] = []
        self.trims: dict[str, int] = {}
        """How far users have trimmed each incarnation: these bytes may go at any time, whoever needs them."""
        self.limited: set[str] = set()
        """Folders that have, or had, a policy that lets go what is unread."""
        self.doings: dict[asyncio.Task[None], Doing] = {}
        self.upkeeps: dict[At, Upkeep] = {}
        self.followers: dict[At, Following] = {}
        self.faces: dict[At, RollingFileSystem] = {}
        self.tables, self.shipping = Tables(), Shipping()
        self.lies = Lies(self, plan.lies)
        self._numbers = itertools.count(1)
        self.history = History(lambda: self.store.clock(), partial(stream_checks.check_step, self))
        self.witness = Witness(self.history, PATHS, self.fail, partial(stream_checks.check_remembered, self))
        self.policy = self.another_policy(self.chance)

    def another_policy(self, chance: random.Random) -> RollingPolicy:
        return RollingPolicy(
            max_bytes=chance.choice((8, 20, 64, 64, 200, 1000)),
            inline_bytes=chance.choice((0, 16, 64, 200, 1000)),
            max_age=chance.choice((None, None, None, 60)),
        )

    def new_number(self) -> int:
        return next(self._numbers)

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def fail(self, violation: Violation) -> None:
        """Keep the first broken rule: what comes after it may follow from it."""
        self.failure = self.failure or violation

    def digest(self) -> str:
        """A checksum of all that has happened, and of all files."""
        return hashlib.sha256(repr((self.history.trace(), self.store.snapshot())).encode()).hexdigest()

    # -- clients -----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        wall = Wall(self.chance)
        self.store: Store = self.chance.choice(self.stores)(wall, self.witness)
        self.witness.watch(self.store)
        for path, data in OUTSIDE.items():
            self.store.put_silently(path, data)
        self.outside, self.witness.outside = OUTSIDE, set(OUTSIDE)
        # a store without a clock is a disk: the machine's clock dates its files, and all of its clients are threads
        has_clock = self.store.capability.has_clock
        self.walls = [Wall(self.chance) if has_clock else wall for _ in range(self.plan.clients)]
        self.kinds = [self.chance.random() < 0.6 and has_clock for _ in self.walls]
        self.ways: list[Way] = []
        self.past: list[tuple[Way, At]] = []
        self.unknown: list[tuple[Sequence[str], Way]] = []
        """The paths of calls that may go on although their caller knows no more: their requests may be on the way."""
        self.clients = [self._client(index) for index in range(self.plan.clients)]

    def _client(self, index: int) -> At:
        way = Way(self.store, random.Random(self.chance.getrandbits(48)), self.faults, is_async=self.kinds[index])
        way.denials = random.Random(self.plan.seed + index) if self.plan.denies and not self.store.is_disk else None
        way.lies = self.lies if self.plan.lies and not self.store.is_disk else None
        self.ways[index:] = [way, *self.ways[index + 1 :]]
        client = self.client_on(
            way,
            self.walls[index],
            header_cache_s=self.chance.choice(HEADERS_CACHED_S),
            commit_timeout_s=self.chance.choice(COMMIT_TIMEOUTS_S),
        )
        client = replace(client, offload_policy=self.chance.choice((None, OffloadPolicy("cold", after_bytes=30))))
        self.past.append((way, client))
        return client

    def upkeep(self, client: At) -> Upkeep:
        """The upkeep of a process."""
        return self.upkeeps.setdefault(client, Upkeep(client, readers_grace_s=self.chance.choice((0.0, 600.0))))

    def follower(self, client: At) -> Following:
        """The follower of a process."""
        return self.followers.setdefault(client, Following(client))

    def face_of(self, client: At) -> RollingFileSystem:
        """The filesystem of the programs on top in a process."""
        if client not in self.faces:
            self.faces[client] = filesystem_of(client)
        return self.faces[client]

    def client_on(self, backend: Backend, clock: Callable[[], float], **options: Any) -> At:
        """A client that never waits for real."""
        threads = partial(SimulatedThreads, random.Random(self.chance.getrandbits(48)))
        with mock.patch.object(rollingfs.segment.at, "SyncRuntime", threads):
            return At.of(backend, self.policy, clock=clock, **options)

    def crash(self, chance: random.Random) -> None:
        """Kill a process; another takes its place."""
        index = chance.randrange(len(self.clients))
        self.ways[index].die()
        self.replace_client(index)

    def replace_client(self, index: int) -> None:
        """Let a new process take the place of another."""
        self.clients[index] = self._client(index)

    def is_busy(self, path: str) -> bool:
        """Whether an operation works there or on a folder above, or a request may still land anywhere."""

        def is_at(paths: Sequence[str]) -> bool:
            return any(f"{path}/".startswith(f"{one}/") for one in paths)

        is_left = any(way.pending and is_at(paths) for paths, way in self.unknown)
        return self.is_waiting or is_left or any(is_at(doing.call.paths) for doing in self.doings.values())

    @property
    def is_waiting(self) -> bool:
        """Whether a request is on its way for which nobody waits."""
        return any(way.late or (way.is_dead and way.pending) for way, _ in self.past)

    def cancel(self, chance: random.Random) -> None:
        """Cancel a call of an async client."""
        tasks = [task for task, doing in self.doings.items() if self.kinds[doing.client] and not doing.is_of_face]
        if tasks:
            chance.choice(tasks).cancel()

    # -- operations --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        await self.begin()
        for number, step in enumerate(self.plan.steps):
            await asyncio.sleep(step.pause_s)
            if self.failure is not None:
                raise self.failure
            self._start(number, step)
        while self.doings:
            await asyncio.wait(list(self.doings))
        await self.end()

    def _start(self, number: int, step: Step) -> None:
        index = step.client
        if self.ways[index].is_dead:
            self.replace_client(index)
        chance = random.Random(step.seed)
        verbs = Verbs(self, chance)
        verb = "create" if len(self.history.state) < min(2, self.plan.paths) and chance.random() < 0.6 else step.verb
        op: Op | None = getattr(verbs, verb)()
        if op is None:
            return
        self.launch(number, op, index, chance, is_of_face=verb in ("face", "ship"))

    def launch(self, number: int, op: Op, index: int, chance: random.Random, *, is_of_face: bool = False) -> Doing:
        """Begin an operation."""
        self.counts["operations"] += 1
        doing = self.history.begin(number, op.call, index)
        doing.is_of_face = is_of_face
        doing.began_s, doing.way, doing.is_dead = self.now_s, self.ways[index], self.ways[index].was_dead
        self.history.believe(doing, self.clients[index].headers.cache_s if op.call.verb in model.READS else 0.0)
        if op.call.is_retaining:
            doing.policies = self.policies()
        for other in self.doings.values():
            other.is_alone = doing.is_alone = False
        task = asyncio.ensure_future(self._do(op, doing, self.clients[index], chance))
        self.doings[task] = doing
        task.add_done_callback(self._done)
        return doing

    def _done(self, task: asyncio.Task[None]) -> None:
        doing = self.doings.pop(task)
        if task.cancelled():
            self._end(doing, "unknown")
        elif (error := task.exception()) is not None:
            self.fail(error if isinstance(error, Violation) else _unexpected(doing, error))

    async def _do(self, op: Op, doing: Doing, client: At, chance: random.Random) -> None:
        running.set(doing)
        share = chance.choice(self.faulty_shares) if op.call.verb not in model.FOREIGN else 0.0
        Way.chances.set((chance, share))
        doing.is_faulty = share > 0 or bool(self.witness.lost)
        try:
            value = await op.start(client)
        except (Crashed, AppendOutcomeUnknown, asyncio.CancelledError):
            self.unknown.append((doing.call.paths, self.ways[doing.client]))
            self._end(doing, "unknown")
        except CommitTimeoutError as error:
            self._end(doing, "not done", error)
        except LostCommitError as error:
            self.lies.tell(doing, error)
            self._end(doing, "unknown")
        except UnsafeBackendError as error:
            self.lies.refuse(doing, error)
            self._end(doing, "not done" if self.is_last(op) else "unknown", error)
        except (FileNotFoundError, FileExistsError, RollingError, ValueError) as error:
            is_told = isinstance(error, TierFailedError)  # it only says whose error it was
            is_told |= isinstance(error, UnflushedError) and not self.is_last(op)  # a look's flush failed
            has_slept = self.now_s - doing.began_s > AGE_S_MAX / 2
            is_denied = doing.is_denied and not isinstance(error, CorruptHeaderError | CorruptChunkError)
            if is_denied or (is_told and "injected" in str(error)):
                self._end(doing, "unknown")
            elif isinstance(error, StagedExpiredError) and has_slept:  # what it had uploaded was collected
                self._end(doing, "not done", error)
            elif any(page in str(error) for page in self.witness.lost):
                if not isinstance(error, CorruptHeaderError):
                    raise Violation(f"a lost page is told as {error!r}: {doing}") from error
                self.counts["lost pages told"] += 1
                self._end(doing, "not done", error)
            else:
                self._end(doing, "error", FileNotFoundError if isinstance(error, NoSegmentError) else type(error))
        except (OSError, TimeoutError) as error:
            is_expected = "injected" in str(error) or isinstance(error, TimeoutError)
            if self.is_last(op) and not is_expected:
                raise
            self._end(doing, "not done" if self.is_last(op) else "unknown", error)
        else:
            self._end(doing, "ok", value)
            if op.done is not None:
                op.done(value, doing)

    def is_last(self, op: Op) -> bool:
        """Whether an operation does nothing after its commit.

        A segment that moved whole is flushed, and a rename by a program on top looks at the folder that it left.
        """
        is_more = op.call.verb is model.rename and (self.store.capability.removes_whole or "overwrite" in op.call.args)
        return op.call.verb in COMMIT_IS_LAST and not is_more

    def _end(self, doing: Doing, told: str, value: Any = None) -> None:
        self.counts[told] += 1
        try:
            self.history.ended(doing, told, value)
            self.lies.check(doing)
        except Violation as violation:
            self.fail(violation)

    def erased(self, did: Erased, doing: Doing) -> None:
        """An erase has ended: look at all bytes, if nothing else went on, and no lost page hid a folder from it."""
        if doing.is_alone and not self.is_waiting and not self.witness.lost:
            self.counts["erases seen"] += 1
            checks.check_erased(self, did, doing)

    def is_unread(self, path: str, seg: Seg, offset: int) -> bool:
        """Whether a subscriber needs bytes before an offset, which no user has trimmed."""
        bounds = [one for one in self.bounds.values() if one.is_stored and one.folder == names.parent(path)]
        is_trimmed = offset <= max(self.trims.get(one, 0) for one in ("", *seg.ids))
        return not is_trimmed and any(offset > bound.of(seg) for bound in bounds)

    def policies(self) -> dict[str, RetentionPolicy]:
        """What counts in each folder where no trim is under way."""
        found = {}
        for folder in self.folders:
            ledger = self.ledger(folder)
            resolved = ledger.under(self.ledger("/top")) if folder == "/top/sub" else ledger
            if ledger.is_trimmed and resolved.retention is not None:
                found[folder] = resolved.retention
        return found

    def ledger(self, folder: str) -> Ledger:
        """The memory of a stream, as it lies there."""
        return self.witness.ledger(folder)

    def inherited(self, folder: str, doing: Doing) -> list[Ledger]:
        """All that a folder could inherit meanwhile: nothing, where a memory above may not be read."""
        if folder != "/top/sub":
            return [Ledger()]
        return self.witness.ledgers_since("/top", doing.began_s) + [Ledger()] * self.was_refused(doing)

    def was_refused(self, doing: Doing) -> bool:
        """Whether a client was refused a read since an operation began."""
        return self.ways[doing.client].refused_s >= doing.began_s

    def created(self, policy: RollingPolicy | None, header: Header, doing: Doing) -> None:
        """A segment was made."""
        if policy is None:
            checks.check_inherited(self, header, doing)
        elif header.policy != policy:
            raise Violation(f"it has {header.policy} in place of {policy}: {doing}")

    def expect(self, doing: Doing, is_so: Callable[[Ledger], bool]) -> None:
        """A change of the memory of a stream has ended."""
        if doing.is_alone and not self.is_waiting and not is_so(self.ledger(doing.call.path)):
            raise Violation(f"the memory of the stream has not changed: {doing}, {self.ledger(doing.call.path)}")

    def cut_taken(self, cut: StreamCut, doing: Doing, align: bytes | None = None) -> None:
        """A cut was taken: it is kept for a trim."""
        stream_checks.check_cut(self, cut, doing, align)
        self.cuts = [*self.cuts[-5:], (doing.call.path, cut)]

    def copy_chunks(self, path: str, lost: str) -> list[int]:
        """Copy the chunk folders of a segment, without its pins; returns where entries begin that lie there."""
        header, folder = self.witness.headers.get(path), names.chunks_folder(path)
        if header is None or header.deleted:
            return []
        for file in list(self.store.files):
            alias, hot = names.split_tier(file)
            if names.parent(hot) == folder and not hot.rpartition("/")[2].startswith(PASSING):
                copy = names.chunks_folder(lost) + hot[len(folder) :]
                copy = names.in_tier(alias, copy) if alias else copy
                self.store.copy_silently(file, copy)
                self.witness.outside.add(copy)
        return [one.start for one in header.entries if "/" not in one.file]

    # -- the end -----------------------------------------------------------------------------------------------

    async def end(self) -> None:
        self.witness.lost.find(self.store)
        await asyncio.sleep(2 * GRACE_S)  # all late requests have landed
        if self.failure is None:
            await self.lies.check_end()
            await check_lasting(self)
            await checks.check_end(self)
            await checks.check_tables(self)
            await checks.check_settles(self)
        if self.failure is not None:
            raise self.failure


def _unexpected(doing: Doing, error: BaseException) -> Violation:
    violation = Violation(f"an error that users do not expect: {error!r}, of {doing}")
    violation.__cause__ = error
    return violation
