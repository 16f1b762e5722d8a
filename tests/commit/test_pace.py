"""The pace of commits where a store takes one write of a file in a second: how long a client waits, what gathers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollingfs import BadOffsetError
from rollingfs.backend import race
from rollingfs.commit import pace
from rollingfs.commit.pace import Pace
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import SyncRuntime
from tests.support.backends import Scripted, private_memory
from tests.support.site import Site

INTERVAL_S = 1.0
WAIT_S = 20.0
THREADS = 8
POLL_S = 0.001


class Clock:
    """The monotonic clock, which stands still until somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = time.monotonic()  # deadlines of commits come from there
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, runtime: object, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(Scripted(private_memory(), commit_interval_s=INTERVAL_S), "")
    site.client.commits.pace = Pace(INTERVAL_S, clock)
    with monkeypatch.context() as patch:
        patch.setattr(race.time, "sleep", lambda _: None)  # the probe keeps the pace as well
        site.create()
    clock.now_s += INTERVAL_S
    monkeypatch.setattr(SyncRuntime, "sleep", lambda runtime, seconds: clock.sleep(runtime, seconds))
    return site


def replaces(site: Site) -> int:
    """How often the header was replaced."""
    assert isinstance(site.backend, Scripted)
    return site.backend.count("replace")


def test_a_client_takes_the_interval_from_the_backend() -> None:
    assert (
        Site(Scripted(private_memory(), commit_interval_s=INTERVAL_S), "").client.commits.pace.interval_s == INTERVAL_S
    )


def test_a_commit_waits_for_what_is_left_of_the_interval(site: Site, clock: Clock) -> None:
    site.append(b"1")
    assert clock.slept == []
    clock.now_s += 0.25
    site.append(b"2")
    assert sum(clock.slept) == INTERVAL_S - 0.25
    site.run(site.client.segments.seal(site.path))
    assert sum(clock.slept) == INTERVAL_S - 0.25 + INTERVAL_S
    assert site.content() == b"12"


def test_after_the_interval_nothing_waits(site: Site, clock: Clock) -> None:
    for _ in range(3):
        site.append(b".")
        clock.now_s += INTERVAL_S
    assert clock.slept == []


def test_segments_do_not_wait_for_each_other(site: Site, clock: Clock) -> None:
    site.append(b"1")
    site.path += "-other"
    site.create()
    assert clock.slept == []


def test_a_commit_whose_time_is_up_before_the_interval_is_tried_at_once(site: Site, clock: Clock) -> None:
    paced = Pace(INTERVAL_S, clock)
    paced.committed("a")
    assert paced.pause_s("a", clock.now_s + 2 * INTERVAL_S) == INTERVAL_S
    assert paced.pause_s("a", clock.now_s + INTERVAL_S / 2) == 0.0
    assert Pace(0.0, clock).pause_s("a", clock.now_s) == 0.0


def test_a_commit_that_did_not_take_place_does_not_count(site: Site, clock: Clock) -> None:
    site.append(b"1")
    clock.now_s += INTERVAL_S
    with pytest.raises(BadOffsetError):
        site.append(b"2", guard=Guard(expected_offset=7))
    site.append(b"2")
    assert clock.slept == []


def test_appends_of_one_interval_become_one_commit(site: Site, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    site.append(b"0")
    before = replaces(site)
    appender, all_wait = site.client.segments.appender, threading.Event()

    async def sleep(runtime: object, seconds: float) -> None:
        assert all_wait.wait(WAIT_S)  # the interval passes when all are in the queue
        await clock.sleep(runtime, seconds)

    monkeypatch.setattr(SyncRuntime, "sleep", sleep)
    with ThreadPoolExecutor(THREADS) as threads:
        appends = [threads.submit(site.append, b"%d" % number) for number in range(THREADS)]
        while appender._waiting(site.path) < THREADS:
            time.sleep(POLL_S)
        all_wait.set()
        offsets = sorted(append.result(WAIT_S) for append in appends)
    assert offsets == list(range(1, THREADS + 1))
    assert replaces(site) - before == 1
    assert clock.slept == [INTERVAL_S]


def test_only_so_many_segments_are_remembered(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SEGMENTS_MAX", 2)
    paced = Pace(INTERVAL_S, clock)
    for path in "abc":
        paced.committed(path)
        clock.now_s += INTERVAL_S
    assert set(paced._free_s) == {"c"}


def test_a_child_process_does_not_wait_for_the_lock_of_a_thread_that_is_not_there():
    pace = Pace(1.0)
    pace.committed("s")
    held, done = threading.Event(), threading.Event()

    def hold():
        with pace._lock:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    pace.after_fork()  # the child has no such thread
    found = []
    child = threading.Thread(target=lambda: found.append(pace.pause_s("s", time.monotonic() + 60)), daemon=True)
    child.start()
    child.join(20)
    done.set()
    holder.join()
    assert found
    assert found[0] > 0
