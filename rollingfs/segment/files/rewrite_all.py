"""The loop of consolidation, offload and onload: it plans and rewrites a segment's chunks, a window at a time."""

from __future__ import annotations

from itertools import islice

from rollingfs.format.header import Header
from rollingfs.runtime.steps import Steps
from rollingfs.segment.files.join_plan import Plan
from rollingfs.segment.files.replace_chunks import window
from rollingfs.segment.files.rewrite import Rewriter

BATCH_BYTES = 1024 * 1024 * 1024
"""About the bytes of a window, or those of two files if they are more."""
FILES_MAX = 1024
"""Maximum files that one commit swaps."""


async def rewrite_all(
    rewriter: Rewriter,
    header: Header,
    plan: Plan,
    file_bytes: int,
    steps: Steps,
    *,
    start: int = 0,
    upto: int | None = None,
) -> tuple[int, int, int, int]:
    """Rewrite the runs of a plan; runs that are damaged stay, and `Rewriter.damaged` names them.

    Parameters
    ----------
    file_bytes
        Of one new file, at most.
    start, upto
        The segment offsets from which to plan, and behind which there is nothing to do.

    Returns
    -------
    tuple
        The chunks that were rewritten, the files that have their bytes now, these bytes, and how many of them the
        server copied.
    """
    store, path, first = rewriter.store, rewriter.path, header.start
    known: Header | None = header
    position, is_last = start, False
    chunks = files = size = by_server = 0
    while not is_last:
        bytes_max = max(BATCH_BYTES, 2 * file_bytes)
        found = await window(store, path, rewriter.segment, position, bytes_max, known)
        header, end = found.header, found.chunks[-1].end if found.chunks else position
        is_last = found.is_last or (upto is not None and end >= upto)
        position, runs = plan(header, found.chunks, store.now_ms(), is_last)
        waiting = iter(runs)
        while batch := list(islice(waiting, FILES_MAX)):
            for swap in await rewriter.rewrite(header, batch, steps):
                chunks, files, size = chunks + len(swap.run), files + 1, size + swap.stored.size
                by_server += rewriter.server_bytes(swap.run, swap.stored.file)
        known = None if runs else header
        steps.reach(position - first)
    steps.reach(steps.total)
    return chunks, files, size, by_server
