"""File formats that do not join, and the decision whether the files of a concat do. Pure.

Of two files of such a format in a row, a reader finds a single file, or fails.

`file_marks.txt` has the signatures, and `docs/joining.md` the behaviour of readers.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from rollingfs.errors import WholeFileError, worded
from rollingfs.format.header import Header
from rollingfs.format.side_files import HEAD_BYTES, TAIL_BYTES, Kinds
from rollingfs.runtime.values import value_class

SAMPLES = {"data": b"\0", "lines": b"\n", "open": b"\nx", "text": b"x"}
"""A sample of each kind, which joins as all bytes of the kind do: they have no mark of a format.

Lines end in a line feed; open text has one before its end; other text has none.
"""
is_text = (frozenset(range(32)) - frozenset(b"\t\n\f\r\x1b") | {127}).isdisjoint
"""Returns whether bytes are without control characters, in any encoding that has ASCII in it."""
AVRO, AVRO_MARKER_BYTES = "Avro", 16
"""Each block of an Avro file ends with the marker that its header ends with."""
ARROW_STREAM = "Arrow stream"
MARKS = Path(__file__).with_name("file_marks.txt").read_text("ascii")
COLUMNS = re.compile(" {2,}")
"""What separates the columns of a row of marks."""
ORC, ZIP_END, ZIP_END_BYTES = b"ORC", b"PK\x05\x06", 22
TAR, TAR_AT, TAR_BLOCK_BYTES = b"ustar", 257, 512
DEEP_BYTES = 32 * 1024 + 8
"""The mark of ISO 9660 comes after 32 KiB that are empty or boot a machine; the mark of HDF5 may."""
BOOT, BOOT_AT = b"\x55\xaa", 510
ZLIB = (b"x\x01", b"x\x9c", b"x\xda")
GZIP, BZIP2, ZSTD, LZ4 = b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
XZ = (b"\xfd7zXZ\0", b"\x5d\0\0", b"LZIP")
"""The second is an older form, without a container; the third is lzip, which liblzma reads since 5.4."""
BLOCKED_BYTES = {BZIP2: 1024 * 1024, ZSTD: 160 * 1024}
"""Bytes that a compressed file may take before it gives the first byte: a block of 900,000 bytes; or of 128 KiB."""


def format_of(head: bytes, tail: bytes, inner: bytes | None = None) -> str | None:
    """Return the format of a file of which no part is such a file, or None.

    Parameters
    ----------
    head, tail
        The first `HEAD_BYTES` or more and the last `TAIL_BYTES` of the file; all of it if the file is shorter.
    inner
        The `decompressed` head, if the caller has it.
    """
    inner = decompressed(head) if inner is None else inner
    if found := _ended(tail) or _begun(head):
        return found
    if tail[-4:-1] == ORC and (head.startswith(ORC) or tail[-5:-4] == bytes([len(ORC)])):
        return "ORC"
    if head[TAR_AT:].startswith(TAR) and tail == bytes(TAIL_BYTES):
        return "tar"
    if head.startswith(ZLIB) and _is_zlib(head):
        return "zlib"
    if inner[TAR_AT:].startswith(TAR):
        return "compressed tar"
    return _begun(inner) if inner else None


def unjoinable(head: bytes, tail: bytes) -> str | None:
    """Return the format of a file whose usual readers would not find what is joined to it; None for any other."""
    inner = decompressed(head)
    found = format_of(head, tail, inner) or _marked("record", head)
    return found or (_marked("record", inner) if inner else None)


def a_file(name: str) -> str:
    """Return a format's name with its article, for errors."""
    return f"{'an' if name[0] in 'AEO' else 'a'} {name} file"


def head_bytes(head: bytes) -> int:
    """Return the number of bytes that `unjoinable` needs of a file that begins with `head`."""
    if head[BOOT_AT:].startswith(BOOT) or head == bytes(HEAD_BYTES):
        return DEEP_BYTES
    return next((size for mark, size in BLOCKED_BYTES.items() if head.startswith(mark)), HEAD_BYTES)


def decompressed(head: bytes) -> bytes:
    """Return the first bytes, `HEAD_BYTES` at most, of compressed data.

    It is empty if the data is not compressed, or not understood.

    zstd needs Python 3.14 or the package zstandard; without either, it is not understood.
    """
    try:
        if head.startswith(GZIP):
            return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
        if head.startswith(BZIP2):
            return bz2.BZ2Decompressor().decompress(head, HEAD_BYTES)
        if head.startswith(XZ):
            return lzma.LZMADecompressor().decompress(head, HEAD_BYTES)
        if head.startswith(LZ4):
            return lz4_first_bytes(head, HEAD_BYTES)
    except (zlib.error, OSError, lzma.LZMAError, EOFError):
        return b""  # it only begins like one
    return _of_zstd(head) if head.startswith(ZSTD) else b""


