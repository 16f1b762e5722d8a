"""Change the header of a live segment by a rule: seal, acquire, release, a policy; or roll its inline tail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rollingfs.format import transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.files.adopt import commit_live
from rollingfs.segment.segment import Segment
from rollingfs.segment.write.append_to_header import grow


async def change(at: At, path: str, rule: Callable[[Header], Header], guard: Guard = NO_GUARD) -> Header:
    """Commit what a rule makes of a live header, unless that is the header itself.

    Raises
    ------
    FileNotFoundError
        No segment is there.
    FencedError, AttributeMismatchError
        The guard forbids it; the segment is unchanged.
    """

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        found = transitions.check(base.header, guard, path)
        changed = rule(found)
        return None if changed == found and changed.policy.own == found.policy.own else changed

    header = (await commit_live(at, path, step, guard)).header  # not `made`: a seal takes few hops
    assert header is not None
    return header


async def seal(at: At, path: str, guard: Guard = NO_GUARD) -> int:
    """Let the segment take no more bytes; returns its length."""
    return (await change(at, path, transitions.seal, guard)).length


async def acquire(at: At, path: str, owner: str, guard: Guard = NO_GUARD) -> Header:
    """Take the segment exclusively, also from another owner; the header's epoch is the new handle's."""
    if not owner:
        raise ValueError(f"{path}: an owner needs a name")

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        found = transitions.live(base.header, path)
        transitions.check(found, replace(guard, epoch=found.epoch if found.owner else None), path)
        return transitions.acquire(found, owner)

    return (await commit_live(at, path, step, guard)).made


async def release(at: At, path: str, guard: Guard) -> None:
    """Give an exclusively held segment back."""
    await change(at, path, transitions.release, guard)


async def roll(at: At, path: str, segment: str | None = None) -> int:
    """Make the inline tail of a segment a chunk.

    No byte changes, so a segment that is sealed or held by an owner is rolled, too.

    Parameters
    ----------
    segment
        Only of this incarnation.

    Returns
    -------
    int
        The offset before which all bytes are in chunks then.

    Raises
    ------
    FileNotFoundError
        There is no such segment.
    AppendOutcomeUnknown, CommitTimeoutError
        The commit was not confirmed. The bytes are in the segment with either outcome.
    """

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        found = transitions.check_incarnation(transitions.live(base.header, path), segment, path)
        if found.phase is Phase.MERGING:
            raise transitions.MergeFoundError(path, found)
        return await grow(found, (), attempt, spill_all=True) if found.tail else None

    return (await at.commits.commit(path, step)).made.length
