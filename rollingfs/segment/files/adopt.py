"""Adopts a plain file as a segment, or deletes a plain file; each detects the other.

An adoption:

1. It creates a tombstone, unless it is there: the *claim*.
2. It copies the file into a chunk.
3. It replaces the claim, and no other header.

A deletion of a plain file:

1. It deletes the file.
2. It looks at the header, and replaces a tombstone that is there.

So either finds the other. If the claim came after the look of the deletion, the adoption finds no file to copy. If it
came before, the adoption finds another header in its place.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Sequence
from dataclasses import replace

from rollingfs.backend.contract import FileInfo
from rollingfs.errors import AppendOutcomeUnknown, ConflictError, RollingError, if_interrupted
from rollingfs.format import names, transitions
from rollingfs.format.header import Header, Origin
from rollingfs.format.transitions import Guard
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.system import Moment
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt, Committed, Step
from rollingfs.segment.commit.chunk_files import Stored, Uploads, copy_through
from rollingfs.segment.commit.removals import delete_shadowed
from rollingfs.segment.segment import Segment, is_shadowed, modified_ms, names_file, shadow

ADOPTIONS_MAX = 8
"""Maximum tries with a file that other programs keep changing."""


def _is_meant(path: str, plain: FileInfo, incarnation: str | None) -> bool:
    """Return whether a plain file has this incarnation; None means any."""
    return incarnation in (None, *Segment.of_plain(plain).incarnations)


def new_header(at: At, base: Header | None, policy: RollingPolicy, plain: FileInfo | None = None) -> Header:
    """Return the header of a new incarnation, over the present header."""
    return transitions.create(base, str(uuid.uuid4()), policy, at.now_ms(), shadow(plain))


async def adopt(at: At, path: str, incarnation: str | None = None) -> bool:
    """Give a plain file a header, on condition that the file does not change.

    Parameters
    ----------
    incarnation
        Only the plain file of this incarnation.

    Returns
    -------
    bool
        False if there is no plain file.
    """
    for _ in range(ADOPTIONS_MAX):
        try:
            plain = (await at.headers.view(path, fresh=True)).plain
        except FileNotFoundError:
            return False
        if plain is None:
            return True
        if not _is_meant(path, plain, incarnation):
            return False
        claim = await _claimed(at, path)
        if is_shadowed(claim, plain):
            continue  # a header that came since hides it
        try:
            await _adopt(at, path, plain, claim)
        except (ConflictError, FileNotFoundError):
            continue  # it was overwritten or deleted while it was copied
        return True
    raise ConflictError(f"{path}: the plain file changes too often to be adopted; nothing was written")


async def _claimed(at: At, path: str) -> Header:
    """Return the header at a path; make a tombstone if there is no header."""

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        return transitions.tombstone(new_header(at, None, at.inherited.default)) if base.header is None else None

    return (await at.commits.commit(path, step, fresh=True)).made


async def _adopt(at: At, path: str, plain: FileInfo, claim: Header) -> None:
    stored = await _copied(at, path, plain)
    uploads = Uploads(at, path, [stored] if stored else [])

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        if base.live:
            return None
        # both differ after another commit, also if the header was collected in between
        if base.header is None or (base.header.version, base.header.commits) != (claim.version, claim.commits):
            raise ConflictError(f"{path}: the plain file was deleted, or adopted by others and moved or deleted")
        header = new_header(at, base.header, await at.inherited.policy(path), plain)
        header = replace(header, origin=Origin(header.segment, modified_ms(plain)))
        if stored is not None:
            renewed = await attempt.files.young(stored, base.header)
            header = replace(header, entries=(renewed.chunk(path, 0),))
        # last: what another program writes from here on is no part of the segment. And a copy compares the token
        # alone, but a file of the same bytes that came since is another file
        if shadow(await at.backend.stat(path)) != shadow(plain):
            raise ConflictError(f"{path} changed while it was copied")
        return header

    await uploads.settle(at.commits.commit(path, step, fresh=True, uploads=[uploads]))


async def _copied(at: At, path: str, plain: FileInfo) -> Stored | None:
    """Return a chunk with the bytes of a plain file; None if it is empty."""
    if not plain.size:
        return None
    await at.abilities(path)
    began, backend = Moment.now(at.clock), at.backend
    target = f"{names.chunks_folder(path)}/{names.new_chunk_name(0)}"
    try:
        if backend.capability.can_copy:
            await backend.copy(path, target, plain.token)
        else:
            await copy_through(at, path, target)
    except (RollingError, FileNotFoundError):
        raise
    except OSError as error:
        why = f"the plain file could not be made a segment's, so nothing was written: {error.strerror or error}"
        raise OSError(error.errno or errno.EIO, why, path) from error
    return Stored(target, plain.size, None, modified_ms(plain), began)


async def remove_plain(at: At, path: str, incarnation: str | None = None) -> bool:
    """Delete a plain file; if the store has conditional deletes, only the file that was seen.

    Parameters
    ----------
    incarnation
        Only the plain file of this incarnation.

    Returns
    -------
    bool
        False if there is no file of this incarnation, or a segment has taken its place.
    """
    backend = at.backend
    for _ in range(ADOPTIONS_MAX):
        loaded = await at.headers.load(path)
        plain = None if loaded.live else await at.headers.plain(loaded)
        if plain is None:
            await at.headers.secure(path)  # the client that deleted it may not have flushed that
            return False
        if not _is_meant(path, plain, incarnation):
            return False
        if not (await at.abilities(path)).delete_if or plain.token is None:
            await backend.delete([path])
        elif incarnation is not None and not await delete_shadowed(at, path, shadow(plain)):
            continue  # another has been written meanwhile, perhaps of the same bytes
        elif incarnation is None and not await backend.delete_if(path, plain.token):
            continue  # another has been written meanwhile
        # if it was adopted before it went, a segment has its bytes, which is then to be deleted
        return await _void_claims(at, path, plain)
    raise ConflictError(f"{path}: the plain file changes too often to be deleted; it is still there")


async def _void_claims(at: At, path: str, plain: FileInfo) -> bool:
    """Replace a tombstone that may be the claim of an adoption; False if a segment was adopted from the file."""

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        return base.header if base.header is not None and base.header.deleted else None

    try:
        if (await at.headers.load(path)).header is None:
            return True
        now = (await at.commits.commit(path, step, fresh=True)).header
    except OSError as error:  # the file is gone by now, so no error may say that nothing was written
        why = "the plain file is deleted; whether another client has adopted it before is unknown"
        raise AppendOutcomeUnknown(f"{path}: {why}: delete it again") from error
    # any other segment was made after the file went, or over it
    return now is None or now.deleted or not (now.was_plain and names_file(now, plain))


async def commit_live(at: At, path: str, step: Step, guard: Guard, uploads: Sequence[Uploads] = ()) -> Committed:
    try:
        return await at.commits.commit(path, step, uploads=uploads)
    except FileNotFoundError:
        with if_interrupted(path, "not committed"):
            is_adopted = await adopt(at, path, guard.segment)
        if not is_adopted:
            raise
    return await at.commits.commit(path, step, fresh=True, uploads=uploads)
