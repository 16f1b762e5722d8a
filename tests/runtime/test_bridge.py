"""How the bridge runs coroutines: thread and loop, the outcome after Ctrl-C, the first call of a forked child."""

import asyncio
import contextlib
import inspect
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fsspec.asyn import get_loop

from rollingfs import AppendInterrupted, AppendOutcomeUnknown, SegmentSealedError
from rollingfs.backend.memory import MemoryBackend
from rollingfs.runtime import bridge, concurrency
from rollingfs.runtime.bridge import Bridge
from tests.support.backends import Scripted
from tests.support.forks import is_so_in_child, needs_fork

OUTCOMES = {"done": "committed", "refused": "not committed", "unknown": "unknown", "broken": "unknown"}
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="signals to a thread are POSIX")


def suspending() -> Scripted:
    """Memory that suspends in every verb, on fsspec's loop."""
    return Scripted(MemoryBackend(), suspends=True, conflicts_are_final=True)


def test_deadline_after_ctrl_c_ends_with_its_call() -> None:
    async def broken_off() -> None:
        concurrency._until_s.set(0.0)  # as `limit` does, which Ctrl-C may leave before it takes the deadline back
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        concurrency.drive(broken_off())
    assert concurrency.until_s() is None


async def here() -> int:
    return threading.get_ident()


async def there() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


def press_ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


async def interrupted(ending: str) -> str:
    press_ctrl_c()
    await asyncio.sleep(0.05)
    if ending == "refused":
        raise SegmentSealedError("it is sealed")
    if ending == "unknown":
        raise AppendOutcomeUnknown("who knows")
    if ending == "broken":
        raise OSError("the clean-up after the commit failed")
    return ending


def test_sync_backend_runs_in_caller_async_on_its_loop():
    assert Bridge(MemoryBackend()).run(here()) == threading.get_ident()
    assert Bridge(suspending()).run(there()) not in (threading.get_ident(), None)


def test_start_returns_at_once_and_refuses_sync_backends():
    gate = threading.Event()

    async def wait_for_gate() -> str:
        while not gate.is_set():
            await asyncio.sleep(0.001)
        return "through"

    future = Bridge(suspending()).start(wait_for_gate())
    assert not future.done()
    gate.set()
    assert bridge.wait(future) == "through"
    with pytest.raises(RuntimeError, match="sync backend"):
        Bridge(MemoryBackend()).start(here())


def test_async_caller_reaches_all_backends_without_blocking():
    async def both() -> tuple[int, int]:
        return await Bridge(MemoryBackend()).arun(here()), await Bridge(suspending()).arun(there())

    of_sync, of_async = asyncio.run(both())
    assert threading.get_ident() not in (of_sync, of_async)
    on_its_loop = Bridge(suspending())
    assert on_its_loop.run(on_its_loop.arun(there())) == of_async


def test_backend_on_the_callers_loop_is_only_awaited():
    backend = suspending()
    backend.loop = None
    assert asyncio.run(Bridge(backend).arun(there())) == threading.get_ident()
    with pytest.raises(RuntimeError, match="asynchronous"):
        Bridge(backend).run(there())


def test_blocking_on_the_backends_loop_is_refused():
    reached = Bridge(suspending())

    async def block() -> int:
        return reached.run(there())

    with pytest.raises(RuntimeError, match="wait for itself"):
        reached.run(block())


@needs_signals
@pytest.mark.parametrize(("ending", "outcome"), OUTCOMES.items())
def test_ctrl_c_during_a_commit_waits_for_its_verdict(ending, outcome):
    with pytest.raises(AppendInterrupted) as caught:
        Bridge(suspending()).run(interrupted(ending), commits="events/clicks")
    assert caught.value.outcome == outcome
    assert "events/clicks" in str(caught.value)


@needs_signals
def test_ctrl_c_waits_briefly_and_lets_the_commit_end(monkeypatch):
    monkeypatch.setattr(bridge, "INTERRUPT_WAIT_S_MAX", 0.02)
    may_end, ended = threading.Event(), threading.Event()

    async def slow() -> None:
        press_ctrl_c()
        while not may_end.is_set():
            await asyncio.sleep(0.001)
        ended.set()

    with pytest.raises(AppendInterrupted) as caught:
        Bridge(suspending()).run(slow(), commits="clicks")
    assert caught.value.outcome == "unknown"
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(60)


@pytest.mark.parametrize("begins", [True, False])
def test_early_cancelled_call_is_not_waited_for(begins):
    """Python would warn of a coroutine that was never awaited, on the user's screen."""
    loop, coroutine = asyncio.new_event_loop(), there()
    call = bridge._Call(coroutine, is_lasting=False)
    if begins:
        loop.call_soon(call.begin, loop)
    loop.call_soon(call.cancel)
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    loop.close()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


@needs_signals
def test_ctrl_c_cancels_what_commits_nothing():
    cancelled = threading.Event()

    async def endless() -> None:
        press_ctrl_c()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt) as caught:
        Bridge(suspending()).run(endless())
    assert not isinstance(caught.value, AppendInterrupted)
    assert cancelled.wait(60)


def test_unjudged_interrupted_commit_is_unknown_and_a_judged_stays():
    async def interrupt(error: KeyboardInterrupt) -> None:
        raise error

    reached = Bridge(MemoryBackend())
    with pytest.raises(AppendInterrupted) as caught:
        reached.run(interrupt(KeyboardInterrupt()), commits="clicks")
    assert caught.value.outcome == "unknown"
    judged = AppendInterrupted("clicks: interrupted", "committed")
    with pytest.raises(AppendInterrupted) as caught:
        reached.run(interrupt(judged), commits="clicks")
    assert caught.value is judged
    with pytest.raises(KeyboardInterrupt) as plain:
        reached.run(interrupt(KeyboardInterrupt()))
    assert not isinstance(plain.value, AppendInterrupted)


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("kind", [MemoryBackend, suspending])
def test_forked_child_is_told_once_before_its_first_call(kind):
    """A child of the child as well, though it is forked while a thread of its parent makes that call."""
    told: list[int] = []

    def tell() -> None:
        told.append(os.getpid())
        assert len(told) == 2 or is_so_in_child(is_told_once)

    reached = Bridge(kind(), on_fork=tell)
    reached.run(here())
    assert told == []

    def is_told_once() -> bool:
        with contextlib.suppress(AttributeError):
            reached.backend.loop = get_loop()
        return reached.run(here()) != 0 and reached.run(here()) != 0 and told.count(os.getpid()) == 1

    assert is_so_in_child(is_told_once)
    assert told == []


def test_lock_of_task_on_closed_loop_is_free() -> None:
    lock, held = concurrency.AsyncRuntime().lock("x"), []

    async def left() -> None:
        held.append(asyncio.ensure_future(lock.run(lambda: asyncio.sleep(3600))))
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(left())
    loop.close()

    async def done() -> str:
        return "done"

    assert asyncio.run(asyncio.wait_for(lock.run(done), 60)) == "done"
    held[0]._log_destroy_pending = False


@pytest.mark.filterwarnings("error")
def test_call_cancelled_before_its_thread_begins_is_closed() -> None:
    held = threading.Event()

    async def never_begun() -> None:
        raise AssertionError

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        asyncio.get_running_loop().run_in_executor(None, held.wait)
        coroutine = never_begun()
        call = asyncio.create_task(Bridge(MemoryBackend()).arun(coroutine))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
        held.set()

    asyncio.run(main())
