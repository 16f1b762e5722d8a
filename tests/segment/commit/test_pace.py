"""The pace of commits where a store takes one write of a file in a second: how long a client waits, what gathers."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from rollingfs.backend import race
from rollingfs.runtime.concurrency import SyncRuntime
from rollingfs.segment.commit import commits
from rollingfs.segment.verbs.change import seal
from tests.support.backends import Scripted, private_memory
from tests.support.life import Turned
from tests.support.site import Site

INTERVAL_S = 1.0
WAIT_S = 20.0
THREADS = 8
POLL_S = 0.001


class Clock(Turned):
    """The monotonic clock, which stands still until somebody sleeps."""

    def __init__(self) -> None:
        super().__init__(time.monotonic())  # deadlines of commits come from there
        self.slept: list[float] = []

    async def sleep(self, runtime: object, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(Scripted(private_memory(), commit_interval_s=INTERVAL_S), "")
    with monkeypatch.context() as patch:
        patch.setattr(race.time, "sleep", lambda _: None)  # the probe keeps the pace as well
        site.create()
    clock.now_s += INTERVAL_S
    monkeypatch.setattr(commits, "time", SimpleNamespace(monotonic=clock))
    site.client.slots.of(site.path).free_s = clock.now_s
    monkeypatch.setattr(SyncRuntime, "sleep", lambda runtime, seconds: clock.sleep(runtime, seconds))
    return site


def test_a_commit_waits_out_the_interval(site: Site, clock: Clock) -> None:
    site.append(b"1")
    assert clock.slept == []
    clock.now_s += 0.25
    site.append(b"2")
    assert sum(clock.slept) == INTERVAL_S - 0.25
    site.run(seal(site.client, site.path))
    assert sum(clock.slept) == INTERVAL_S - 0.25 + INTERVAL_S
    assert site.content() == b"12"


@pytest.mark.parametrize(("left_s", "pause_s"), [(2 * INTERVAL_S, INTERVAL_S), (INTERVAL_S / 2, 0.0)])
def test_a_commit_without_time_does_not_wait(site: Site, clock: Clock, left_s: float, pause_s: float) -> None:
    site.append(b"1")
    slot = site.client.slots.of(site.path)
    site.run(site.client.commits.wait_for_store(slot, clock.now_s + left_s))
    assert sum(clock.slept) == pause_s


def test_appends_of_one_interval_become_one_commit(site: Site, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    site.append(b"0")
    before = site.backend.count("replace")
    slot, all_wait = site.client.slots.of(site.path), threading.Event()

    async def sleep(runtime: object, seconds: float) -> None:
        assert all_wait.wait(WAIT_S)  # the interval passes when all are in the queue
        await clock.sleep(runtime, seconds)

    monkeypatch.setattr(SyncRuntime, "sleep", sleep)
    with ThreadPoolExecutor(THREADS) as threads:
        appends = [threads.submit(site.append, b"%d" % number) for number in range(THREADS)]
        while len(slot.queue) < THREADS:
            time.sleep(POLL_S)
        all_wait.set()
        offsets = sorted(append.result(WAIT_S) for append in appends)
    assert offsets == list(range(1, THREADS + 1))
    assert site.backend.count("replace") - before == 1
    assert clock.slept == [INTERVAL_S]
