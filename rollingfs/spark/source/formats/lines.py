"""Lines of byte ranges: a line belongs to the range that holds its first byte. Pure: a callback gives the bytes.

As in Spark's own readers, a line ends with a line feed, a carriage return, or both. A compressed segment of lines is
recognised by its name, and read as a whole: ranges and offsets are positions in the compressed bytes, so a single task
reads it from its start to its end, and a stream cannot read a part of it.
"""

from __future__ import annotations

import io
import lzma
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rollingfs.fs.read_file import ReadFile

BLOCK_BYTES = 8 * 1024 * 1024
LOCAL_BLOCK_BYTES = 3 * 1024 * 1024
"""Size of a block that is read from a disk: the processor's cache holds it, and the next block reuses its memory."""
LOOK_BYTES = 64 * 1024
LOOK_BYTES_MAX = 8 * 1024 * 1024

Read = Callable[[int, int], bytes]
"""Gives the bytes ``[start, end)``, all of them."""

FEED, RETURN = b"\n", b"\r"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Byte order mark, which Spark leaves out at the begin of a segment."""
_BREAK = re.compile(rb"\r\n|\r|\n")


class ReadWindow:
    """Reads up to an offset, and gives bytes of the last read again.

    Parameters
    ----------
    stop
        End of the bytes; a read beyond it is cut off.
    size
        Minimum number of bytes of a read.
    """

    def __init__(self, read: Callable[[int, int], Any], stop: int, size: int = 0) -> None:
        self._read, self._stop, self._size = read, stop, size
        self._start, self._data = 0, b""

    def __call__(self, start: int, end: int) -> Any:
        end = min(end, self._stop)
        if not self._start <= start <= end <= self._start + len(self._data):
            self._start = start
            self._data = self._read(start, min(max(end, start + self._size), self._stop))
        return self._data[start - self._start : end - self._start]


class Block(NamedTuple):
    """Bytes of whole lines."""

    position: int | None
    """The offset of the first byte; None if the segment is compressed."""
    data: bytes
    size: int
    """Of the lines in the data."""

    def lines(self) -> memoryview:
        """Return the lines, each ended by a line feed."""
        found = normalized(self.data, self.size)
        return found[len(BYTE_ORDER_MARK) :] if self.position == 0 and self.data.startswith(BYTE_ORDER_MARK) else found

    def starts(self) -> list[int]:
        """Return the offset of each line."""
        assert self.position is not None
        found = [self.position, *(self.position + at.end() for at in _BREAK.finditer(self.data, 0, self.size))]
        return found if found[-1] < self.position + self.size else found[:-1]


def raw_blocks(read: Read, first: int, start: int, end: int, stop: int, block_bytes: int) -> Iterator[Block]:
    """Yield the lines that begin in ``[start, end)``, many to a block.

    Only the last line before `stop` may lack its line feed. A line that was read in part is read again with the next
    block, because joining the parts would copy the block.

    Parameters
    ----------
    first
        Begin of the first line of the extent.
    stop
        End of the bytes of the extent; the last line of the range may reach this far.
    """
    position, size = begin(read, first, start, stop), block_bytes
    while position + size < end:
        data = read(position, position + size)
        at = _last_break(data)
        if at:
            yield Block(position, data, at)
        position += at
        size = block_bytes if at else 2 * size
    if position < end:
        window = ReadWindow(read, stop)
        data = window(position, min(end + LOOK_BYTES, stop))
        upto = begin(window, first, end, stop)
        whole = data if upto <= position + len(data) else read(position, upto)
        yield Block(position, whole, upto - position)


def begin(read: Read, first: int, start: int, stop: int) -> int:
    """Return the offset of the first line that begins at `start` or after it; `stop` if it is missing."""
    if start <= first:
        return first
    before = read(start - 1, min(start + 1, stop))
    if before[:1] == FEED or (before[:1] == RETURN and before[1:] != FEED):
        return start
    found = _search(read, start, stop, _first_break)
    return stop if found is None else found


def _search(read: Read, start: int, stop: int, end_in: Callable[[bytes, bool], int]) -> int | None:
    """Return where the first line ends that `end_in` finds in some data, perhaps the last; else None."""
    size = LOOK_BYTES
    while start < stop:
        upto = min(start + size, stop)
        data = read(start, upto)
        if at := end_in(data, upto == stop):
            return start + at
        # the line feed of a return at the end of the data may come next, so the return is read again
        start, size = upto - (data[-1:] == RETURN and upto < stop), min(2 * size, LOOK_BYTES_MAX)
    return None


def last_line_end(read: Read, start: int, end: int, delimiter: bytes = FEED) -> int:
    """Return the offset after the last delimiter in ``[start, end)``, or `start`.

    It reads from the end.
    """
    upto, size = end, LOOK_BYTES
    while upto > start:
        first = max(start, upto - size)
        at = read(first, min(upto + len(delimiter) - 1, end)).rfind(delimiter)
        if at >= 0:
            return first + at + len(delimiter)
        upto, size = first, min(2 * size, LOOK_BYTES_MAX)
    return start


def next_line_end(read: Read, start: int, end: int) -> int | None:
    """Return the offset after the first line feed in ``[start, end)``; else None."""
    return _search(read, start, end, lambda data, _: data.find(FEED) + 1)


def normalized(data: bytes, end: int) -> memoryview:
    """Return the first `end` bytes of some data, which are whole lines, with a line feed at the end of each."""
    if data.find(RETURN, 0, end) < 0:
        return memoryview(data)[:end]
    return memoryview(data[:end].replace(b"\r\n", FEED).replace(RETURN, FEED))


def _first_break(data: bytes, is_last: bool) -> int:
    """Return the size of the first line with its end; 0 if it has no end, or if its end may go on after the data."""
    feed, back = data.find(FEED), data.find(RETURN)
    if back < 0 or 0 <= feed < back:
        return feed + 1
    if data[back + 1 : back + 2] == FEED:
        return back + 2
    return back + 1 if is_last or back + 1 < len(data) else 0


def _last_break(data: bytes) -> int:
    """Return the size of all whole lines. A return at the end does not count: its line feed may come next."""
    feed = data.rfind(FEED)
    return max(feed, data.rfind(RETURN, feed + 1, len(data) - 1)) + 1


AUTO, NONE = "auto", "none"
READABLE = ("gzip", "bz2", "xz", "zstd", "lz4")
CHOICES = (AUTO, NONE, *READABLE)
COMPRESSED_BYTES = 1024 * 1024
"""Compressed bytes that are read at a time."""
_CODECS = {"gz": "gzip", "zst": "zstd", "z": "compress", "br": "brotli"}
"""Endings of names that are not the codec's own name."""
_ENDINGS = frozenset({*READABLE, *_CODECS, "snappy", "deflate", "lzo", "zip", "7z"})


