"""Who leads a group of appends, and who waits for what: threads and one segment on a store that never suspends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rollingfs.commit.commits import Commits
from rollingfs.write import gather
from tests.support.backends import private_memory
from tests.support.schedules import Caller
from tests.support.site import Site

WAIT_S = 60.0


class Gated:
    """Commits of groups that begin one by one, as the test lets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        held = Commits.commit_held

        async def gated(*args: Any) -> Any:
            self.begun.release()
            assert self.let.acquire(timeout=WAIT_S)
            return await held(*args)

        monkeypatch.setattr(Commits, "commit_held", gated)

    def wait(self) -> None:
        assert self.begun.acquire(timeout=WAIT_S)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(gather, "WAKE_S_MAX", 10 * WAIT_S)  # nobody leads because time has passed
    monkeypatch.setattr(gather, "LINGER_SHARE", 0)
    site = Site(private_memory(), "")
    site.create()
    return site


def join(site: Site, data: bytes) -> Caller:
    """A thread that appends, and that is in the queue."""
    queue = site.client.commits.slots.of(site.path).queue
    before = len(queue)
    caller = Caller(lambda: site.append(data))
    caller.start()
    while len(queue) == before:
        threading.Event().wait(0.001)
    return caller


def test_a_leader_that_breaks_off_calls_the_next(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    gated, held = Gated(monkeypatch), Commits.commit_held
    broken = threading.Event()

    async def once(*args: Any) -> Any:
        monkeypatch.setattr(Commits, "commit_held", held)
        gated.begun.release()
        assert broken.wait(WAIT_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(Commits, "commit_held", once)
    first = Caller(lambda: site.append(b"1"))
    first.start()
    gated.wait()
    others = [join(site, data) for data in (b"2", b"3")]
    for _ in others:
        gated.let.release()
    broken.set()
    for caller in (first, *others):
        caller.join(WAIT_S)
        assert not caller.is_alive()
    assert isinstance(first.outcome, KeyboardInterrupt)
    assert sorted(caller.outcome for caller in others) == [0, 1]
    site.append(b"4")  # nobody is believed to lead
