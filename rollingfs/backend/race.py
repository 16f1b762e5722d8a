"""Races for a single file: of several conditional writes at once, exactly one may win.

A store that looks first and writes then passes every test that sends one request after another. A store that does so
within a fraction of a millisecond passes most races as well: it takes many rounds of few racers to catch it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from rollingfs.backend.contract import Backend, Blob
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive

RACERS = 16
RIVALS = 3
ROUNDS = 52
"""Rounds of `race_in_rounds`. Per request, few racers for a single file met more often than many, or than at several
files: docs/stores.md has the figures."""
ROUNDS_S_MAX = 1.5
"""No round begins after this time, and the last ends as a race to replace does after `REPLACE_S_MAX`. A store whose
answers take long has long windows as well."""
ANSWERED_MIN = 0.5
"""A race in which a smaller share of the racers gets an answer has no result."""
REPLACE_S_MAX = 2.0
"""Time after which a race to replace waits only for a winner and `REPLACED_MIN` racers in all. SeaweedFS 4.48 admits
writers of a file one after another, at intervals of a second."""
REPLACED_MIN = 2
BODY_BYTES = 1024
START_S_MAX = 10.0
"""Time for which a thread waits for the others."""

Write = Callable[[str, bytes], Coroutine[Any, Any, str]]
"""Writes a file on a condition; returns the new token."""
Racer = Callable[[], Coroutine[Any, Any, Any]]
Outcome = str | BaseException
"""Outcome of a write: the new token, or the error."""


class BrokenPromise(Exception):
    """A conditional verb did what it must not do."""

    def __init__(self, verb: str, found: str) -> None:
        super().__init__(f"{verb} {found}")
        self.verb = verb


class LostFile(BrokenPromise):
    """There is no file after a win. Another program may have removed it, so this is no proof against the store."""


async def race(backend: Backend, path: str, racers: int = RACERS) -> None:
    """Let several writers create a file at once, then replace it by a token.

    Parameters
    ----------
    path
        An unused name. The file stays.
    racers
        The number of writers.

    Raises
    ------
    BrokenPromise
        Several won, or the file is not the winner's.
    OSError
        The store failed, or too few racers got an answer (``errno.EBUSY``).
    """
    created = await race_to_create(backend, path, racers)
    await let_rest(backend)
    await _round(
        backend, path, racers, "replace", lambda path, body: backend.replace(path, body, created.token), ConflictError
    )


async def race_to_create(backend: Backend, path: str, racers: int) -> Blob:
    """Let several writers create a file at once; return the winner's file."""
    return await _round(backend, path, racers, "create", backend.create, FileExistsError)


async def race_in_rounds(backend: Backend, path: str, rounds: int = ROUNDS) -> bool:
    """Let rivals replace a new file in rounds during reads.

    Parameters
    ----------
    path
        An unused name. The file stays.
    rounds
        The number of rounds: 1 if the store limits the rate of writes of a file.

    Returns
    -------
    bool
        Whether the reader saw whole files only, and no bytes that did not fit their ETag. Neither is a broken promise:
        readers of headers, and the adapter, read again.

    Raises
    ------
    BrokenPromise
        Several won, the file is not the winner's, or a read returned an older file with the token of a newer one. A
        commit that is made of such a read overwrites the newer file.
    OSError
        As `race`.
    """
    began_s = time.monotonic()
    now = await race_to_create(backend, path, 1)
    bodies, is_whole = {now.token: now.data}, True
    undecided: list[Sequence[Outcome]] = []
    for number in range(1 if backend.capability.commit_interval_s else rounds):
        if number and time.monotonic() - began_s > ROUNDS_S_MAX:
            rounds = number
            break
        await let_rest(backend)
        fresh = [_body(f"replace {number}", rival) for rival in range(RIVALS)]
        writes = [partial(backend.replace, path, body, now.token) for body in fresh]
        left_s = began_s + ROUNDS_S_MAX - time.monotonic()
        *outcomes, seen = await _until_decided(backend, writes, left_s, partial(backend.read, path))
        won = {outcome: body for outcome, body in zip(outcomes, fresh, strict=True) if isinstance(outcome, str)}
        bodies |= won
        if len(won) == 1:  # the next round, or the last read, shows whether this is the file
            [(token, body)] = won.items()
            now = Blob(body, token, 0.0)
        else:
            undecided.append(outcomes)
            now = await _settle(backend, path, now, fresh, outcomes)
        is_whole &= _judge_read(seen, bodies)
    last = await _found(backend, path)
    if last is None:
        raise _lost("replace")
    if (last.token, last.data) != (now.token, now.data):
        raise BrokenPromise("replace", f"let one of {RIVALS} concurrent writers win, and the file is not its own")
    if 2 * len(undecided) > rounds and not backend.capability.commit_interval_s:
        raise _inconclusive(path, "replace", undecided[-1], _failures(undecided[-1], ConflictError))
    return is_whole


