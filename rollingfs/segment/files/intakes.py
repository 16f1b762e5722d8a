"""Intakes for the data of an append, an overwrite or a stage: a refusal comes before an upload."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rollingfs.backend.contract import FileInfo
from rollingfs.format import transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.side_files import Last
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.segment.at import At
from rollingfs.segment.write.chunk_writer import ChunkWriter
from rollingfs.segment.write.ingest import Intake

Check = Callable[[Header | None, FileInfo | None], None]
"""Raises, before an upload, if the operation cannot succeed on the present header or plain file."""


def addition(at: At, path: str, guard: Guard = NO_GUARD, *, create: bool = False) -> Intake:
    """Return an intake for data to be appended; before it uploads, it refuses data that could not be committed now."""

    def check(header: Header | None, plain: FileInfo | None) -> None:
        if header is not None:
            transitions.check_open(transitions.check(header, guard, path), path)
        elif plain is None:
            if not create:
                raise transitions.missing(path)
            transitions.check_absent(guard, path)

    return new_intake(at, path, check, appends=True)


def replacement(at: At, path: str, guard: Guard = NO_GUARD, *, create_only: bool = False) -> Intake:
    """Return an intake for data that replaces the content; it refuses as `addition` does."""

    def check(header: Header | None, plain: FileInfo | None) -> None:
        if create_only and (header is not None or plain is not None):
            raise transitions.exists(path)
        if header is not None:
            transitions.check(header, guard, path)

    return new_intake(at, path, check)


def new_intake(at: At, path: str, check: Check | None, *, appends: bool = False, staged: bool = False) -> Intake:
    new_writer = partial(_new_writer, at, path, check, appends, staged)
    return Intake(at, path, new_writer, at.budget.share(), staged=staged)


async def _new_writer(at: At, path: str, check: Check | None, appends: bool, staged: bool) -> ChunkWriter:
    """Return the policy by which large data is written: the segment's own, or a new segment's."""
    await at.abilities(path)
    loaded = await at.headers.load(path)
    header = loaded.header if loaded.live else None
    if check is not None and (header is None or header.phase is not Phase.MERGING):
        try:
            check(header, None if loaded.live else await at.contents.room(path, loaded))
        except FileNotFoundError:  # unless another has adopted a plain file, and deleted it, between the two looks
            header = transitions.live((await at.headers.load(path)).header, path)
            if header.phase is not Phase.MERGING:
                check(header, None)
    policy = await at.inherited.policy(path) if header is None else header.policy
    more = partial(ChunkWriter, at.backend, path, policy.max_bytes, staged=staged, clock=at.clock)
    if header is None or not appends:
        return more()
    return more(start=header.length, incarnation=header.segment, last=Last.of(header))
