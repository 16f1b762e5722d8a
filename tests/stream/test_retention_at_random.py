"""Retention at random, against a model: moves that break off, clocks that differ, unreadable segments, other policies.

Each record is a text of its own, so the model knows what a run dropped by reading what is left.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from rollingfs import RollingPolicy
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.retention import RetentionPolicy
from tests.support.examples import nightly, slowly, some
from tests.support.faults import CLOCK, CRASHES, Crashed, Fault, Faulty, Store, hurry
from tests.support.life import World

FOLDER = "/stream"
NAMES = tuple(f"{FOLDER}/{letter}" for letter in "abcde")
SMALL = RollingPolicy(max_bytes=24, inline_bytes=10)
RECORD = 8
DAY_S = 86_400.0
STEPS = 100
SKEWS_S = (0.0, 0.0, 0.0, 0.0, 365 * DAY_S, -50 * 365 * DAY_S, -3600.0)


@pytest.fixture(autouse=True)
def _virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@dataclass
class Record:
    at: float
    read: frozenset[str] = frozenset()


class Model:
    """A stream whose segments are moved while runs of retention come and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = Store()
        self.records: dict[bytes, Record] = {}
        self.sealed: dict[str, bool] = {}
        self.readers: set[str] = set()
        self.made = self.dropped = 0
        self.policy: RetentionPolicy | None = None
        self.create()

    def world(self, skew_s: float = 0.0) -> World:
        return World(Faulty(self.store), SMALL, lambda: CLOCK.time() + skew_s)  # type: ignore[arg-type]

    def left(self) -> set[bytes]:
        """The records that the stream holds; a source whose bytes the target has is none of it."""
        world, found = self.world(), bytearray()
        for path in world.stream().segments():
            header = world.header(path)
            if header.merge is not None:
                target = drive(world.client.headers.load(f"{FOLDER}/{header.merge.target}")).header
                if target is not None and any(mark.txn == header.merge.txn for mark in target.merges):
                    continue
            found += world.content(path)
        pieces = [bytes(found[start : start + RECORD]) for start in range(0, len(found), RECORD)]
        assert len(set(pieces)) == len(pieces)
        return set(pieces)

    # -- what others do

    def create(self) -> None:
        free = [name for name in NAMES if name not in self.sealed]
        if free:
            name = self.chance.choice(free)
            with contextlib.suppress(FileExistsError):  # a move has left it marked
                self.world().create(name)
                self.sealed[name] = False

    def append(self) -> None:
        for name in [name for name, is_sealed in self.sealed.items() if not is_sealed]:
            for _ in range(self.chance.randrange(4)):
                self.made += 1
                record = b"%0*d" % (RECORD, self.made)
                self.world().append(name, record)
                self.records[record] = Record(CLOCK.time())

    def seal(self) -> None:
        name = self.chance.choice(list(self.sealed))
        self.world().seal(name)
        self.sealed[name] = True

    def move(self) -> None:
        """A concat or a rename, perhaps by a client that crashes in the middle."""
        world = self.world()
        if self.chance.random() < 0.6:
            world.backend.prepare({self.chance.randrange(14): self.chance.choice(CRASHES)})
        sources = [name for name, is_sealed in self.sealed.items() if is_sealed]
        targets = [name for name, is_sealed in self.sealed.items() if not is_sealed]
        with contextlib.suppress(Crashed):
            if sources and targets and self.chance.random() < 0.5:
                drive(world.client.concats.concat(self.chance.choice(targets), sources[:2]))
            else:
                free = [name for name in NAMES if name not in self.sealed]
                if free:
                    drive(world.client.concats.rename(self.chance.choice(list(self.sealed)), self.chance.choice(free)))
        self.store.land()
        self.look()

    def wait(self) -> None:
        self.store.lapse(self.chance.choice([60.0, 1800.0, DAY_S / 2, DAY_S]))

    def read(self) -> None:
        """A subscriber reads all that is there, and says so; some leave."""
        reader, stream = self.chance.choice(["one", "two"]), self.world().stream()
        if self.readers and self.chance.random() < 0.7:
            gone = self.chance.choice(sorted(self.readers))
            stream.unsubscribe(gone)
            self.readers.discard(gone)
            return
        stream.publish(reader, stream.cut())
        self.readers.add(reader)
        for record in self.left():
            self.records[record].read |= {reader}

    def change_policy(self) -> None:
        make = self.chance.choice(
            [
                None,
                RetentionPolicy.by_size(self.chance.choice([0, 80, 160]), every=self.chance.choice([0, 3600])),
                RetentionPolicy.by_time(self.chance.choice([3600, DAY_S, 3 * DAY_S]), every=1800),
            ]
        )
        self.world().stream().retention = self.policy = make

    # -- what is tested

    def retain(self) -> None:
        if self.policy is None:
            return
        skew_s = self.chance.choice(SKEWS_S)
        world, before, doomed = self.world(skew_s), self.left(), self.doomed()
        assert world.stream().size() == RECORD * len(before)
        if self.chance.random() < 0.25:
            with self.damaged(self.chance.choice(list(self.sealed))):
                world.stream().retain()
            self.check(before, doomed, CLOCK.time() + skew_s, None)
            return
        expected = world.stream().retain(dry_run=True)
        assert self.left() == before
        report = world.stream().retain()
        self.check(before, doomed, CLOCK.time() + skew_s, report.bytes)
        assert report.size == world.stream().size()
        assert expected.bytes <= report.bytes + RECORD * len(before) * bool(world.backend.met)

    @contextlib.contextmanager
    def damaged(self, name: str):
        path = names.header_path(name)
        file = self.store.fs.store.get(path)
        if file is None:
            yield
            return
        content = file.getvalue()
        self.store._put(path, b"rollingfs 9\n\n")
        yield
        self.store._put(path, content)

    def doomed(self) -> set[bytes]:
        """The records of a trim that an earlier run, by its own clock, has decided and not finished."""
        world, found = self.world(), bytearray()
        trim = drive(Ledgers(world.client).load(FOLDER)).trim
        for name, goal in () if trim.done else trim.goals.items():
            path = f"{FOLDER}/{name}"
            header = drive(world.client.headers.load(path)).header
            if header is not None and not header.deleted and goal.means(header.incarnations):
                found += world.content(path)[: max(0, goal.offset - header.start)]
        return {bytes(found[start : start + RECORD]) for start in range(0, len(found), RECORD)}

    def check(self, before: set[bytes], doomed: set[bytes], now: float, said: int | None) -> None:
        """What one run dropped was allowed to go."""
        after = self.left()
        gone, policy = before - after, self.policy
        chosen = gone - doomed
        assert policy is not None
        assert after <= before
        assert said in (None, RECORD * len(gone))
        if policy.min_bytes is not None and gone:
            assert RECORD * len(after) >= policy.min_bytes
        if policy.min_age is not None:
            assert all(now - self.records[one].at >= policy.min_age for one in chosen)
        assert all(self.readers <= self.records[one].read for one in gone)
        self.dropped += len(gone)
        self.look()

    def look(self) -> None:
        """What there is now, as every client sees it."""
        infos = self.world().stream().infos()
        self.sealed = {path: info["sealed"] for path, info in infos.items() if self.world().header(path).merge is None}
        while not self.sealed:
            self.store.lapse(20.0)
            self.create()

    def settle(self) -> None:
        """With clocks that are right, a policy by time comes true again, whatever the others did."""
        world = self.world()
        for name in self.world().stream().subscribers():
            world.stream().unsubscribe(name)
        self.policy = world.stream().retention = RetentionPolicy.by_time(DAY_S, every=1800)
        for _ in range(60):
            self.store.lapse(1800.0)
            world.stream().retain()
        assert not self.left()


