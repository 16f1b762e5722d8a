"""The probe: before the first write to a store, try once what its adapter claims."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass

from rollingfs.backend import refusals
from rollingfs.backend.contract import Backend, Blob
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.format import names


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the probe has seen a store do."""

    delete_if: bool
    """Whether a conditional delete with a wrong token leaves the file alone."""


async def probe(backend: Backend, folder: str) -> Abilities:
    """Try the conditional verbs on a file of the probe's own, and remove that file.

    Parameters
    ----------
    backend : Backend
        The backend that a caller is about to write to.
    folder : str
        A ``$chunks`` folder, so that no listing shows the file. The folder stays.

    Raises
    ------
    UnsafeBackendError
        The backend does not claim atomic writes, or it overwrote a file that it had to leave alone.
    OSError
        The store failed before it could be judged.
    """
    if not backend.can_write:
        raise refusals.not_atomic(names.segment_of_folder(folder))
    path = names.header_path(f"{folder}/{names.PROBE_PREFIX}{uuid.uuid4().hex}")
    try:
        old = await _probe_create(backend, path)
        newest = await _probe_replace(backend, path, old.token)
        delete_if = backend.can_delete_if and await _probe_delete_if(backend, path, old.token, newest)
    except BaseException:
        with contextlib.suppress(OSError):  # the first failure says more; collection deletes a file that stays
            await _clean(backend, path)
        raise
    await _clean(backend, path)
    return Abilities(delete_if=delete_if)


async def _clean(backend: Backend, path: str) -> None:
    await backend.delete([path])
    if backend.has_folders:
        await _remove_lock_folder(backend, path)


def _refused(path: str, verb: str, found: str) -> UnsafeBackendError:
    return UnsafeBackendError(
        f"{names.shown(path)}: it is not safe to write to this store: {verb} {found}; nothing was written to any "
        "segment; use a store with conditional writes"
    )


async def _must_leave(
    backend: Backend,
    path: str,
    data: bytes,
    call: Awaitable[object],
    refusal: type[Exception],
    verb: str,
    over: str,
) -> Blob:
    """Do what the store must refuse, and return the file, which must not have changed."""
    try:
        await call
        refused = False
    except refusal:
        refused = True
    if not refused:
        raise _refused(path, verb, f"{over} did not fail")
    blob = await backend.read(path)
    if blob.data != data:
        raise _refused(path, verb, f"{over} failed and yet overwrote it")
    return blob


async def _probe_create(backend: Backend, path: str) -> Blob:
    """Create twice; the second must fail and leave the first."""
    first = b"probe 1\n"
    # the name is new: if a file exists, an answer was lost, and the repeated request met the file of the first
    with contextlib.suppress(FileExistsError):
        await backend.create(path, first)
    again = backend.create(path, b"probe: create over a file\n")
    return await _must_leave(backend, path, first, again, FileExistsError, "create", "over an existing file")


async def _probe_replace(backend: Backend, path: str, old_token: str) -> bytes:
    """Replace, then replace with the old token; the second must fail and leave the file alone."""
    second = b"probe 2, of another length\n"
    try:
        await backend.replace(path, second, old_token)
    except ConflictError:
        # as with create: if the file is the probe's, the answer to its first request was lost
        if (await backend.read(path)).data != second:
            raise _refused(path, "replace", "with the right token was refused") from None
    wrong = backend.replace(path, b"probe: replace with a wrong token\n", old_token)
    return (await _must_leave(backend, path, second, wrong, ConflictError, "replace", "with a wrong token")).data


async def _probe_delete_if(backend: Backend, path: str, old_token: str, newest: bytes) -> bool:
    """Whether a delete with a wrong token leaves the file. A store that ignores the condition is still safe."""
    if await backend.delete_if(path, old_token):
        return False
    try:
        return (await backend.read(path)).data == newest
    except FileNotFoundError:
        return False


async def _remove_lock_folder(backend: Backend, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # not every backend makes such a folder
        await backend.remove_folder(names.chunks_folder(names.segment_of_header(path)))
