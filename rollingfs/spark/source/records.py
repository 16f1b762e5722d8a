"""Lines over byte ranges: a line belongs to the range that holds its first byte. Pure: the bytes come by a callback.

As in Spark's own readers, a line ends with a line feed, a carriage return, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

BLOCK_BYTES = 8 * 1024 * 1024
LOOK_BYTES = 64 * 1024
LOOK_BYTES_MAX = 8 * 1024 * 1024

Read = Callable[[int, int], bytes]
"""Gives the bytes ``[start, end)``, all of them."""

FEED, RETURN = b"\n", b"\r"


def blocks(read: Read, first: int, start: int, end: int, stop: int, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The lines that begin in ``[start, end)``, whole, many to a block, each ended by one line feed.

    Only the very last line, before `stop`, may come without a line feed.

    Parameters
    ----------
    first
        Where the first line of all begins.
    stop
        Where the bytes end; the last line of the range may reach up to here.
    """
    position = begin(read, first, start, stop)
    left = b""
    while position < end:
        upto = min(position + block_bytes, end)
        data = left + read(position, upto)
        position = upto
        if position < end and (at := _last_break(data)):
            yield normalized(data[:at])
            left = data[at:]
        else:
            left = data
    if left:
        yield normalized(left + rest(read, left[-1:], end, stop))


def begin(read: Read, first: int, start: int, stop: int) -> int:
    """Where the first line begins that begins at `start` or behind it; `stop` if there is none."""
    if start <= first:
        return first
    before = read(start - 1, min(start + 1, stop))
    if before[:1] == FEED or (before[:1] == RETURN and before[1:] != FEED):
        return start
    position, size = start, LOOK_BYTES
    while position < stop:
        upto = min(position + size, stop)
        at = _first_break(data := read(position, upto), is_last=upto == stop)
        if at:
            return position + at
        # a return at the end of a look may have its line feed behind it: look at it again
        position, size = upto - (data[-1:] == RETURN and upto < stop), min(2 * size, LOOK_BYTES_MAX)
    return stop


def rest(read: Read, last: bytes, position: int, stop: int) -> bytes:
    """What is missing at the end of a line, given its last byte so far; nothing if the line is whole."""
    if last == FEED or position >= stop:
        return b""
    if last == RETURN:
        return FEED if read(position, position + 1) == FEED else b""
    found = b""
    size = LOOK_BYTES
    while position < stop:
        upto = min(position + size, stop)
        found += read(position, upto)
        if at := _first_break(found, is_last=upto == stop):
            return found[:at]
        position, size = upto, min(2 * size, LOOK_BYTES_MAX)
    return found


def last_line_end(read: Read, start: int, end: int) -> int:
    """Behind the last line feed in ``[start, end)``; `start` if there is none. Looks from the end."""
    size = LOOK_BYTES
    while end > start:
        begin_at = max(start, end - size)
        at = read(begin_at, end).rfind(FEED)
        if at >= 0:
            return begin_at + at + 1
        end, size = begin_at, min(2 * size, LOOK_BYTES_MAX)
    return start


def next_line_end(read: Read, start: int, end: int) -> int | None:
    """Behind the first line feed in ``[start, end)``; None if there is none."""
    size = LOOK_BYTES
    while start < end:
        upto = min(start + size, end)
        at = read(start, upto).find(FEED)
        if at >= 0:
            return start + at + 1
        start, size = upto, min(2 * size, LOOK_BYTES_MAX)
    return None


def normalized(data: bytes) -> bytes:
    """Every line end as one line feed."""
    if RETURN in data:
        data = data.replace(b"\r\n", FEED).replace(RETURN, FEED)
    return data


def _first_break(data: bytes, *, is_last: bool) -> int:
    """How many bytes the first line has, its end included; 0 if it does not end, or may go on behind the data."""
    feed, back = data.find(FEED), data.find(RETURN)
    if back < 0 or 0 <= feed < back:
        return feed + 1
    if data[back + 1 : back + 2] == FEED:
        return back + 2
    return back + 1 if is_last or back + 1 < len(data) else 0


def _last_break(data: bytes) -> int:
    """How many bytes all whole lines have; a return at the very end may go on, so it does not count."""
    return max(data.rfind(FEED), data.rfind(RETURN, 0, len(data) - 1)) + 1
