"""The first and last bytes of a segment, which show the format of a file; the footers of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rollingfs.errors import CorruptChunkError, UnsafeBackendError, worded
from rollingfs.format import whole_files
from rollingfs.format.side_files import HEAD_BYTES, TAIL_BYTES as EDGE_BYTES
from rollingfs.parquet_footer.chunks import check_within, gaps, live_bytes
from rollingfs.parquet_footer.footer import (
    MAGIC,
    TAIL_BYTES,
    JoinedFile,
    body_size,
    check_fits,
    ended,
    join,
    table_of,
    understood,
)
from rollingfs.parquet_footer.thrift import MalformedFooterError
from rollingfs.segment.read.ranges import Fetcher
from rollingfs.segment.read.revalidate import OUTDATED
from rollingfs.segment.segment import Segment


async def ends_of(fetcher: Fetcher, view: Segment, head_bytes: int, tail_bytes: int) -> tuple[bytes, bytes] | None:
    """Return at least the first and just the last bytes of a segment; None if they are damaged.

    A segment whose end is damaged is no whole file: a cut is a way to be rid of the damage.

    Raises
    ------
    OSError
        An end cannot be read; the segment is unchanged, as its text states.
    """
    head, tail = min(view.start + head_bytes, view.length), max(view.length - tail_bytes, view.start)
    ends = [(view.start, head), (tail, view.length)] if head < tail else [(view.start, view.length)]
    pieces = await pieces_of(fetcher, view, ends)
    return None if pieces is None else (pieces[0], pieces[-1][-tail_bytes:])


async def file_ends(fetcher: Fetcher, view: Segment) -> tuple[bytes, bytes] | None:
    """Return the two ends by which `whole_files` knows a format; None if they are damaged."""
    ends = await ends_of(fetcher, view, HEAD_BYTES, EDGE_BYTES)
    needed = min(whole_files.head_bytes(ends[0]), view.size) if ends else 0
    if ends is None or len(ends[0]) >= needed:
        return ends
    pieces = await pieces_of(fetcher, view, [(view.start, view.start + needed)])
    return None if pieces is None else (pieces[0], ends[1])


async def pieces_of(fetcher: Fetcher, view: Segment, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
    """Return the bytes of ranges; None if they are damaged.

    Raises
    ------
    OSError
        A range cannot be read: its tier is not there, or the store refuses to read an archived object.
    """
    answers = await fetcher.read_many([(view, *place) for place in ranges])
    for answer in answers:
        if isinstance(answer, CorruptChunkError):
            return None
        if isinstance(answer, OSError) and not isinstance(answer, (UnsafeBackendError, *OUTDATED)):
            raise _unread(view.path, answer) from answer
        if isinstance(answer, Exception):
            raise answer
    return answers  # type: ignore[return-value]


def _unread(path: str, error: OSError) -> OSError:
    text = (
        f"{path}: its first and last bytes cannot be read, so it is not known whether it is a file that joins to "
        f"others and can be cut; nothing was changed. {worded(as_bytes=True)} does it without this "
        f"look. It said: {error}"
    )
    return type(error)(text) if error.errno is None else OSError(error.errno, text)


FOOTER_READ_BYTES = 512 * 1024
"""Maximum bytes of the first read for the footer of a Parquet file. A second request takes longer than these bytes."""


WASTED_PART_MAX = 0.1
"""The part of a file that old footers may take, before an append or upkeep rewrites the file."""
WASTED_BYTES_MIN = 64 * 1024
"""Old footers up to this size are not a reason to rewrite."""


def is_much(wasted: int, size: int) -> bool:
    """Return whether old footers are a reason to rewrite a file of some size."""
    return wasted > max(WASTED_BYTES_MIN, WASTED_PART_MAX * size)


def is_one_file(footer: bytes, size: int) -> bool:
    """Return whether old footers are the waste of a file: between row groups, and at most a footer after them.

    If whole Parquet files follow each other, as records of a log, the last footer names bytes of its own file only, and
    reads as if these were the bytes of the first. Then all bytes before the last file are a gap after the row groups.
    """
    return gaps(footer, size - len(ended(footer)))[0] > 0 and not is_last_of_several(footer, size)


def is_last_of_several(footer: bytes, size: int) -> bool:
    """Return whether more bytes follow the last row group than an old footer has, as if other files came before."""
    behind = gaps(footer, size - len(ended(footer)))[1]
    return behind > max(WASTED_BYTES_MIN, WASTED_PART_MAX * size, 2 * len(footer))


async def is_worn(fetcher: Fetcher, view: Segment) -> bool:
    """Return whether a segment is an open Parquet file, without an owner, with reason to rewrite it for old footers."""
    if view.sealed or view.header is None or view.header.owner is not None or view.size <= WASTED_BYTES_MIN:
        return False
    if await fetcher.read(view, view.length - len(MAGIC), view.length) != MAGIC:
        return False
    try:
        footer = await footer_of(fetcher, view)
        with understood():
            return is_much(view.size - live_bytes(footer), view.size) and is_one_file(footer, view.size)
    except MalformedFooterError:
        return False  # it only ends as one does


async def footer_of(fetcher: Fetcher, view: Segment) -> bytes:
    """Return the footer of the file that a segment is, without its length and the magic.

    Raises
    ------
    MalformedFooterError
        The segment does not end as a Parquet file does, or its head was truncated.
    """
    near = _near(view)
    return await _cut_out(fetcher, view, await fetcher.read(view, near, view.length), near)


def _near(view: Segment) -> int:
    """Return the offset of the first read for a footer."""
    return max(view.start, view.length - FOOTER_READ_BYTES, min(_last_run(view), view.length - TAIL_BYTES))


async def _cut_out(fetcher: Fetcher, view: Segment, last: bytes, near: int) -> bytes:
    """Return the footer in the last bytes of a file, which begin at `near`; read its missing bytes."""
    first, stop = (view.start + offset for offset in body_size(last[-TAIL_BYTES:], view.size))
    if first < near:
        last, near = await fetcher.read(view, first, near) + last, first
    footer = last[first - near : stop - near]
    check_within(footer, first - view.start)
    return footer


def _last_run(view: Segment) -> int:
    """Return the begin of the bytes that a single request gives: of the tail, or else of the last chunk."""
    header = view.header
    if header is None or header.tail or not header.entries:
        return view.start if header is None else header.tail_start
    return header.entries[-1].start


async def one_footer(fetcher: Fetcher, files: Sequence[Segment]) -> bytes:
    """Return the footer that makes a single file of Parquet files in a row; empty segments do not count.

    Raises
    ------
    MalformedFooterError
        A segment is not Parquet, or has other columns than the first; the message names it.
    """
    parts: list[JoinedFile] = []
    at = 0
    views = [view for view in files if view.size]
    ends = await fetcher.read_many([(view, _near(view), view.length) for view in views])
    for view, last in zip(views, ends, strict=True):
        if isinstance(last, Exception):
            raise last
        with _refused(view.path):
            parts.append(JoinedFile(await _cut_out(fetcher, view, last, _near(view)), at))
            with understood():
                check_fits(table_of(parts[0].footer), table_of(parts[-1].footer))
        at += view.size
    with _refused(files[0].path), understood():
        return ended(join(parts)) if len(parts) > 1 else b""


@contextmanager
def _refused(path: str) -> Iterator[None]:
    """Name the file whose footer does not fit."""
    try:
        yield
    except MalformedFooterError as error:
        raise MalformedFooterError(f"{path}: it cannot be joined as Parquet: {error}; nothing was joined") from error