async def _settle(
    backend: Backend, path: str, before: Blob, bodies: Sequence[bytes], outcomes: Sequence[Outcome]
) -> Blob:
    """Return the file after a round without a known winner."""
    found = await _found(backend, path)
    try:
        return judge(path, "replace", ConflictError, bodies, outcomes, found)
    except OSError as error:
        if error.errno != errno.EBUSY or found is None:
            raise
    if found.data in bodies or (found.token, found.data) == (before.token, before.data):
        return found  # the winner's answer was lost, or the store was busy
    raise BrokenPromise("replace", f"let one of {RIVALS} concurrent writers win, and the file is not its own")


def _judge_read(seen: Outcome | Blob, bodies: Mapping[str, bytes]) -> bool:
    """Return whether a read during writes returned a whole file, or no answer."""
    if not isinstance(seen, Blob):
        return True
    if bodies.get(seen.token, seen.data) == seen.data:
        return not seen.was_unfit
    if seen.data in bodies.values():
        raise BrokenPromise("read", "returned the bytes of an older file with the token of a newer one")
    return False


async def let_rest(backend: Backend) -> None:
    """Wait until the store takes another write of the file that was just written."""
    if not backend.capability.commit_interval_s:
        return
    if backend.is_async:
        await asyncio.sleep(backend.capability.commit_interval_s)
    else:
        time.sleep(backend.capability.commit_interval_s)


async def _round(backend: Backend, path: str, racers: int, verb: str, write: Write, refusal: type[Exception]) -> Blob:
    bodies = [_body(verb, number) for number in range(racers)]
    writes = [partial(write, path, body) for body in bodies]
    # a late create would make the file again that the probe deletes; a late replace finds no file with its token
    waits_for_all = verb == "create"
    outcomes = await (_at_once(backend, writes) if waits_for_all else _until_decided(backend, writes, REPLACE_S_MAX))
    found = await _found(backend, path)
    # a store that limits the rate of writes refuses losers for their number: one winner is all that it can show
    answered_min = 0.0 if backend.capability.commit_interval_s else ANSWERED_MIN
    return judge(path, verb, refusal, bodies, outcomes, found, answered_min)


def _body(what: str, racer: int) -> bytes:
    return f"{what} by racer {racer}\n".encode().ljust(BODY_BYTES, b".")


async def _found(backend: Backend, path: str) -> Blob | None:
    with contextlib.suppress(FileNotFoundError):
        return await backend.read(path)
    return None


