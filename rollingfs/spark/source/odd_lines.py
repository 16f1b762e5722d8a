"""Lines of JSON that Arrow's reader must not read, or reads otherwise than Spark. Pure.

Nearly all blocks have none. RE2 finds that out at the speed of the memory, where a pattern begins with letters that are
rare. Python's own search is several times slower.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from rollingfs.spark.source.lines import FEED

_MISREAD = re.compile(rb"(?<=[:\[, \t])(?:-?(?:NaN|Inf)|-0(?=[,}\] \t\n]))")
"""Arrow reads these otherwise than Spark: NaN and Inf with a sign, the integer -0."""
_MISREAD_SIGNS = ("NaN", "Inf", r"-0[,}\] \t\n]")
_NULL = re.compile(rb"\n(?:\xef\xbb\xbf)?[ \t]*n")
"""Arrow 26 crashes the process at a line that is null."""
_NULL_SIGN = r"\n[n \t\xef]"
_SECOND_SIGN = r"\}[ \t]*\{"


def has(data: bytes, pattern: str) -> bool:
    """Whether there is a place that matches a pattern of RE2, of single bytes."""
    found: bool = pc.match_substring_regex(as_one(data), pattern)[0].as_py()
    return found


def as_one(data: bytes) -> pa.Array:
    """An array of one value, the data, without a copy."""
    offsets = pa.array([0, len(data)], pa.int32()).buffers()[1]
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])


def without_blank(data: bytes, blanks: str = r" \t") -> bytes:
    """Whole lines without those that have only blanks: letters of a class of patterns."""
    sign = rf"\n[{blanks}]*\n"
    if has(data, sign) or re.match(rf"[{blanks}]*\n".encode(), data):
        return re.sub(rf"\n(?:[{blanks}]*\n)+".encode(), FEED, FEED + data)[1:]
    return data


def nulls(data: bytes) -> set[int]:
    """The numbers of the lines that may be null."""
    found = {0} if _NULL.match(FEED + data[: data.find(FEED)]) else set()
    if has(data, _NULL_SIGN):
        line = at = 0
        for one in _NULL.finditer(data):
            line += data.count(FEED, at, one.start() + 1)
            at = one.start() + 1
            found.add(line)
    return found


def misread(part: memoryview) -> set[int]:
    """The numbers of the lines with numbers that Arrow reads, but not as Spark does."""
    data = _whole(part)
    found: set[int] = set()
    if any(has(data, sign) for sign in _MISREAD_SIGNS):
        line = at = 0
        for one in _MISREAD.finditer(data):
            line += data.count(FEED, at, one.end())
            at = one.end()
            found.add(line)
    return found


def undecodable(data: bytes) -> set[int]:
    """The numbers of the lines that are not UTF-8."""
    if data.isascii() or _is_utf8(data):
        return set()
    return {nth for nth, line in enumerate(data.split(FEED)) if not _is_utf8(line)}


def may_span(part: memoryview) -> bool:
    """Whether a value may go on over the end of a line, if Arrow found as many values as lines, none of them blank.

    Then another line has two values. A line break behind ``}`` and before ``{`` is never within a value.
    """
    data = _whole(part)
    if not has(data, _SECOND_SIGN):
        return False
    lines = (line.strip(b" \t") for line in data.split(FEED)[:-1])
    # Arrow stops at a zero byte between values
    return b"\0" in data or not all(line.startswith(b"{") and line.endswith(b"}") for line in lines)


def _whole(part: memoryview) -> bytes:
    """The bytes of a part, without a copy where it is the whole of them."""
    return part.obj if isinstance(part.obj, bytes) and len(part) == len(part.obj) else bytes(part)


def _is_utf8(data: bytes) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
