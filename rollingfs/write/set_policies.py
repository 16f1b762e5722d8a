"""Changes the policies of a live segment, in one commit."""

from __future__ import annotations

from rollingfs.commit.attempt import Attempt
from rollingfs.commit.header_cache import Loaded
from rollingfs.errors import if_interrupted
from rollingfs.format import transitions
from rollingfs.format.header import Header
from rollingfs.format.policies import PolicyChange
from rollingfs.format.transitions import Guard
from rollingfs.write.segment_operations import Segments


async def set_policies(segments: Segments, path: str, change: PolicyChange, guard: Guard | None = None) -> Header:
    """Commit a change of policies, unless the header says all of it already; a plain file becomes a segment first.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    FencedError
        An exclusive owner holds it; nothing was written.
    ValueError
        A value is outside its range; nothing was written.
    """
    guard = guard or Guard()

    async def step(base: Loaded, attempt: Attempt) -> Header | None:
        found = transitions.check(base.header, guard, path)
        changed = change.of(found)
        return None if changed is found else changed

    with if_interrupted(path, "not committed"):
        is_there = await segments.adopt(path, guard.segment)
    if not is_there:
        raise transitions.missing(path)
    header = (await segments.committer.commit(path, step)).header
    assert header is not None
    return header