def judge(
    path: str,
    verb: str,
    refusal: type[Exception],
    bodies: Sequence[bytes],
    outcomes: Sequence[Outcome],
    found: Blob | None,
    answered_min: float = ANSWERED_MIN,
) -> Blob:
    """Judge a race; return the winner's file.

    A racer without an answer (an `OSError` that is not a refusal) counts neither for the store nor against it. A racer
    that the race has ended (`CancelledError`) was not in it.

    Parameters
    ----------
    bodies, outcomes
        Body of each racer, and its outcome.
    found
        The file after the race.
    answered_min
        The share of the racers that must have an answer.

    Raises
    ------
    BrokenPromise, OSError
        As `race`.
    """
    raced = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, asyncio.CancelledError)]
    bodies, outcomes = [bodies[number] for number in raced], [outcomes[number] for number in raced]
    winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, str)]
    failures = _failures(outcomes, refusal)
    if len(winners) > 1:
        raise BrokenPromise(verb, f"let {len(winners)} of {len(outcomes)} concurrent writers win where only one may")
    for failure in failures:
        if not isinstance(failure, OSError) or isinstance(failure, UnsafeBackendError):
            raise failure  # a bug, or a refusal of the adapter
    if len(failures) == len(outcomes):
        raise failures[0]
    if winners:
        [winner] = winners
        if found is None:
            raise _lost(verb)
        if found.data != bodies[winner]:
            raise BrokenPromise(verb, f"let one of {len(outcomes)} concurrent writers win, and the file is not its own")
        if found.token != outcomes[winner]:
            raise BrokenPromise(verb, f"gave the token {outcomes[winner]} for a file whose token is {found.token}")
        if len(outcomes) - len(failures) >= answered_min * len(outcomes):
            return found
    raise _inconclusive(path, verb, outcomes, failures)


def _lost(verb: str) -> LostFile:
    return LostFile(verb, "succeeded, and then there was no file: another program removed it, or the store lost it")


def _failures(outcomes: Sequence[Outcome], refusal: type[Exception]) -> list[BaseException]:
    """Return the errors of racers that got no answer."""
    return [one for one in outcomes if isinstance(one, BaseException) and not isinstance(one, refusal)]


def _inconclusive(path: str, verb: str, outcomes: Sequence[Outcome], failures: Sequence[BaseException]) -> OSError:
    answered = len(outcomes) - len(failures)
    why = f" (others: {failures[0]})" if failures else ", all of them refusals"
    text = (
        f"it is not known whether it is safe to write to this store: of {len(outcomes)} concurrent attempts to "
        f"{verb} a file, {answered} got an answer{why}; nothing was written to any segment; try again later"
    )
    error = OSError(errno.EBUSY, text, names.shown(path))
    error.__cause__ = failures[0] if failures else None
    return error


async def _at_once(backend: Backend, writes: Sequence[Racer]) -> Sequence[Any]:
    """Send all requests at once: as tasks, or each in a thread of its own where a verb blocks."""
    if backend.is_async:
        return await asyncio.gather(*(write() for write in writes), return_exceptions=True)
    start = threading.Barrier(len(writes))
    with ThreadPoolExecutor(len(writes)) as pool:
        running = [pool.submit(contextvars.copy_context().run, _in_thread, start, write) for write in writes]
    return [one.result() for one in running]


async def _until_decided(backend: Backend, writes: Sequence[Racer], wait_s: float, *others: Racer) -> Sequence[Any]:
    """Send all requests at once. After `wait_s`, end requests that a result does not need: `CancelledError`."""
    if not backend.is_async:
        return await _at_once(backend, [*writes, *others])
    tasks = [asyncio.ensure_future(request()) for request in (*writes, *others)]
    rivals = tasks[: len(writes)]
    try:
        _, late = await asyncio.wait(tasks, timeout=max(wait_s, 0.0))
        while late and not _is_decided([task for task in rivals if task.done()]):
            _, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    return outcomes


def _is_decided(answered: Sequence[asyncio.Future[Any]]) -> bool:
    return len(answered) >= REPLACED_MIN and not all(task.exception() for task in answered)


def _in_thread(start: threading.Barrier, write: Racer) -> Any:
    with contextlib.suppress(threading.BrokenBarrierError):
        start.wait(START_S_MAX)
    try:
        return drive(write())
    except BaseException as error:  # noqa: BLE001 - `judge` raises what is not an outcome of a race
        return error
