"""The bound of memory of all writers: it holds in every schedule, and somebody always goes on."""

import random
import types

import pytest

from rollingfs.segment.write import budget
from rollingfs.segment.write.budget import Budget, Spillable

PART = 10
MAX = 40


@types.coroutine
def _pause():
    yield


class Steps:
    """A runtime whose coroutines stop at every pause, so that a test chooses who goes on."""

    is_async = True

    async def sleep(self, seconds):
        await _pause()

    async def shield(self, call):
        return await call


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(budget, "PART_BYTES", PART)


class File(Spillable):
    """A writer whose bytes may be written, in some steps, by whoever needs room."""

    def __init__(self, bound: Budget, *, steps: int = 2) -> None:
        self.bound, self.share, self.steps = bound, bound.share(), steps
        self.is_busy = False
        self.spilled = 0
        bound.add(self)

    @property
    def held_bytes(self) -> int:
        return self.share.count

    async def spill(self) -> None:
        for _ in range(self.steps):
            await _pause()
        self.spilled += self.share.count
        self.share.close()

    async def spill_if_idle(self) -> bool:
        if self.is_busy:
            return False
        self.is_busy = True
        await self.spill()
        self.is_busy = False
        return True

    async def write(self, size: int) -> None:
        while self.is_busy:
            await _pause()
        self.is_busy = True
        await self.share.take(size, self.spill)
        self.is_busy = False


async def append(bound: Budget, size: int, steps: int) -> None:
    """Hold bytes for a while, as a commit under way does; nobody else can write them."""
    share = bound.share()

    async def spill() -> None:
        share.close()

    await share.take(size, spill)
    for _ in range(steps):
        await _pause()
    share.close()


async def writing(file: File, sizes) -> None:
    for size in sizes:
        await file.write(size)
        await _pause()


def stuck_bound():
    """A bound of which only the part that is kept is left, and the shares that hold the others."""
    bound = Budget(Steps(), MAX)
    shares = [bound.share() for _ in range(3)]
    assert all(share.try_take(PART) for share in shares)
    return bound, shares


def run(bound, calls, choose):
    """Step coroutines, in the order that is chosen, until all have ended; the bound holds after each step."""
    left = list(calls)
    for _ in range(20_000):
        if not left:
            return
        one = left[choose(len(left))]
        try:
            one.send(None)
        except StopIteration:
            left.remove(one)
        assert 0 <= bound.used <= (bound.bytes_max if budget.PATIENCE_S else 2 * bound.bytes_max)
    raise AssertionError(f"{len(left)} writers wait for ever")


@pytest.mark.parametrize("seed", range(150))
def test_the_bound_holds_and_every_writer_ends(seed):
    chance = random.Random(seed)
    bound = Budget(Steps(), MAX)
    files = [File(bound, steps=chance.randrange(4)) for _ in range(chance.randrange(1, 7))]
    calls = [writing(file, [chance.randrange(1, PART + 1) for _ in range(8)]) for file in files]
    calls += [append(bound, chance.randrange(1, PART + 1), chance.randrange(6)) for _ in range(chance.randrange(8))]
    run(bound, calls, chance.randrange)
    assert not bound._waiting


@pytest.mark.parametrize("is_new", [True, False], ids=["for another", "for itself"])
def test_at_the_bound_the_largest_pending_file_writes(is_new):
    bound = Budget(Steps(), MAX)
    small, large, new = File(bound), File(bound), File(bound)
    writer = new if is_new else large
    for file, size in ((small, 5), (large, 10), (large, 10), (writer, 10)):
        run(bound, [file.write(size)], lambda _: 0)
    assert (small.share.count, large.share.count, new.share.count) == ((5, 0, 10) if is_new else (5, 10, 0))
    assert large.spilled == 20


def test_a_writer_that_all_wait_for_goes_on(monkeypatch, caplog):
    monkeypatch.setattr(budget, "PATIENCE_S", 0.0)
    bound, _stuck = stuck_bound()
    first, second = File(bound), File(bound)
    run(bound, [first.write(PART)], lambda _: 0)
    first.is_busy = True
    run(bound, [second.write(PART)], lambda _: 0)
    assert "max_write_memory" in caplog.text
    assert not bound._waiting


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, GeneratorExit])
def test_an_interrupted_writer_leaves_the_queue(error):
    bound, stuck = stuck_bound()
    first = File(bound)
    run(bound, [first.write(PART)], lambda _: 0)
    first.is_busy = True
    call = append(bound, PART, 0)
    call.send(None)
    with pytest.raises(error):
        call.throw(error())
    del call
    for share in stuck:
        share.close()
    first.share.close()
    assert bound.used == 0
    run(bound, [append(bound, PART, 0)], lambda _: 0)


def test_after_a_fork_no_share_is_held():
    bound = Budget(Steps(), MAX)
    share, gone = bound.share(), bound.share()
    assert share.try_take(PART)
    assert gone.try_take(PART)
    bound.after_fork()
    share.close()
    del gone
    assert bound.share().try_take(3 * PART)
    assert bound.used >= 0


@pytest.mark.parametrize("given", [0, -1, "1MiB", budget.WRITE_MEMORY_BYTES_MIN - 1, "much"])
def test_too_little_memory_is_refused(given):
    with pytest.raises(ValueError, match=r"max_write_memory|much"):
        budget.check_write_memory(given)
