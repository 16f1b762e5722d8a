"""Cuts the head of a segment, unless what is left would be no file of its format any more.

Text, and all that joins, is cut by byte, and Arrow streams in a row at the begin of a stream. A Parquet file is cut by
row group: a commit moves the start and appends a footer that names the row groups which stay. Files of other whole
formats, and sealed Parquet files, stay or go whole.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from rollingfs.errors import BadOffsetError, WholeFileError, if_interrupted, worded
from rollingfs.format import transitions, whole_files
from rollingfs.format.arrow_stream import CONTINUATION
from rollingfs.format.header import Header
from rollingfs.format.transitions import GONE, NO_GUARD, Guard
from rollingfs.parquet_footer.chunks import gaps, groups_before
from rollingfs.parquet_footer.footer import MAGIC, JoinedFile, ended, join, last_groups, understood
from rollingfs.parquet_footer.thrift import MalformedFooterError
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.runtime.meters import OVERWRITE
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt, Committed
from rollingfs.segment.commit.chunk_files import Uploads
from rollingfs.segment.commit.removals import finish_drops, try_drops
from rollingfs.segment.files.adopt import commit_live
from rollingfs.segment.files.intakes import addition
from rollingfs.segment.files.join_looks import splits_a_stream
from rollingfs.segment.read.ends import ends_of, file_ends, footer_of, is_last_of_several
from rollingfs.segment.read.revalidate import OUTDATED
from rollingfs.segment.segment import Segment
from rollingfs.segment.write.append_to_header import as_items, behead, grow
from rollingfs.segment.write.ingest import PIECE_BYTES, Data, Intake, Items

T = TypeVar("T")

LOOKS_MAX = 16
"""Maximum looks at a segment that others replace, or append to, before each cut."""
PARQUET = "Parquet"


@value_class
class Cut:
    """The way in which the head of a segment goes."""

    at: int
    """The segment offset that becomes the start."""
    footer: bytes = b""
    """The end of a Parquet file, which names the row groups that stay."""
    copied: tuple[int, int] = (0, 0)
    """The bytes that the commit puts before the footer, because no magic stands before them at their place."""


async def cut_bytes(
    at: At, path: str, offset: int, guard: Guard, change: Callable[[str, int, Guard], Awaitable[T]]
) -> T:
    """Truncate or erase by a call, which is bound to the incarnation that was looked at.

    An append between the look and the commit does not matter: it makes no whole file of other bytes.

    Raises
    ------
    WholeFileError
        The rest would be no file of its format; the segment is unchanged.
    OSError
        An end cannot be read, so the format is not known; the segment is unchanged.
    """
    for left in reversed(range(LOOKS_MAX)):
        view = await at.headers.view(path, fresh=True)
        try:
            if view.start < offset < view.length and (name := await _broken(at, view, offset)) is not None:
                raise _whole(path, name, offset)
            return await change(path, offset, _bound(guard, view))
        except OUTDATED:
            if guard.segment is not None or not left:
                raise
            # a verb by path goes on with another incarnation, which the next look finds
            await at.runtime.sleep(backoff_s(LOOKS_MAX - left))
    raise AssertionError("the last look returns or raises")


async def cut_groups(at: At, path: str, offset: int) -> int:
    """Drop the row groups of a Parquet file that are wholly before a segment offset; return the bytes dropped."""
    guard = NO_GUARD
    for left in reversed(range(LOOKS_MAX)):
        view = await at.headers.view(path, fresh=True)
        if guard.segment not in (None, *view.incarnations):
            raise FileNotFoundError(errno.ENOENT, f"{GONE}; nothing was dropped", path)
        if not 0 <= offset <= view.length:
            raise BadOffsetError(f"{path}: there is no offset {offset}; {view.extent}; nothing was dropped")
        guard = _bound(guard, view)
        try:
            cut = await cut_parquet(at, view, offset)
            return 0 if cut.at <= view.start else (await commit_cut(at, view, cut, guard)).start - view.start
        except (BadOffsetError, *OUTDATED):
            if not left:
                raise
            await at.runtime.sleep(backoff_s(LOOKS_MAX - left))
    raise AssertionError("the last look returns or raises")


async def plan_cut(at: At, view: Segment, offset: int) -> Cut:
    """Return the cut of the bytes before an offset, as a policy asks for it.

    Raises
    ------
    WholeFileError
        The rest would be no file of its format.
    OSError
        An end cannot be read, so the format is not known.
    """
    if offset >= view.length:  # all goes; of Parquet the columns stay
        ends = await ends_of(at.fetcher, view, 0, len(MAGIC))
        name = PARQUET if ends is not None and ends[1] == MAGIC else None
    else:
        name = await _broken(at, view, offset)
    if name == PARQUET:
        return await cut_parquet(at, view, offset)
    if name is not None:
        raise _whole(view.path, name, offset)
    return Cut(offset)


async def cut_parquet(at: At, view: Segment, offset: int) -> Cut:
    """Return the cut of the row groups that are wholly before a segment offset.

    Raises
    ------
    WholeFileError
        It is sealed, is not a single Parquet file, or its footer is not understood; it is unchanged.
    """
    if view.sealed:
        raise WholeFileError(
            f"{view.path} is a sealed Parquet file, which takes no other footer: it goes as a whole; nothing was "
            "dropped"
        )
    try:
        old = await footer_of(at.fetcher, view)
        with understood():
            if is_last_of_several(old, view.size):
                raise MalformedFooterError("it holds several whole Parquet files")
            count, first = groups_before(old, offset - view.start)
            kept = last_groups(old, count)
    except MalformedFooterError as error:
        raise WholeFileError(f"{view.path}: no row groups can be dropped: {error}; nothing was dropped") from error
    if not count:
        return Cut(view.start)
    body = view.size - len(ended(old))
    if first is None:  # none stays: the magic at the end of the file is the one at its beginning
        return Cut(view.length - len(MAGIC), ended(kept))
    start, footer = view.start + first - len(MAGIC), join([JoinedFile(kept, len(MAGIC) - first)])
    is_short = not is_last_of_several(footer, view.length - start + len(ended(footer)))
    if is_short and await at.fetcher.read(view, start, start + len(MAGIC)) == MAGIC:
        return Cut(start, ended(footer))
    behind = gaps(old, body)[1]  # old footers, which no appends have come between
    return Cut(view.length - len(MAGIC), ended(footer), (start + len(MAGIC), view.start + body - behind))


async def commit_cut(at: At, view: Segment, cut: Cut, guard: Guard) -> Header:
    """Commit the cut of a Parquet file, on condition that it has the very bytes that were seen.

    Raises
    ------
    BadOffsetError, FileNotFoundError
        It was changed since the look; it was not cut.
    """
    guard = replace(_bound(guard, view), expected_offset=view.length, expected_start=view.start)
    if cut.copied == (0, 0):
        return await renew(at, view.path, cut.footer, guard, cut.at)
    intake, (position, end) = addition(at, view.path, guard), cut.copied
    try:
        while position < end:
            await intake.take(await at.fetcher.read(view, position, min(position + PIECE_BYTES, end)))
            position += PIECE_BYTES
        await intake.take(cut.footer)
        await intake.flush()
    except BaseException:
        await intake.abort()
        raise
    return await renew(at, view.path, intake, guard, cut.at)


def _bound(guard: Guard, view: Segment) -> Guard:
    """Return a guard that means the incarnation which was seen, unless it means another."""
    seen = next(iter(view.incarnations), None)
    return guard if guard.segment is not None or seen is None else replace(guard, segment=seen)


async def _broken(at: At, view: Segment, offset: int) -> str | None:
    """Return the format of a segment whose bytes from an offset on would be no file of it."""
    ends = await file_ends(at.fetcher, view)
    if ends is None or (name := whole_files.format_of(*ends)) is not None:
        return None if ends is None else name
    is_split = ends[0].startswith(CONTINUATION) and await splits_a_stream(at.fetcher, view, offset)
    return whole_files.ARROW_STREAM if is_split else None


def _whole(path: str, name: str, offset: int) -> WholeFileError:
    more = {
        PARQUET: ", and rollingfs.parquet.truncate drops whole row groups",
        whole_files.ARROW_STREAM: "; a cut where a stream begins is allowed",
    }
    return WholeFileError(
        f"{path} is {whole_files.a_file(name)}, and its bytes from offset {offset} on may be none: nothing was "
        f"dropped. {worded(as_bytes=True)} drops the bytes all the same{more.get(name, '')}"
    )


async def truncate(at: At, path: str, offset: int, guard: Guard = NO_GUARD) -> int:
    """Drop the bytes before `offset`; returns how many bytes wait for the collection of other folders."""
    return (await cut_head(at, path, offset, guard)).made.waiting_bytes


async def cut_head(at: At, path: str, offset: int, guard: Guard = NO_GUARD) -> Committed:
    """Truncate, and return the headers before and after.

    Raises
    ------
    BadOffsetError
        The offset is negative or beyond the end.
    """

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        found = transitions.check(base.header, guard, path)
        changed = await behead(at, path, found, offset)
        return None if changed is found else changed

    committed = await at.with_room(path, partial(commit_live, at, path, step, guard))
    with if_interrupted(path, "committed"):
        await finish_drops(at, path, committed.made)
    return committed


async def renew(at: At, path: str, data: Data | Intake, guard: Guard, start: int | None = None) -> Header:
    """Append data and move the start in a single commit, by default to the data, which then replaces all bytes.

    Raises
    ------
    FileNotFoundError, SegmentSealedError, FencedError, BadOffsetError
        The segment is unchanged.
    """

    async def commit(items: Items, uploads: Uploads) -> Header:
        async def step(base: Segment, attempt: Attempt) -> Header | None:
            found = transitions.check(base.header, guard, path)
            transitions.check_open(found, path)
            beheaded = await behead(at, path, found, found.length if start is None else start)
            return await grow(beheaded, await as_items(items, attempt.files, found), attempt)

        return (await commit_live(at, path, step, guard, [uploads])).made

    header = await addition(at, path, guard).commit(OVERWRITE, data, commit)
    await try_drops(at, path, header)
    return header
