"""Compressed segments of lines: recognised by their name, and read as a whole.

Ranges and offsets are positions in the compressed bytes, so a single task reads a compressed segment from its start to
its end, and a stream cannot read a part of it.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator
from typing import Any

from rollingfs.fs.read_file import ReadFile
from rollingfs.spark.source.formats.lines import Lines, normalized

AUTO, NONE = "auto", "none"
READABLE = ("gzip", "bz2", "xz", "zstd", "lz4")
CHOICES = (AUTO, NONE, *READABLE)
COMPRESSED_BYTES = 1024 * 1024
"""Compressed bytes that are read at a time."""
_CODECS = {"gz": "gzip", "zst": "zstd", "z": "compress", "br": "brotli"}
"""Endings of names that are not the codec's own name."""
_ENDINGS = frozenset({*READABLE, *_CODECS, "snappy", "deflate", "lzo", "zip", "7z"})


class CompressedError(ValueError):
    """A segment is compressed, or should be, and its name or the options do not fit."""


def by_name(path: str) -> str | None:
    """Return the compression by the ending of a name, or None."""
    _, dot, ending = path.rpartition("/")[2].lower().rpartition(".")
    return _CODECS.get(ending, ending) if dot and ending in _ENDINGS else None


def codec_of(path: str, choice: str) -> str | None:
    """Return the compression with which a segment is read; None: as it is.

    Raises
    ------
    CompressedError
        Its name has a compression that cannot be read.
    """
    if choice != AUTO:
        return None if choice == NONE else choice
    codec = by_name(path)
    if codec is not None and codec not in READABLE:
        raise CompressedError(
            f"{path}: its name says that it is compressed ({codec}), which cannot be read; {', '.join(READABLE)} can. "
            "If it is plain text, give option compression=none"
        )
    return codec


def refused(path: str, why: str) -> CompressedError:
    """Return the error for what cannot be done to a part of a compressed segment."""
    return CompressedError(
        f"{path}: by its name or by option compression it is compressed, so only the whole can be read, {why}; nothing "
        "of it was read. Decompress it, or give option compression=none if it is plain text"
    )


def check_write(path: str, choice: str = AUTO) -> None:
    """Refuse to write lines under a name or option of a compression.

    Raises
    ------
    CompressedError
        The name or the option has a compression.
    """
    codec = by_name(path) if choice == AUTO else choice
    if codec not in (None, NONE):
        named, given = f"its name says that it is compressed ({codec})", f"option compression is {codec!r}"
        what = named if choice == AUTO else given
        raise CompressedError(
            f"{path}: {what}, but rows are written as plain lines; nothing was written. Choose another name, or leave "
            "the option out"
        )


def blocks(file: ReadFile, codec: str, block_bytes: int) -> Iterator[Lines]:
    """Yield the lines of a compressed segment, many to a block, each ended by a line feed.

    Raises
    ------
    CompressedError
        The bytes are not of this compression, damaged, or cut off.
    """
    held = b""
    try:
        stream = _decompressed(file, codec) if file.size else file
        while data := stream.read(block_bytes):
            held += data
            at = max(held.rfind(b"\n"), held.rfind(b"\r", 0, len(held) - 1)) + 1
            if at:
                yield normalized(held, at)
                held = held[at:]
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise CompressedError(
            f"{file.path}: its bytes are not a whole {codec}: {error}. compression=none reads them as they are"
        ) from error
    if held:
        yield normalized(held, len(held))


def _decompressed(source: ReadFile, codec: str) -> Any:
    buffered = io.BufferedReader(source, COMPRESSED_BYTES)
    if codec == "xz":
        return lzma.open(buffered)
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(buffered, "r"), codec)