DEEDS: dict[Callable[[Model], None], int] = {
    Model.create: 3,
    Model.append: 12,
    Model.seal: 5,
    Model.move: 8,
    Model.wait: 8,
    Model.read: 2,
    Model.change_policy: 3,
    Model.retain: 18,
}


@pytest.mark.parametrize(
    "seeds",
    [[*range(3), 67, 94], *slowly(range(3, 28)), *nightly(*(range(first, first + 25) for first in range(28, 153, 25)))],
)
def test_retention_drops_what_it_may_and_nothing_else(seeds: Sequence[int]) -> None:
    dropped = 0
    for seed in seeds:
        try:
            model = Model(seed)
            for deed in model.chance.choices(list(DEEDS), list(DEEDS.values()), k=STEPS):
                deed(model)
            model.settle()
            dropped += model.dropped
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert dropped > 3 * len(seeds)


# -- at every call -------------------------------------------------------------------------------------------


def due(store: Store) -> World:
    """A stream of which the next run drops 80 bytes."""
    world = World(Faulty(store), SMALL, CLOCK.time)
    for name in NAMES[:2]:
        world.create(name, [b"0123456789"] * 4)
    world.stream().retention = RetentionPolicy.by_size(10, every=0)
    world.stream().retain()
    for name in NAMES[:2]:
        world.append(name, b"9876543210")
    world.backend.prepare()
    return world


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", [None, RetentionPolicy.by_size(1000), RetentionPolicy.by_time("1d")])
def test_a_policy_that_changes_before_the_commit_of_a_run_counts(policy: RetentionPolicy | None) -> None:
    world = due(Store())
    assert world.stream().retain().bytes == 80
    calls = [verb for verb, path in world.backend.trace if verb == "replace" and names.LEDGER_NAME in str(path)]
    trace = [(verb, str(what)) for verb, what in world.backend.trace]
    commit = next(i for i, (verb, what) in enumerate(trace) if verb == "replace" and names.LEDGER_NAME in what)
    assert calls
    for index in some(range(commit + 1)):
        store = Store()
        world, other = due(store), World(Faulty(store), SMALL, CLOCK.time)
        world.backend.prepare(between={index: lambda other=other: setattr(other.stream(), "retention", policy)})  # type: ignore[misc]
        with contextlib.suppress(ValueError):  # there is none any more
            assert world.stream().retain().bytes == 0, index
        assert other.stream().size() == 100