def codec_by_name(path: str) -> str | None:
    """Return the compression by the ending of a name, or None."""
    _, dot, ending = path.rpartition("/")[2].lower().rpartition(".")
    return _CODECS.get(ending, ending) if dot and ending in _ENDINGS else None


def codec_of(path: str, choice: str) -> str | None:
    """Return the compression with which a segment is read; None: as it is.

    Raises
    ------
    ValueError
        Its name has a compression that cannot be read.
    """
    if choice != AUTO:
        return None if choice == NONE else choice
    codec = codec_by_name(path)
    if codec is not None and codec not in READABLE:
        raise ValueError(
            f"{path}: its name says that it is compressed ({codec}), which cannot be read; {', '.join(READABLE)} can. "
            "If it is plain text, give option compression=none"
        )
    return codec


def refused_part(path: str, why: str) -> ValueError:
    """Return the error for what cannot be done to a part of a compressed segment."""
    return ValueError(
        f"{path}: by its name or by option compression it is compressed, so only the whole can be read, {why}; nothing "
        "of it was read. Decompress it, or give option compression=none if it is plain text"
    )


def check_uncompressed(path: str, choice: str = AUTO) -> None:
    """Refuse to write lines under a name or option of a compression.

    Raises
    ------
    ValueError
        The name or the option has a compression.
    """
    codec = codec_by_name(path) if choice == AUTO else choice
    if codec not in (None, NONE):
        named, given = f"its name says that it is compressed ({codec})", f"option compression is {codec!r}"
        what = named if choice == AUTO else given
        raise ValueError(
            f"{path}: {what}, but rows are written as plain lines; nothing was written. Choose another name, or leave "
            "the option out"
        )


def decompressed_blocks(file: ReadFile, codec: str, block_bytes: int) -> Iterator[Block]:
    """Yield the lines of a compressed segment, many to a block.

    Raises
    ------
    ValueError
        The bytes are not of this compression, damaged, or cut off.
    """
    held, is_first = b"", True
    try:
        stream = _decompressed(file, codec) if file.size else file
        while data := stream.read(block_bytes):
            held += data
            if is_first and len(held) >= len(BYTE_ORDER_MARK):
                held, is_first = held.removeprefix(BYTE_ORDER_MARK), False
            if at := _last_break(held):
                yield Block(None, held, at)
                held = held[at:]
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise ValueError(
            f"{file.path}: its bytes are not a whole {codec}: {error}. compression=none reads them as they are"
        ) from error
    if held:
        yield Block(None, held, len(held))


def _decompressed(source: ReadFile, codec: str) -> Any:
    buffered = io.BufferedReader(source, COMPRESSED_BYTES)
    if codec == "xz":
        return lzma.open(buffered)
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(buffered, "r"), codec)
