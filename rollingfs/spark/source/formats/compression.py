"""Compressed segments of lines: told by their name and by their first bytes, and read as a whole.

Ranges and offsets are positions in the compressed bytes, so one task reads a compressed segment from its start to its
end, and a stream cannot read a part of it.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator
from typing import Any

from rollingfs.spark.source.formats.lines import Lines, Read, normalized
from rollingfs.spark.source.partitions import Extent

AUTO, NONE = "auto", "none"
GZIP, BZ2, XZ, ZSTD, LZ4 = READABLE = ("gzip", "bz2", "xz", "zstd", "lz4")
CHOICES = (AUTO, NONE, *READABLE)
COMPRESSED_BYTES = 1024 * 1024
"""Compressed bytes that are read at a time."""

_ENDINGS = {
    ".gz": GZIP,
    ".gzip": GZIP,
    ".bz2": BZ2,
    ".xz": XZ,
    ".zst": ZSTD,
    ".zstd": ZSTD,
    ".lz4": LZ4,
    ".snappy": "snappy",
    ".deflate": "deflate",
    ".lzo": "lzo",
    ".br": "brotli",
    ".z": "compress",
    ".zip": "zip",
    ".7z": "7z",
}
_MAGIC = {
    b"\x1f\x8b\x08": GZIP,
    b"BZh": BZ2,
    b"\xfd7zXZ\x00": XZ,
    b"\x28\xb5\x2f\xfd": ZSTD,
    b"\x04\x22\x4d\x18": LZ4,
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"\x1f\x9d": "compress",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf\x27\x1c": "7z",
}
_BZ2_BLOCK = (b"1AY&SY", b"\x17rE8P\x90")
"""What comes behind the magic bytes of bz2, which are letters, and its digit."""
_MAGIC_BYTES_MAX = 10


class CompressedError(ValueError):
    """A segment is compressed, or should be, and cannot be read as its name or the options say."""


def by_name(path: str) -> str | None:
    """The compression that the ending of a name says, or None."""
    name = path.rpartition("/")[2].lower()
    return _ENDINGS.get("." + name.rpartition(".")[2]) if "." in name else None


def by_magic(first: bytes) -> str | None:
    """The compression that the first bytes say, or None."""
    for magic, codec in _MAGIC.items():
        if first.startswith(magic) and (codec != BZ2 or first[4:10] in _BZ2_BLOCK):
            return codec
    return None


def codec_of(path: str, choice: str) -> str | None:
    """The compression with which a segment is read; None: as it is.

    Raises
    ------
    CompressedError
        Its name says one that cannot be read.
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


def check_whole(extent: Extent, start: int, end: int) -> None:
    """Refuse a part of a compressed segment that has the bytes ``[start, end)``.

    Raises
    ------
    CompressedError
        The extent is a part of it.
    """
    if (extent.start, extent.end) != (start, end):
        raise CompressedError(
            f"{extent.path}: by its name or by option compression it is compressed, so only the whole can be read, and "
            f"not bytes {extent.start} to {extent.end} of {start} to {end}; nothing was read. Decompress it, or give "
            "option compression=none if it is plain text"
        )


def check_position(path: str, offset: int, start: int, end: int) -> None:
    """Refuse a position within a compressed segment that has the bytes ``[start, end)``.

    Raises
    ------
    CompressedError
        It lies within it.
    """
    if start < offset < end:
        raise CompressedError(
            f"{path}: by its name or by option compression it is compressed, so only the whole can be read, but "
            f"startingOffsets or endingOffsets mean offset {offset} of {start} to {end}; nothing was read. Choose "
            "positions before or behind it, or give option compression=none if it is plain text"
        )


def check_sealed(path: str, *, is_sealed: bool) -> None:
    """Refuse a compressed segment that a stream would follow while it may grow.

    Raises
    ------
    CompressedError
        It is not sealed.
    """
    if not is_sealed:
        raise CompressedError(
            f"{path}: by its name or by option compression it is compressed, so only the whole can be read, and a "
            "stream cannot follow it while it may grow; nothing of it was read. Seal it, decompress it, or give option "
            "compression=none if it is plain text"
        )


def check_plain(path: str, first: bytes) -> None:
    """Refuse bytes that are compressed, although the name does not say so.

    Raises
    ------
    CompressedError
        They are.
    """
    codec = by_magic(first[:_MAGIC_BYTES_MAX])
    if codec is None:
        return
    if codec not in READABLE:
        raise CompressedError(f"{path}: its bytes are compressed ({codec}), which cannot be read")
    raise CompressedError(
        f"{path}: its bytes are compressed ({codec}), but its name does not say so: give option compression={codec}, "
        "or a name with the ending of the compression; compression=none reads the bytes as they are"
    )


def check_choice(choice: str) -> None:
    """Refuse to write lines with an option that says they are compressed.

    Raises
    ------
    CompressedError
        It does.
    """
    if choice in READABLE:
        raise CompressedError(
            f"option compression is {choice!r}, but rows are written as plain lines; nothing was written. Leave it out"
        )


def check_target(path: str) -> None:
    """Refuse to write lines to a name that says they are compressed.

    Raises
    ------
    CompressedError
        It does.
    """
    codec = by_name(path)
    if codec is not None:
        raise CompressedError(
            f"{path}: its name says that it is compressed ({codec}), but rows are written as plain lines, which "
            "readers would not understand under this name; nothing was written. Choose another name"
        )


def blocks(read: Read, extent: Extent, codec: str, block_bytes: int) -> Iterator[Lines]:
    """The lines of a compressed segment, many to a block, each ended by one line feed.

    Raises
    ------
    CompressedError
        The bytes are not of this compression, damaged, or cut off.
    """
    if not extent.size:
        return
    first = read(extent.start, min(extent.start + _MAGIC_BYTES_MAX, extent.end))
    if by_magic(first) != codec:
        raise CompressedError(
            f"{extent.path}: by its name or by option compression its bytes are {codec}, but they are "
            f"{by_magic(first) or 'not'}{'' if by_magic(first) else ' compressed so'}; nothing was read. "
            "compression=none reads them as they are"
        )
    held = b""
    stream = _decompressed(_Bytes(read, extent), codec)
    try:
        while data := stream.read(block_bytes):
            held += data
            at = max(held.rfind(b"\n"), held.rfind(b"\r", 0, len(held) - 1)) + 1
            if at:
                yield normalized(held, at)
                held = held[at:]
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise CompressedError(f"{extent.path}: its bytes are not a whole {codec}: {error}") from error
    if held:
        yield normalized(held, len(held))


class _Bytes(io.RawIOBase):
    """The bytes of an extent as a file."""

    def __init__(self, read: Read, extent: Extent) -> None:
        super().__init__()
        self._read = read
        self._at = extent.start
        self._end = extent.end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        upto = min(self._at + len(buffer), self._end)
        data = self._read(self._at, upto)
        buffer[: len(data)] = data
        self._at = upto
        return len(data)


def _decompressed(source: _Bytes, codec: str) -> Any:
    buffered = io.BufferedReader(source, COMPRESSED_BYTES)
    if codec == XZ:
        return lzma.open(buffered)
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(buffered, "r"), codec)
