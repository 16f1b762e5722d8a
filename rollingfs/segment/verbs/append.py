"""Append data at the end of a segment in a single commit, or stage data for a later append."""

from __future__ import annotations

import uuid
from functools import partial

from rollingfs.errors import ConflictError, if_interrupted
from rollingfs.format import names, transitions
from rollingfs.format.transitions import NO_GUARD, Attrs, Guard
from rollingfs.runtime.meters import APPEND
from rollingfs.segment.at import At
from rollingfs.segment.commit.chunk_files import Staged, Stored, Uploads
from rollingfs.segment.files.adopt import ADOPTIONS_MAX, adopt
from rollingfs.segment.files.intakes import addition, new_intake
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.create import replace_content
from rollingfs.segment.write import ingest
from rollingfs.segment.write.group_commit import Append, Written as Written, append_together
from rollingfs.segment.write.ingest import Data, Intake, Items


async def append(
    at: At, path: str, data: Data | Intake, *, attrs: Attrs | None = None, guard: Guard = NO_GUARD, create: bool = False
) -> Written:
    """Append data, in a single commit.

    Parameters
    ----------
    attrs
        Attributes to set; or a function of the segment's attributes and the offset of the data, which is called at each
        attempt to commit. The append is refused by a `RollingError` that the function raises.
    create
        Make the segment if it is missing.

    Returns
    -------
    Written
        The offset at which the data begins, and the header.

    Raises
    ------
    FileNotFoundError
        There is no such segment or file.
    SegmentSealedError, FencedError, BadOffsetError, AttributeMismatchError, FolderOccupiedError
        The data was not written.
    AppendOutcomeUnknown
        It is not known whether the commit took place.
    """
    if attrs:
        transitions.check_attrs(attrs, path)
    if type(data) is bytes and len(data) <= ingest.SMALL_BYTES_MAX:  # the caller holds them: nothing is to be taken
        call = _append(at, path, attrs or {}, guard, create, [data])
        return await at.meters.measure(APPEND, at.runtime.shield(call) if at.runtime.is_async else call, len(data))
    commit = partial(_append, at, path, attrs or {}, guard, create)
    return await addition(at, path, guard, create=create).commit(APPEND, data, commit)


async def _append(
    at: At, path: str, attrs: Attrs, guard: Guard, create: bool, data: Items, uploads: Uploads | None = None
) -> Written:
    is_bound = False
    for _ in range(ADOPTIONS_MAX):
        try:
            return await append_together(at.commits, path, Append(data, guard, attrs, uploads))
        except FileNotFoundError:
            if guard.segment is not None and (is_bound or not guard.is_plain):
                raise
            with if_interrupted(path, "not committed"):
                is_adopted = await adopt(at, path, guard.segment)
            if is_adopted:
                is_bound = True
                continue
            if guard.is_plain:
                raise
            if not create:
                await at.contents.check_no_folder(path)
                raise
        try:
            header = await replace_content(at, path, attrs, guard, True, data, uploads)
        except FileExistsError:
            continue  # another client has created it just now
        return Written(header.start, Segment(path, header))
    raise ConflictError(f"{path}: it is created and deleted too often to be appended to; nothing was written")


async def stage(at: At, path: str, data: Data) -> Staged:
    """Upload chunks for a segment, which need not be there yet, without committing them.

    Returns
    -------
    Staged
        The receipt, for `append` or `overwrite`. Collection deletes the files of a receipt that is never committed.
    """
    names.check_segment_name(path)
    intake = new_intake(at, path, None, staged=True)
    await intake.take(data)
    stored = [chunk for chunk in await intake.finish() if isinstance(chunk, Stored)]  # it keeps none in memory
    return Staged(path, tuple(stored), uuid.uuid4().hex)
