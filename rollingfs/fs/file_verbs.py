"""The verbs by path that make a segment, or give one new content: coroutines that take a `Binding`."""

from __future__ import annotations

import contextlib
from typing import Any

from rollingfs.fs import arguments
from rollingfs.fs.arguments import Attrs
from rollingfs.fs.binding import Binding
from rollingfs.fs.segment_verbs import taken
from rollingfs.policy import RollingPolicy
from rollingfs.write.ingest import Data, Intake


async def create(at: Binding, policy: RollingPolicy | None = None) -> None:
    """Make an empty segment.

    Parameters
    ----------
    policy
        When the segment rolls to a new chunk; by default the policy of this filesystem.

    Raises
    ------
    FileExistsError
        A segment or a plain file is there.
    ValueError
        A segment cannot have this name.
    """
    arguments.check_policy(at.path, policy)
    await at.client.segments.create(at.path, policy)


async def overwrite(at: Binding, data: Data | Intake, attrs: Attrs = None, expected_attrs: Attrs = None) -> None:
    """Create a segment or replace its content, in one commit: a new incarnation that begins at offset 0.

    The policy stays; attributes other than `attrs` do not. Data and attributes are as for `append`.

    Raises
    ------
    FencedError, AttributeMismatchError, StagedExpiredError
        Nothing was written.
    AppendOutcomeUnknown
        It is not known whether the commit took place.
    """
    guard = at.guard(None, expected_attrs)
    arguments.check_attrs(at.path, attrs)
    await at.client.segments.overwrite(at.path, data, attrs=attrs, guard=guard)


async def take_overwrite(at: Binding, data: Data, attrs: Attrs = None, expected_attrs: Attrs = None) -> Intake:
    """Upload what `overwrite` is to commit, and commit nothing."""
    return await taken(at.client.segments.replacement(at.path, at.guard(None, expected_attrs)), data)


async def pipe_file(at: Binding, value: Data | Intake, mode: str = arguments.OVERWRITE, **kwargs: Any) -> None:
    """Write a whole file, in one commit.

    Parameters
    ----------
    mode
        ``"overwrite"`` replaces an existing file, a sealed segment too; ``"create"`` fails if one exists.

    Raises
    ------
    FileExistsError
        With ``"create"``: a segment or a plain file is there.
    """
    await at.client.segments.overwrite(at.path, value, create_only=arguments.creates_only(mode, at.path))


async def take_pipe_file(at: Binding, value: Data, mode: str = arguments.OVERWRITE, **kwargs: Any) -> Intake:
    """Upload what `pipe_file` is to commit, and commit nothing."""
    create_only = arguments.creates_only(mode, at.path)
    return await taken(at.client.segments.replacement(at.path, create_only=create_only), value)


async def touch(at: Binding, truncate: bool = True, **kwargs: Any) -> None:
    """Make an empty file.

    Parameters
    ----------
    truncate
        Empty a file that is there. Otherwise it stays as it is, with its date.
    """
    if truncate:
        await at.client.segments.overwrite(at.path, b"")
        return
    with contextlib.suppress(FileExistsError):
        await at.client.segments.create(at.path)
