"""The first and last bytes of a segment, which show the format of a file."""

from __future__ import annotations

from rollingfs.errors import CorruptChunkError, UnsafeBackendError, worded
from rollingfs.format import whole_files
from rollingfs.segment.read.ranges import Fetcher
from rollingfs.segment.read.revalidate import OUTDATED
from rollingfs.segment.segment import Segment


async def format_of(fetcher: Fetcher, view: Segment) -> str | None:
    """Return the format of a segment that is one file and does not join, by both ends; None for any other.

    A segment whose end is damaged is no whole file: a cut is a way to be rid of the damage.

    Raises
    ------
    OSError
        An end cannot be read: its tier is not there, or the store refuses to read an archived object.
    """
    ends = await ends_of(fetcher, view, whole_files.HEAD_BYTES, whole_files.TAIL_BYTES)
    return None if ends is None else whole_files.format_of(*ends)


async def ends_of(fetcher: Fetcher, view: Segment, head_bytes: int, tail_bytes: int) -> tuple[bytes, bytes] | None:
    """Return at least the first and just the last bytes of a segment; None if they are damaged.

    Raises
    ------
    OSError
        An end cannot be read; the text says that nothing was changed.
    """
    head, tail = min(view.start + head_bytes, view.length), max(view.length - tail_bytes, view.start)
    ends = [(view, view.start, head), (view, tail, view.length)] if head < tail else [(view, view.start, view.length)]
    answers = await fetcher.read_many(ends)
    for answer in answers:
        if isinstance(answer, CorruptChunkError):
            return None
        if isinstance(answer, OSError) and not isinstance(answer, (UnsafeBackendError, *OUTDATED)):
            raise _unread(view.path, answer) from answer
        if isinstance(answer, Exception):
            raise answer
    return answers[0], answers[-1][-tail_bytes:]  # type: ignore[return-value, index]


def _unread(path: str, error: OSError) -> OSError:
    text = (
        f"{path}: its first and last bytes cannot be read, so it is not known whether it is a file that joins to "
        f"others and can be cut; nothing was changed. {worded(as_bytes=True)} does it without this "
        f"look. It said: {error}"
    )
    return type(error)(text) if error.errno is None else OSError(error.errno, text)
