"""The backend under test, and access to its files without it."""

from __future__ import annotations

import multiprocessing
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from fsspec.asyn import sync

from rollingfs.backend.contract import Backend
from rollingfs.errors import ConflictError
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive

T = TypeVar("T")

RACERS = 4
RACE_DEADLINE_S = 120
SWITCH_S = 1e-6

Racer = Callable[..., Any]
"""A function of a backend, the racer's number, the barrier of all racers, and further arguments."""

Factory = tuple[Callable[..., Backend], tuple[Any, ...]]
"""Recipe for the backend in another process: a picklable callable and its arguments."""


def run(backend: Backend, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a verb to its end: directly over a sync backend, on ``backend.loop`` over an async backend."""
    if not backend.is_async:
        return drive(coroutine)
    result: T = sync(backend.loop, _awaited, coroutine)  # type: ignore[attr-defined]
    return result


async def _awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    return await coroutine


def race_path(folder: str, number: int) -> str:
    """Return the file of a round of `race_rounds`."""
    return names.header_path(f"{folder}/race-{number}")


def race_rounds(backend: Backend, racer: int, barrier: Any, folder: str, rounds: int) -> list[tuple[bool, bool]]:
    """Race to create a file, then to replace it by its token, in each round.

    Returns for each round whether this racer won each of both races.
    """
    outcomes = []
    for number in range(rounds):
        path = race_path(folder, number)
        barrier.wait(RACE_DEADLINE_S)
        try:
            run(backend, backend.create(path, b"created by %d" % racer))
            created = True
        except FileExistsError:
            created = False
        barrier.wait(RACE_DEADLINE_S)
        token = run(backend, backend.read(path)).token
        barrier.wait(RACE_DEADLINE_S)
        try:
            run(backend, backend.replace(path, b"replaced by %d" % racer, token))
            replaced = True
        except ConflictError:
            replaced = False
        outcomes.append((created, replaced))
    return outcomes


def race_increments(backend: Backend, racer: int, barrier: Any, path: str, count: int) -> int:
    """Add 1 to the number in a file, until `count` additions were acknowledged."""
    acknowledged = 0
    # by its first write, a backend may learn what the ETags of the store are: it reads the file back, unless another
    # writer was faster, and then cannot acknowledge the write
    run(backend, backend.create(f"{path.rpartition('/')[0]}/racer-{racer}$header", b"first"))
    barrier.wait(RACE_DEADLINE_S)
    while acknowledged < count:
        blob = run(backend, backend.read(path))
        try:
            run(backend, backend.replace(path, b"%d" % (int(blob.data) + 1), blob.token))
        except ConflictError:
            continue
        acknowledged += 1
    return acknowledged


def race_threads(backend: Backend, racer: Racer, args: tuple[Any, ...]) -> dict[int, Any]:
    """Run racers in threads that share a backend; return their results."""
    barrier = threading.Barrier(RACERS)
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)  # otherwise a verb in memory ends before another thread runs
    try:
        with ThreadPoolExecutor(RACERS) as pool:
            results = {number: pool.submit(racer, backend, number, barrier, *args) for number in range(RACERS)}
    finally:
        sys.setswitchinterval(switch_s)
    return {number: result.result() for number, result in results.items()}


def race_processes(factory: Factory, racer: Racer, args: tuple[Any, ...]) -> dict[int, Any]:
    """Run racers in processes, each with its own backend; returns what each returned."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(RACERS), context.Queue()
    processes = [
        context.Process(target=_process, args=(factory, racer, number, barrier, answers, args), daemon=True)
        for number in range(RACERS)
    ]
    for process in processes:
        process.start()
    outcomes: dict[int, Any] = {}
    try:
        for _ in processes:
            number, outcome, failure = answers.get(timeout=RACE_DEADLINE_S)
            assert failure is None, f"racer {number}: {failure}"
            outcomes[number] = outcome
    except queue.Empty:
        raise AssertionError(f"racers {set(range(RACERS)) - set(outcomes)} gave no answer") from None
    finally:
        for process in processes:
            if len(outcomes) < RACERS:
                process.terminate()
            process.join()
            process.close()
        answers.close()
    return outcomes


def _process(factory: Factory, racer: Racer, number: int, barrier: Any, answers: Any, args: tuple[Any, ...]) -> None:
    make, arguments = factory
    try:
        answers.put((number, racer(make(*arguments), number, barrier, *args), None))
    except BaseException:  # the parent raises it
        barrier.abort()
        answers.put((number, None, traceback.format_exc()))
        raise


CLOCK_SLACK_S = 600


class Subject:
    """Definitions that a subclass of `BackendContract` gives.

    Attributes
    ----------
    tokens_tell_equal_bytes : bool
        Whether two writes of equal bytes have different tokens. False where a token is a hash of the bytes (S3). That
        is enough for headers, because no two headers are equal.
    claims_atomicity : bool
        Whether several processes may write by the backend. If not, races are not run.
    """

    tokens_tell_equal_bytes = True
    claims_atomicity = True

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend under test."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `backend`")

    @pytest.fixture
    def folder(self) -> str:
        """Return the path of a folder that was never used; it need not exist."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `folder`")

    def raw_read(self, path: str) -> bytes:
        """Read a file without the backend."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_read`")

    def raw_write(self, path: str, data: bytes) -> None:
        """Write a plain file, and its folder if it is missing, without the backend."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_write`")

    def raw_write_many(self, paths: Sequence[str], data: bytes) -> None:
        """Write many files without the backend."""
        for path in paths:
            self.raw_write(path, data)

    def spawn_arguments(self) -> Factory | None:
        """Return the recipe for a backend in another process: a callable, arguments.

        Both can be pickled. None if the store exists in this process only.
        """
        raise NotImplementedError("a subclass of BackendContract has a method `spawn_arguments`")

    def _need(self, ability: bool, why_not: str) -> None:
        if not ability:
            pytest.skip(why_not)


PATTERN = bytes(number * 7 % 251 for number in range(251))


def content(size: int) -> bytes:
    """Return bytes that differ from their neighbours."""
    return (PATTERN * (size // len(PATTERN) + 1))[:size]
