"""Waits of the core's coroutines."""

import asyncio

from rollingfs.runtime.concurrency import AsyncRuntime


def test_a_single_call_makes_no_task() -> None:
    async def call() -> asyncio.Task[None] | None:
        return asyncio.current_task()

    async def tasks() -> tuple[asyncio.Task[None] | None, list[asyncio.Task[None] | None]]:
        return asyncio.current_task(), await AsyncRuntime().gather([call], 4)

    mine, found = asyncio.run(tasks())
    assert found == [mine]
    assert asyncio.run(AsyncRuntime().gather([], 4)) == []
