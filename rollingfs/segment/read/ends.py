"""The first and last bytes of a segment, which show the format of a file."""

from __future__ import annotations

from collections.abc import Sequence

from rollingfs.errors import CorruptChunkError, UnsafeBackendError, worded
from rollingfs.format import whole_files
from rollingfs.format.edges import HEAD_BYTES, TAIL_BYTES
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
    ends = await ends_of(fetcher, view, HEAD_BYTES, TAIL_BYTES)
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
