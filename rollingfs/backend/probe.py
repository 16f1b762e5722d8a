"""The probe: what a store says it does is tried once, before the first write, and only then believed."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass

from rollingfs.backend.contract import Backend, Blob
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.format import names


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a store was seen to do."""

    delete_if: bool
    """Whether a conditional delete with a wrong token leaves the file alone."""


async def probe(backend: Backend, folder: str) -> Abilities:
    """Try the conditional verbs on a file of our own, which is removed again.

    Parameters
    ----------
    backend : Backend
        The backend that is about to be written.
    folder : str
        A ``$chunks`` folder, so that no listing shows the file; it stays.

    Raises
    ------
    UnsafeBackendError
        The backend does not claim atomic writes, or it overwrote a file that it had to refuse.
    OSError
        The store failed before it could be judged.
    """
    if not backend.can_write:
        raise UnsafeBackendError(
            f"{names.segment_of_folder(folder)}: this store cannot replace a file atomically, so two writers could "
            "lose each other's data; nothing was written; if nobody else ever writes here, say so with "
            "single_writer=True"
        )
    path = names.header_path(f"{folder}/{names.PROBE_PREFIX}{uuid.uuid4().hex}")
    try:
        old = await _probe_create(backend, path)
        newest = await _probe_replace(backend, path, old.token)
        delete_if = backend.can_delete_if and await _probe_delete_if(backend, path, old.token, newest)
    except BaseException:
        with contextlib.suppress(OSError):  # the first failure says more; a file that stays goes by collection
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
    """Do what has to be refused; gives the file, which has to be as it was."""
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
    # the name is new: if there is a file, an answer was lost, and the request, sent again, met what it had made
    with contextlib.suppress(FileExistsError):
        await backend.create(path, first)
    again = backend.create(path, b"probe: create over a file\n")
    return await _must_leave(backend, path, first, again, FileExistsError, "create", "over an existing file")


async def _probe_replace(backend: Backend, path: str, old_token: str) -> bytes:
    """Replace, then replace with the token of before; that must fail and leave what is there."""
    second = b"probe 2, of another length\n"
    try:
        await backend.replace(path, second, old_token)
    except ConflictError:
        # as with create: if the file is ours, the answer to our first request was lost
        if (await backend.read(path)).data != second:
            raise _refused(path, "replace", "with the right token was refused") from None
    wrong = backend.replace(path, b"probe: replace with a wrong token\n", old_token)
    return (await _must_leave(backend, path, second, wrong, ConflictError, "replace", "with a wrong token")).data


async def _probe_delete_if(backend: Backend, path: str, old_token: str, newest: bytes) -> bool:
    """Whether a delete with a wrong token leaves the file; a store that ignores the condition is only less able."""
    if await backend.delete_if(path, old_token):
        return False
    try:
        return (await backend.read(path)).data == newest
    except FileNotFoundError:
        return False


async def _remove_lock_folder(backend: Backend, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # not every backend makes one
        await backend.remove_folder(names.chunks_folder(names.segment_of_header(path)))