def _of_zstd(head: bytes) -> bytes:
    for module in ("compression.zstd", "zstandard"):
        try:
            zstd: Any = import_module(module)
        except ImportError:
            continue
        decoder = zstd.ZstdDecompressor()
        try:
            if module == "zstandard":
                return bytes(decoder.stream_reader(BytesIO(head)).read(HEAD_BYTES))
            return bytes(decoder.decompress(head, HEAD_BYTES))
        except zstd.ZstdError:
            return b""  # it only begins like one
    return b""


def _begun(head: bytes) -> str | None:
    return _marked("text", head) or (None if is_text(head) else _marked("binary", head))


def _marked(table: str, data: bytes) -> str | None:
    """Return the format of the first mark in a table that bytes have."""
    for name, find, by in _marks(table):
        if find(data, by):
            return name
    return None


@cache
def _marks(table: str) -> Sequence[tuple[str, Callable[..., object], bytes | int]]:
    """Return the rows of a table: the name of a format, and what finds its mark in bytes."""
    found: list[tuple[str, Callable[..., object], bytes | int]] = []
    for line in MARKS.splitlines():
        if not line.startswith(table):
            continue
        _, place, name, mark = COLUMNS.split(line, maxsplit=3)
        if place == "=":
            found.append((name, bytes.startswith, mark.encode().decode("unicode_escape").encode("latin-1")))
        elif place == "any":
            found.append((name, re.compile(mark.encode()).search, 0))
        else:
            found.append((name, re.compile(mark.encode()).match, int(place)))
    return found


def _is_zlib(head: bytes) -> bool:
    """Return whether bytes go on as a zlib stream; a gzip file is another format, whose members join."""
    try:
        zlib.decompressobj().decompress(head, HEAD_BYTES)
    except zlib.error:
        return False
    return True


def _ended(tail: bytes) -> str | None:
    """Return the format of which bytes are the end, or None: each such end has a control character."""
    if is_text(tail):
        return None
    return _marked("end", tail) or ("zip" if _ends_a_zip(tail) else None)


def _ends_a_zip(tail: bytes) -> bool:
    at = tail.rfind(ZIP_END)
    if at < 0 or len(tail) - at < ZIP_END_BYTES:
        return False
    comment_bytes = int.from_bytes(tail[at + ZIP_END_BYTES - 2 : at + ZIP_END_BYTES], "little")
    return at + ZIP_END_BYTES + comment_bytes == len(tail)


# -- LZ4: Python has no decoder of its own, and the marks of formats are within few bytes -----------------------

FLAGS_AT, FIXED_BYTES = 4, 7
"""Place of the flags, and size of a frame's header without its optional fields."""
HAS_DICTIONARY, HAS_SIZE, HAS_BLOCK_CHECKSUMS = 1, 8, 16
IS_PLAIN = 1 << 31
"""The bit in a block's size that marks bytes which are not compressed."""
DISTANCE_BYTES, MATCH_BYTES_MIN = 2, 4
MORE = 15
"""A length of four bits that continues in the next bytes."""


def lz4_first_bytes(frame: bytes, limit: int) -> bytes:
    """Return the first bytes, `limit` at most, of what a frame holds; fewer if the frame is cut off or damaged."""
    flags = int.from_bytes(frame[FLAGS_AT : FLAGS_AT + 1], "little")
    at = FIXED_BYTES + 8 * bool(flags & HAS_SIZE) + 4 * bool(flags & HAS_DICTIONARY)
    found = bytearray()
    while len(found) < limit and (size := int.from_bytes(frame[at : at + 4], "little")):
        end = at + 4 + (size & ~IS_PLAIN)
        block = frame[at + 4 : end]
        if size & IS_PLAIN:
            found += block
        else:
            _expand(block, found, limit)
        at = end + 4 * bool(flags & HAS_BLOCK_CHECKSUMS)
    return bytes(found[:limit])


def _expand(block: bytes, found: bytearray, limit: int) -> None:
    """Append what a block holds, until the limit."""
    at = 0
    while at < len(block) and len(found) < limit:
        token = block[at]
        count, at = _length(block, at + 1, token >> 4)
        found += block[at : at + count]
        at += count
        distance = int.from_bytes(block[at : at + DISTANCE_BYTES], "little")
        at += DISTANCE_BYTES
        if at > len(block) or not 0 < distance <= len(found):
            return  # the last bytes of a block have no match
        count, at = _length(block, at, token & MORE)
        for _ in range(min(count + MATCH_BYTES_MIN, limit - len(found))):
            found.append(found[-distance])


