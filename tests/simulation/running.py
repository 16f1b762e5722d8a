"""Runs a world: in virtual time, with limits that make rare paths common, and a quiet log."""

import asyncio
import contextlib
import gc
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

import pytest

from rollingfs.backend import memory
from rollingfs.folders import collect_tree, listing
from rollingfs.segment.commit import header_cache
from rollingfs.segment.files import rewrite_commits as swaps, rewrite_plan as runs
from rollingfs.segment.write import ingest
from tests.simulation import baton
from tests.simulation.clock import simulated_time
from tests.simulation.plan import Plan
from tests.simulation.world import World
from tests.support.small import shrink_pages

SMALL_BYTES_MAX = 16
"""More than a few bytes count as large: then chunks are uploaded piece by piece."""
SMALL_PAGES_SHARE = 0.5
FEW_JOINS_SHARE = 0.7
"""Of the worlds: in these, upkeep joins few small chunks already."""
ROWS_SHARE = 0.5
"""Of the worlds: in these, listings write rows of few headers, and trust them."""


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the log of the library quiet: faults are the point here."""
    logger = logging.getLogger("rollingfs")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def run_world(plan: Plan) -> World:
    """Run one world; a broken rule is raised."""
    kind = random.Random(plan.seed + 1)
    has_small_pages = kind.random() < SMALL_PAGES_SHARE
    has_rows, has_few_joins = kind.random() < ROWS_SHARE, kind.random() < FEW_JOINS_SHARE
    with world_time(plan.seed, has_small_pages, has_rows, has_few_joins) as run:
        world = World(plan)
        with mock.patch.object(header_cache.logger, "warning", world.lies.warned), world.shipping.instead_of_disk():
            run(world.run())
        return world


@contextlib.contextmanager
def world_time(
    seed: int, has_small_pages: bool = True, has_rows: bool = False, has_few_joins: bool = False
) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    """The time in which a world runs, and what runs it."""
    with (
        _silence(),
        simulated_time(seed) as loop,
        mock.patch.object(ingest, "SMALL_BYTES_MAX", SMALL_BYTES_MAX),
        mock.patch.object(memory, "_lock", contextlib.nullcontext()),  # the witness looks while a file is written
        mock.patch.object(time, "sleep", baton.sleep),
        mock.patch.object(memory, "_nonce", "0" * 8),  # it is in tokens, which ledgers and headers keep
        pytest.MonkeyPatch.context() as patch,
    ):
        if has_small_pages:
            shrink_pages(patch)
            patch.setattr(swaps, "DROP_LINES_MAX", 1)
        if has_few_joins:
            patch.setattr(runs, "NEIGHBOURS_MIN", 4)
        if has_rows:
            patch.setattr(listing, "UNSEEN_MIN", 0)
            patch.setattr(listing, "ROWLESS_MAX", 0)
            patch.setattr(collect_tree, "ROWLESS_MAX", 0)
        loop.set_exception_handler(lambda *_: None)  # tasks of the dead
        gc.disable()
        try:
            yield loop.run_until_complete
        finally:
            _drain(loop)
            gc.enable()


def _drain(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
        with contextlib.suppress(BaseException):
            loop.run_until_complete(task)
