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
_BLANK = re.compile(rb"(?:^[ \t]*\n)+", re.MULTILINE)
_BLANK_SIGN = r"\n[\n \t]"


def without_blank(data: bytes) -> bytes:
    """Whole lines without those that have only blanks."""
    if data.startswith((FEED, b" ", b"\t")) or _has(data, _BLANK_SIGN):
        return _BLANK.sub(b"", data)
    return data


def nulls(data: bytes) -> set[int]:
    """The numbers of the lines that may be null."""
    found = {0} if _NULL.match(FEED + data[: data.find(FEED)]) else set()
    if _has(data, _NULL_SIGN):
        found |= {data.count(FEED, 0, one.start() + 1) for one in _NULL.finditer(data)}
    return found


def misread(part: memoryview) -> set[int]:
    """The numbers of the lines that Arrow reads, but not as Spark does."""
    # the whole of some bytes needs no copy
    data = part.obj if isinstance(part.obj, bytes) and len(part) == len(part.obj) else bytes(part)
    found: set[int] = set()
    if not data.isascii() and not _is_utf8(data):
        found = {nth for nth, line in enumerate(data.split(FEED)) if not _is_utf8(line)}
    if any(_has(data, sign) for sign in _MISREAD_SIGNS):
        line = at = 0
        for one in _MISREAD.finditer(data):
            line += data.count(FEED, at, one.end())
            at = one.end()
            found.add(line)
    return found


def _has(data: bytes, pattern: str) -> bool:
    """Whether there is a place that matches a pattern of RE2, of single bytes."""
    offsets = pa.array([0, len(data)], pa.int32()).buffers()[1]
    whole = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])
    found: bool = pc.match_substring_regex(whole, pattern)[0].as_py()
    return found


def _is_utf8(data: bytes) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