def _length(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return a length, and the place after it."""
    count, more = bits, 255 if bits == MORE else 0
    while more == 255 and at < len(block):
        more = block[at]
        count, at = count + more, at + 1
    return count, at


# -- the join of several files ----------------------------------------------------------------------------


LINE_FEED = b"\n"
OPENS = (b"{", b"[")
"""First bytes of JSON."""


@value_class
class JoinPart:
    """The target or a source of a concat: its two ends."""

    path: str
    incarnation: str | None
    extent: tuple[int, int]
    """Start and end, in segment offsets."""
    head: bytes
    tail: bytes


def kinds_of(head: bytes, tail: bytes) -> Kinds:
    """Return the kinds of the first and the last bytes of a file; a head that is too short has no kind."""
    head_kind = tail_kind = ""
    # neither may a format begin so, perhaps with a fitting end, nor end so, whatever it begins with
    if len(head) >= head_bytes(head) and not head.startswith(ORC) and unjoinable(head, bytes(TAIL_BYTES)) is None:
        head_kind = _kind(head, is_lines=LINE_FEED in head or head[:1] in OPENS)
    if _ended(tail) is None and tail[-5:-1] != bytes([len(ORC)]) + ORC:
        tail_kind = _kind(tail, is_lines=tail.endswith(LINE_FEED))
    return head_kind, tail_kind


def _kind(data: bytes, *, is_lines: bool) -> str:
    if not is_text(data):
        return "data"
    return "lines" if is_lines else "open" if LINE_FEED in data else "text"


def noted(header: Header) -> tuple[bytes, bytes] | None:
    """Return bytes that join as the two ends of a segment do, if its header knows the kinds of these."""
    edges, tail = header.edges, header.tail
    if edges is None or edges.start != header.start or edges.head not in SAMPLES:
        return None
    head = SAMPLES[edges.head]
    if len(tail) >= TAIL_BYTES:
        return head, tail[-TAIL_BYTES:]
    if edges.end != header.tail_start or edges.tail not in SAMPLES:
        return None
    sample = SAMPLES[edges.tail]
    return (head, sample + tail) if not tail or is_text(sample + tail) else None


def unended(parts: Sequence[JoinPart], *, adds_line_feeds: bool) -> list[str]:
    """Return the paths of parts that need a line feed before the next part.

    Parameters
    ----------
    parts
        The target, if it is there, and the sources, in order.
    adds_line_feeds
        The caller adds these line feeds. Otherwise such a part is refused.

    Raises
    ------
    WholeFileError
        A reader of the result would not find what it finds in the parts.
    """
    parts = [part for part in parts if part.extent[0] < part.extent[1]]
    if len(parts) < 2:  # the result is the one part
        return []
    for part in parts:
        name = unjoinable(part.head, part.tail)
        if name is not None and not (part is parts[0] and name == AVRO and _are_blocks(parts)):
            raise _whole(part.path, name)
    open_ended = [part.path for part in parts[:-1] if not part.tail.endswith(LINE_FEED) and is_text(part.tail)]
    if open_ended and not adds_line_feeds:
        if not any(map(_is_of_lines, parts)):
            return []  # pieces of one text, maybe
        raise WholeFileError(
            f"{open_ended[0]} is text without a line feed at its end, so its last line and the first of the next file "
            f"would become one. {_nothing()}, and {worded(newline=True)} adds the line feed"
        )
    return open_ended


def _are_blocks(parts: Sequence[JoinPart]) -> bool:
    """Return whether all parts after an Avro file are blocks of it: they end with its marker, and begin no file."""
    marker = parts[0].tail[-AVRO_MARKER_BYTES:]
    return all(part.tail.endswith(marker) and unjoinable(part.head, part.tail) is None for part in parts[1:])


def _is_of_lines(part: JoinPart) -> bool:
    """Return whether a part is text in lines, or a JSON record."""
    is_in_lines = LINE_FEED in part.head or LINE_FEED in part.tail or part.head[:1] in OPENS
    return is_in_lines and is_text(part.head) and is_text(part.tail)


def _nothing() -> str:
    return f"Nothing was joined; {worded(as_bytes=True)} joins the bytes all the same"


def _whole(path: str, name: str) -> WholeFileError:
    more = {
        "Parquet": f", and {worded(as_format='parquet')} makes one file of all",
        "Arrow stream": f", and {worded(as_format='arrow-stream')} makes one stream of all",
    }
    return WholeFileError(
        f"{path} is {a_file(name)}, and such files do not join: a reader would find only one of them. "
        f"{_nothing()}{more.get(name, '')}"
    )
