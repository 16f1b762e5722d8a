"""The probe: before the first write to a store, try once the claims of its adapter, with and without races."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import time
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Backend, Blob
from rollingfs.backend.patience import wanted_s
from rollingfs.backend.race import BrokenPromise, LostFile, Write, let_rest, race_in_rounds, race_to_create
from rollingfs.errors import UNSUPPORTED, ConflictError, UnsafeBackendError
from rollingfs.format import names
from rollingfs.runtime.concurrency import Runtime, backoff_s
from rollingfs.runtime.values import value_class

PROBE_VERSION = 3
"""A verdict of another version is not believed. Version 2 races, version 3 in rounds."""
PAIRS = 24
"""Races of two, which create a file, for each race in rounds."""
PROBES_MAX = 5
_MENDABLE = {errno.EBUSY, errno.ETIMEDOUT}
"""A busy store, a slow answer, a race without a verdict."""
_STAYS = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}
"""Not every backend makes a folder for a lock; and a disk may keep a file in it for a while that has no name."""
_NOT_IMPLEMENTED = {errno.ENOSYS} | UNSUPPORTED


@value_class
class Abilities:
    """Findings of the probe on a safe store."""

    delete_if: bool
    """Whether a conditional delete with a wrong token keeps the file."""
    reads_whole: bool = True
    """Whether no read during a replace returned a mixture of two files."""


async def probe_patiently(backend: Backend, folder: str, runtime: Runtime, races: int = 1) -> Abilities:
    """Probe at most 5 times, and through an outage with our patience.

    Raises
    ------
    UnsafeBackendError, OSError
        As `probe`.
    """
    began_s, busy = time.monotonic(), 0
    for count in itertools.count(1):
        try:
            return await probe(backend, folder, races)
        except OSError as error:
            # the probe's deletes, which its failure ends with, have set the patience of the client
            is_late = time.monotonic() - began_s >= wanted_s()
            is_away = backend.is_async and error.errno == errno.EIO and not is_late
            busy += error.errno in _MENDABLE
            if not is_away and (error.errno not in _MENDABLE or busy == PROBES_MAX):
                raise
        await runtime.sleep(backoff_s(count + 3))
    raise AssertionError("`count` has no end")


async def probe(backend: Backend, folder: str, races: int = 1) -> Abilities:
    """Try the conditional verbs on files of the probe's own, and remove those files.

    Parameters
    ----------
    backend : Backend
        The backend that a caller is about to write to.
    folder : str
        A ``$chunks`` folder, so that no listing shows the files. The folder stays.
    races : int
        The number of races: each of 52 rounds of three that replace one file, and of 24 pairs that create. It is
        missing where `Capability.must_race` is false.

    Raises
    ------
    UnsafeBackendError
        The backend does not claim atomic writes; it overwrote a file that it had to keep; several writers won
        a race; or a read gave an older file with the token of a newer one.
    OSError
        The store failed, or too few of its answers arrived, before it could be judged.
    """
    if not backend.capability.can_write:
        raise shared_errors.not_atomic(names.segment_of_folder(folder))
    races *= backend.capability.must_race
    paths = [
        names.header_path(f"{folder}/{names.PROBE_PREFIX}{uuid.uuid4().hex}") for _ in range(1 + races * (1 + PAIRS))
    ]
    try:
        delete_if = await _try(backend, paths[0])  # its errors say most
        # before the races: over few connections, requests of racers for one file meet more often
        reads_whole = [await race_in_rounds(backend, path) for path in paths[1 : 1 + races]]
        await _race_pairs(backend, paths[1 + races :])
    except BaseException as error:
        with contextlib.suppress(OSError):  # this error says more; collection deletes a file that stays
            await clean(backend, paths)
        if isinstance(error, LostFile):
            raise _not_judged(paths[0], error) from error
        if isinstance(error, BrokenPromise):
            raise await _unsafe(backend, paths[0], error) from error
        raise
    await clean(backend, paths)
    return Abilities(delete_if, all(reads_whole))


async def _race_pairs(backend: Backend, paths: Sequence[str]) -> None:
    """Let a pair create each file, and run all races to their end, so that no byte is written after the cleaning.

    A pair without a result, because the store is busy, is not a failure while half of the pairs have a result.
    """
    pairs = [_result(race_to_create(backend, path, 2)) for path in paths]
    results = await asyncio.gather(*pairs) if backend.is_async else [await pair for pair in pairs]
    errors = [result for result in results if isinstance(result, BaseException)]
    fatal = [error for error in errors if not isinstance(error, OSError)]
    if fatal or 2 * len(errors) > len(pairs):
        raise min(fatal or errors, key=lambda error: isinstance(error, LostFile))


async def _result(race: Coroutine[Any, Any, Blob]) -> Blob | Exception:
    try:
        return await race
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return error


async def _unsafe(backend: Backend, path: str, broken: BrokenPromise) -> UnsafeBackendError:
    name = await backend.store_name(path)
    store = f"the store {shared_errors.with_product(name, backend.product(path))}" if name else "this store"
    why = (
        f"it is not safe to write to {store}: {broken}; nothing was written to any segment; use a store, or a release "
        "of it, whose conditional writes are atomic (docs/stores.md)"
    )
    error = UnsafeBackendError(f"{names.shown(path)}: {why}")
    error.why = why
    return error


def _not_judged(path: str, lost: LostFile) -> OSError:
    text = f"it is not known whether it is safe to write to this store: {lost}; nothing was written to any segment"
    return OSError(errno.EBUSY, f"{text}; remove no files of `$chunks` folders, and try again", names.shown(path))


async def clean(backend: Backend, paths: Sequence[str]) -> None:
    """Delete files, and the chunk folders that their locks had."""
    await backend.delete(paths)
    if backend.capability.has_folders:
        for header in (path for path in paths if path.endswith(names.HEADER_SUFFIX)):
            try:
                await backend.remove_folder(names.chunks_folder(names.segment_of_header(header)))
            except OSError as error:
                if error.errno not in _STAYS:
                    raise


# -- one request after another -------------------------------------------------------------------------------


async def _try(backend: Backend, path: str) -> bool:
    """Try requests that must fail; return whether a conditional delete checks tokens."""
    first = await _twice(backend, path, "create", backend.create, FileExistsError)
    newest = await _twice(
        backend, path, "replace", lambda path, body: backend.replace(path, body, first.token), ConflictError
    )
    return backend.capability.can_delete_if and await _try_delete_if(backend, path, first.token, newest.data)


async def _twice(backend: Backend, path: str, verb: str, write: Write, refusal: type[Exception]) -> Blob:
    """Write twice on the same condition; return the file of the first write."""
    bodies = [f"probe: {verb}\n".encode(), f"probe: {verb} again\n".encode()]
    was_refused = False
    for body in bodies:
        try:
            await write(path, body)
            was_refused = False
        except refusal:  # of the first: its answer was lost, and the repeated request met the file of the first
            was_refused = True
        except OSError as error:
            if error.errno in _NOT_IMPLEMENTED:
                raise BrokenPromise(verb, f"with a condition is not implemented ({error})") from error
            raise
        await let_rest(backend)
    if not was_refused:
        raise BrokenPromise(verb, "with a condition that does not hold did not fail")
    found = await backend.read(path)
    if found.data != bodies[0]:
        raise BrokenPromise(verb, "with a condition fails where the condition holds, or writes where it does not")
    return found


async def _try_delete_if(backend: Backend, path: str, old_token: str, newest: bytes) -> bool:
    """Return whether a delete with a wrong token leaves the file. A store that ignores or refuses it is safe."""
    try:
        return not await backend.delete_if(path, old_token) and (await backend.read(path)).data == newest
    except OSError as error:
        if not isinstance(error, FileNotFoundError) and error.errno not in _NOT_IMPLEMENTED:
            raise
        return False
