"""Create and overwrite: a new incarnation, empty or with data, in a single commit."""

from __future__ import annotations

from functools import partial

from rollingfs.format import names, transitions
from rollingfs.format.drops import with_hints
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import NO_GUARD, Attrs, Guard
from rollingfs.policy import ROLLING_FIELDS, RollingPolicy
from rollingfs.runtime.meters import OVERWRITE
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.chunk_files import Stored, Uploads
from rollingfs.segment.commit.removals import check_there, try_drops
from rollingfs.segment.files.adopt import new_header
from rollingfs.segment.files.intakes import replacement
from rollingfs.segment.segment import Segment
from rollingfs.segment.write.append_to_header import as_items, grow
from rollingfs.segment.write.ingest import Data, Intake, Items


async def create(at: At, path: str, policy: RollingPolicy | None = None) -> Header:
    """Make an empty segment.

    Raises
    ------
    FileExistsError
        A segment or a plain file is there.
    FolderOccupiedError
        A folder with something in it is.
    """
    names.check_segment_name(path)

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        if base.header is not None and base.header.phase is Phase.MERGING:
            raise transitions.MergeFoundError(path, base.header)  # the target may have its content already
        if base.live or await at.contents.room(path, base) is not None:
            raise transitions.exists(path)
        if policy is None:
            return new_header(at, base.header, await at.inherited.policy(path))
        return new_header(at, base.header, RollingPolicy(**policy.as_fields(), own=ROLLING_FIELDS))

    return (await at.commits.commit(path, step)).made


async def replace_content(
    at: At, path: str, attrs: Attrs, guard: Guard, create_only: bool, data: Items, uploads: Uploads | None
) -> Header:
    async def step(base: Segment, attempt: Attempt) -> Header | None:
        plain = None if base.live else await at.contents.room(path, base)
        if create_only and (base.live or plain is not None):
            raise transitions.exists(path)
        if base.live:
            policy = transitions.check(base.header, guard, path).policy
        else:
            if guard.segment is not None:
                raise transitions.missing(path)
            transitions.check_absent(guard, path)
            policy = await at.inherited.policy(path)
        header = new_header(at, base.header, policy, plain)
        if base.header is not None:
            await check_there(at, path, base.header)
            hints = await at.pages.hints(path, base.header.entries)
            header = with_hints(header, hints, at.now_ms())
        items = await as_items(data, attempt.files, base.header)
        given = attrs(base.header.attrs if base.header else {}, 0) if callable(attrs) else attrs
        return transitions.with_attrs(await grow(header, items, attempt), given, path)

    is_large = any(isinstance(item, Stored) for item in data)
    given = [uploads] if uploads else []
    header = (await at.commits.commit(path, step, fresh=is_large, uploads=given)).made
    await try_drops(at, path, header)
    return header


async def overwrite(
    at: At,
    path: str,
    data: Data | Intake,
    *,
    attrs: Attrs | None = None,
    guard: Guard = NO_GUARD,
    create_only: bool = False,
) -> Header:
    """Create a segment, or replace its content by a new incarnation, in a single commit.

    Parameters
    ----------
    data
        What `Intake.take` takes, or an intake that has taken it (see `replacement`).
    attrs
        All attributes of the new incarnation; a function makes them of the attributes that it replaces.

    Raises
    ------
    FileExistsError
        With `create_only`: something is there.
    FolderOccupiedError
        A folder with something in it is there.
    FencedError
        An exclusive owner holds it.
    AttributeMismatchError
        An expected attribute differs.
    """
    names.check_segment_name(path)
    transitions.check_attrs(attrs or {}, path)
    intake = replacement(at, path, guard, create_only=create_only)
    commit = partial(replace_content, at, path, attrs or {}, guard, create_only)
    return await intake.commit(OVERWRITE, data, commit)
