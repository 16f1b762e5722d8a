"""Stage: chunks of a segment are uploaded, and not committed."""

from __future__ import annotations

import uuid

from rollingfs.format import names
from rollingfs.segment.at import At
from rollingfs.segment.commit.chunk_files import Staged, Stored
from rollingfs.segment.files.intakes import new_intake
from rollingfs.segment.write.ingest import Data


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