@pytest.mark.exhaustive
def test_a_move_at_any_call_of_a_run_makes_it_drop_no_more() -> None:
    """The source is read before the move, and the target after it: the bytes are still counted once."""
    world = due(Store())
    world.stream().retain()
    for index in some(range(len(world.backend.trace))):
        store = Store()
        world = World(Faulty(store), SMALL, CLOCK.time)
        for name in (NAMES[1], NAMES[0]):
            world.create(name, [b"0123456789"] * 4)
        world.seal(NAMES[0])
        world.stream().retention = RetentionPolicy.by_size(60, every=0)
        world.stream().retain()
        world.append(NAMES[1], b"9876543210")
        mover = World(Faulty(store), SMALL, CLOCK.time)

        def meanwhile(mover: World = mover) -> None:
            with contextlib.suppress(FileNotFoundError):
                drive(mover.client.concats.concat(NAMES[1], [NAMES[0]]))

        world.backend.prepare(between={index: meanwhile})
        world.stream().retain()
        assert mover.stream().size() >= 60, index


@pytest.mark.parametrize("crash", [CRASHES[0], *slowly(*CRASHES[1:])])
@pytest.mark.parametrize("target", [NAMES[1], NAMES[2], "/aside/x"])
def test_what_a_move_left_that_died_at_any_call_is_counted_once(target: str, crash: Fault) -> None:
    for index in range(26):
        store = Store()
        world = World(Faulty(store), SMALL, CLOCK.time)
        for name in NAMES[:2]:
            world.create(name, [b"0123456789"] * 9)
        world.seal(NAMES[0])
        stream = world.stream()
        stream.retention = RetentionPolicy.by_size(120, every=0)
        stream.retain()
        mover = World(Faulty(store), SMALL, CLOCK.time)
        mover.backend.prepare({index: crash})
        with contextlib.suppress(Crashed):
            if target == NAMES[1]:
                drive(mover.client.concats.concat(target, [NAMES[0]]))
            else:
                drive(mover.client.concats.rename(NAMES[0], target))
        store.land()
        whole = stream.size()
        assert whole == 180 or (whole == 90 and target == "/aside/x"), index
        world.append(NAMES[1], b"9876543210")
        dry = stream.retain(dry_run=True)
        assert dry.size >= min(120, whole), index
        assert stream.retain().size >= min(120, whole), index
        assert stream.size() >= min(120, whole), index
