"""The verbs of a segment, by path and by handle, each written once: coroutines that take a `Binding`.

The filesystem and `Segment` have a line for each, which makes their methods. Verbs only by path come last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from rollingfs.errors import NoSegmentError
from rollingfs.format.merging import ARROW_STREAM, PARQUET
from rollingfs.format.transitions import MISSING, NO_GUARD
from rollingfs.fs import arguments
from rollingfs.fs.arguments import Attrs
from rollingfs.fs.binding import Binding
from rollingfs.policy import RollingPolicy
from rollingfs.segment.commit.chunk_files import Staged
from rollingfs.segment.files.intakes import addition, replacement
from rollingfs.segment.verbs.append import append as append_segment, stage as stage_segment
from rollingfs.segment.verbs.change import release as release_segment, seal as seal_segment
from rollingfs.segment.verbs.create import create as create_segment, overwrite as overwrite_segment
from rollingfs.segment.write.ingest import Data, Intake


class Bound(Protocol):
    """A handle on a segment."""

    _binding: Binding


# -- content -----------------------------------------------------------------------------------------------


async def append(
    at: Binding,
    data: Data | Intake,
    expected_offset: int | None = None,
    attrs: Attrs = None,
    expected_attrs: Attrs = None,
) -> int:
    """Append all data to a segment in a single commit.

    Parameters
    ----------
    data
        Bytes, a binary file, receipts of `stage`, or an iterable of these; of any size, in bounded memory. A
        receipt that is given twice is appended twice.
    expected_offset
        The segment offset at which the data must begin.
    attrs
        Attributes to set in the same commit; None removes an attribute.
    expected_attrs
        The values that attributes must have; None if there must be no such attribute.

    Returns
    -------
    int
        The segment offset at which the data begins.

    Raises
    ------
    FileNotFoundError
        There is no such segment or file.
    SegmentSealedError, FencedError, BadOffsetError, AttributeMismatchError, StagedExpiredError
        No byte was written.
    ValueError
        The segment would be longer than 2**63 - 1 bytes; no byte was written.
    AppendOutcomeUnknown
        It is not known whether the commit took place.
    """
    guard = at.guard(expected_offset, expected_attrs)
    if attrs is not None:
        arguments.check_attrs(at.path, attrs)
    if at.core.via is not None and guard is NO_GUARD and attrs is None and type(data) is bytes:
        offset = await at.core.via.append(at.path, data)
        if offset is not None:
            return offset
    try:
        written = await append_segment(at.client, at.path, data, attrs=attrs, guard=guard)
    except FileNotFoundError as error:
        raise _how_to_create(at, error) from None
    if at.is_bound:
        at.advance(written.segment)
    return written.offset


async def take_append(
    at: Binding, data: Data, expected_offset: int | None = None, attrs: Attrs = None, expected_attrs: Attrs = None
) -> Intake:
    """Upload the data of `append`, and commit no byte."""
    guard = at.guard(expected_offset, expected_attrs)
    arguments.check_attrs(at.path, attrs)
    try:
        return await taken(addition(at.client, at.path, guard), data)
    except FileNotFoundError as error:
        raise _how_to_create(at, error) from None


def _how_to_create(at: Binding, error: FileNotFoundError) -> FileNotFoundError:
    """Return the error of an append by path to a missing segment, with the way to create it."""
    if at.is_bound or not isinstance(error, NoSegmentError):
        return error
    why = f"{MISSING}, so nothing was written: create it first, or open it with mode 'ab', which creates it"
    return NoSegmentError(error.errno, why, at.path)


async def taken(intake: Intake, data: Data) -> Intake:
    """Return an intake, once it has uploaded data that is too large for memory."""
    await intake.take(data)
    await intake.flush()
    return intake


async def stage(at: Binding, data: Data) -> Staged:
    """Upload data for a segment, which need not be there yet, and commit no byte; an exclusive owner allows it, too.

    Returns
    -------
    Staged
        A small picklable receipt for this path; any process can give it to `append` or `overwrite`. Each call that
        gets the receipt commits the data, a second call too: `expected_offset` or `expected_attrs` prevents that.
    """
    return await stage_segment(at.client, at.path, data)


async def truncate(at: Binding, offset: int, erase: bool = False, as_bytes: bool = False) -> Any:
    """Drop the bytes of a segment before an offset, and delete the chunks that end before the offset.

    Parameters
    ----------
    erase
        Leave none of these bytes in a file of the segment, as a law may ask for: also write the chunk with the
        offset again, keep no file for readers of older snapshots, collect, and return the rest elsewhere. To
        finish an erase that was broken off, or an erase of files that were too young, call it again.
    as_bytes
        Also cut a file of a format of which no part is a file, like Parquet and zip: its readers then fail.
        `rollingfs.parquet.truncate` cuts Parquet by row groups.

    Returns
    -------
    int, or Erased with `erase`
        Bytes that wait for `collect`, because their chunks were staged or are in folders of other segments; or
        what was erased, and each file that may still hold erased bytes, with the reason.

    Raises
    ------
    BadOffsetError
        The offset is negative or beyond the end.
    FileNotFoundError, FencedError
        The same as in `seal`.
    WholeFileError
        It is a file of such a format, and the offset is within; no byte was dropped.
    CorruptChunkError
        With `erase`: the chunk with the offset is damaged; no byte was erased.
    """
    from rollingfs.segment.verbs.truncate import cut_bytes, truncate as cut_start

    arguments.check_offset(at.path, offset)
    arguments.check_switches(erase=erase, as_bytes=as_bytes)
    await at.bind()
    change: Any = partial(cut_start, at.client)
    if erase:
        from rollingfs.segment.verbs.erase import erase as erase_start

        change = partial(erase_start, at.client)
    try:
        if as_bytes:
            return await change(at.path, offset, at.guard())
        return await cut_bytes(at.client, at.path, offset, at.guard(), change)
    finally:
        at.advance()


async def concat(
    at: Binding,
    sources: Sequence[str | Bound],
    attrs: Attrs = None,
    expected_attrs: Attrs = None,
    as_bytes: bool = False,
    as_format: str | None = None,
    create: bool = False,
    newline: bool = False,
) -> int:
    """Append sealed segments to another without moving bytes; the sources are gone afterwards.

    Parameters
    ----------
    sources
        Paths, or handles on segments: then only the segment that the handle is bound to.
    as_bytes
        Also join files of formats that do not join, like Parquet, ORC and zip: the bytes are there, but a reader
        of the format finds only a single file. Also join text whose last line has no line feed.
    as_format
        ``"parquet"`` makes a single Parquet file of the target, which may be empty, and the sources: the same commit
        puts a footer after them that names all of their row groups. All must have the same columns. No row group moves.
        ``"arrow-stream"`` makes a single Arrow IPC stream of them: the schemas of all streams but the first, and all
        end marks, are left out. All must have the same schema. No row moves.
    create
        Make the target if it is not there, in the commit of the first sources: a concat that is refused leaves no
        target.
    newline
        End text with a line feed before the next part.

    Returns
    -------
    int
        The offset in the target at which the first source begins.

    Raises
    ------
    FileNotFoundError
        The target or a source is not there.
    SegmentNotSealedError
        A source is not sealed.
    SegmentSealedError, FencedError, AttributeMismatchError
        The same as in `append`.
    WholeFileError
        The target or a source is a file of a format that does not join, or text without a line feed at its end;
        no byte was joined. A single whole file joins an empty target.
    MalformedFooterError
        With ``"parquet"``: the target or a source is not Parquet, or they have different columns; no byte was joined.
    MalformedStreamError
        With ``"arrow-stream"``: the target or a source is no Arrow stream, or they have different schemas, or the end
        mark is in the target; no byte was joined.
    ValueError
        The target is among the sources, or a source comes twice.
    """
    from rollingfs.segment.verbs.concat import concat

    if isinstance(sources, str):
        raise TypeError(f"{at.path}: concat takes a list of sources, not one path; nothing was changed")
    arguments.check_attrs(at.path, expected_attrs, "expected_attrs")
    arguments.check_attrs(at.path, attrs)
    arguments.check_switches(as_bytes=as_bytes, create=create, newline=newline)
    if as_format not in (None, PARQUET, ARROW_STREAM) or (as_format and as_bytes):
        raise ValueError(
            f"{at.path}: as_format is {as_format!r}: it must be {PARQUET!r} or {ARROW_STREAM!r}, and without as_bytes; "
            "nothing was changed"
        )
    if newline and (as_bytes or as_format):
        raise ValueError(f"{at.path}: newline=True goes with neither as_bytes nor as_format; nothing was changed")
    paths, meant = [], {}
    for source in sources:
        handle: Binding | None = getattr(source, "_binding", None)
        paths.append(at.core.to_write(source) if handle is None else handle.path)  # type: ignore[arg-type]  # a path
        if handle is not None:
            meant[handle.path] = handle.segment
    await at.bind()
    guard = at.guard(None, expected_attrs)
    offset = await concat(
        at.client,
        at.path,
        paths,
        attrs=attrs,
        guard=guard,
        meant=meant,
        as_bytes=as_bytes,
        as_format=as_format,
        newline=newline,
        create=create,
    )
    at.advance()
    return offset


# -- the life of a segment -----------------------------------------------------------------------------------


async def seal(at: Binding) -> int:
    """Let a segment take no more bytes; a sealed segment stays as it is.

    Returns
    -------
    int
        Its length (end offset).

    Raises
    ------
    FileNotFoundError
        There is no such segment or file.
    FencedError
        An exclusive owner holds it.
    """
    await at.bind()
    length = await seal_segment(at.client, at.path, at.guard())
    at.advance()
    return length


async def delete(at: Binding) -> None:
    """Delete the segment.

    Raises
    ------
    FileNotFoundError
        The segment is gone, or another has its name.
    FencedError
        An exclusive owner holds it.
    """
    from rollingfs.segment.verbs.delete import delete

    await delete(at.client, at.path, at.guard())


async def release(at: Binding) -> None:
    """Give back a segment that this handle holds exclusively.

    Raises
    ------
    FencedError
        Another has acquired it.
    ValueError
        This handle holds no epoch.
    """
    if at.held is None:
        raise ValueError(f"{at.path}: this handle holds no epoch to release; acquire() returns one that does")
    await release_segment(at.client, at.path, at.guard())
    at.held = None
    at.advance()


# -- by path alone: they make a segment, or give one new content ---------------------------------------------


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
    await create_segment(at.client, at.path, policy)


async def overwrite(at: Binding, data: Data | Intake, attrs: Attrs = None, expected_attrs: Attrs = None) -> None:
    """Create a segment or replace its content, in a single commit: a new incarnation that begins at offset 0.

    The policy stays; attributes other than `attrs` do not. Data and attributes are as for `append`.

    Raises
    ------
    FencedError, AttributeMismatchError, StagedExpiredError
        No byte was written.
    AppendOutcomeUnknown
        It is not known whether the commit took place.
    """
    guard = at.guard(None, expected_attrs)
    arguments.check_attrs(at.path, attrs)
    await overwrite_segment(at.client, at.path, data, attrs=attrs, guard=guard)


async def take_overwrite(at: Binding, data: Data, attrs: Attrs = None, expected_attrs: Attrs = None) -> Intake:
    """Upload the data of `overwrite`, and commit no byte."""
    return await taken(replacement(at.client, at.path, at.guard(None, expected_attrs)), data)


async def pipe_file(at: Binding, value: Data | Intake, mode: str = arguments.OVERWRITE, **kwargs: Any) -> None:
    """Write a whole file, in a single commit.

    Parameters
    ----------
    mode
        ``"overwrite"`` replaces an existing file, a sealed segment too; ``"create"`` fails if a file exists.

    Raises
    ------
    FileExistsError
        With ``"create"``: a segment or a plain file is there.
    """
    await overwrite_segment(at.client, at.path, value, create_only=arguments.creates_only(mode, at.path))


async def take_pipe_file(at: Binding, value: Data, mode: str = arguments.OVERWRITE, **kwargs: Any) -> Intake:
    """Upload the data of `pipe_file`, and commit no byte."""
    create_only = arguments.creates_only(mode, at.path)
    return await taken(replacement(at.client, at.path, create_only=create_only), value)


async def touch(at: Binding, truncate: bool = True, **kwargs: Any) -> None:
    """Make an empty file.

    Parameters
    ----------
    truncate
        Empty a file that is there. Otherwise it stays as it is, with its date.
    """
    if truncate:
        await overwrite_segment(at.client, at.path, b"")
        return
    with contextlib.suppress(FileExistsError):
        await create_segment(at.client, at.path)
