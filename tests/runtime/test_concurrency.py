"""Waits of the core's coroutines."""

import asyncio
import threading

import pytest

from rollingfs.runtime.concurrency import AsyncRuntime


def test_a_single_call_makes_no_task() -> None:
    async def call() -> asyncio.Task[None] | None:
        return asyncio.current_task()

    async def tasks() -> tuple[asyncio.Task[None] | None, list[asyncio.Task[None] | None]]:
        return asyncio.current_task(), await AsyncRuntime().gather([call], 4)

    mine, found = asyncio.run(tasks())
    assert found == [mine]
    assert asyncio.run(AsyncRuntime().gather([], 4)) == []


def test_a_cancelled_caller_waits_for_its_thread() -> None:
    begun, goes_on, ended = asyncio.Event(), threading.Event(), threading.Event()

    async def cancelled() -> None:
        loop = asyncio.get_running_loop()

        def call() -> None:
            loop.call_soon_threadsafe(begun.set)
            goes_on.wait(10)
            ended.set()

        task = asyncio.ensure_future(AsyncRuntime().in_thread(call))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(cancelled())
