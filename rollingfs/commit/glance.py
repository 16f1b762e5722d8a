"""What the text of a header tells a writer that waits for its ask to be carried. Pure.

A waiting writer looks again and again, and nearly each look finds a commit that has not carried its ask. To see that,
it needs a few lines: neither the tail, which may be 1 MiB, nor the other lines. What it does not understand it loads
and judges as ever.
"""

from __future__ import annotations

import re

from rollingfs.format import tokens
from rollingfs.format.asks import Ask
from rollingfs.format.codec import FORMAT
from rollingfs.format.crc import crc32c

GLANCE_BYTES = 16 * 1024
"""A glance reads so much of a header; a longer text is loaded as a whole."""

_N = rb"([0-9]{1,19})"
_BEGIN = re.compile(FORMAT.encode() + rb"\nsegment ([0-9a-f-]{36})\nversion " + _N + rb"\nstate open\nepoch [0-9]+\n")
_FLOOR = re.compile(rb"asks " + _N + rb"\n")
_OPERATION = re.compile(_N + rb" " + _N + rb"(?: [0-9]{1,19})?\n")
_END = re.compile(rb"end crc32c=([0-9a-f]{8})\n\n")


def version_to_wait_at(data: bytes, ask: Ask, versions_max: int) -> int | None:
    """The version of a header at which the writer of an ask waits on; None if it must load and judge the header.

    It waits on if the header is of the ask's segment, open, without owner and turn, at least as new as the ask's base,
    admits the ask, and has an own line with a lower number: then the judge says that the operation has not taken place
    so far, and nothing else has happened.

    Parameters
    ----------
    data
        The beginning of the header's file.
    versions_max
        It does not wait at a header that is so many versions newer than its own line.
    """
    end = data.find(b"\nend crc32c=") + 1
    sealed = _END.match(data, end) if end else None
    begin = _BEGIN.match(data, 0, max(end, 0))
    if sealed is None or begin is None or begin[1] != ask.segment.encode():
        return None
    version = int(begin[2])
    floor = _FLOOR.match(data, data.find(b"\nasks ", 0, end) + 1, end)
    if floor is None or int(floor[1]) > ask.base or version < ask.base:
        return None
    mine = _own_line(data, end, ask)
    if mine is None or int(mine[1]) >= ask.number or version - int(mine[2]) >= versions_max:
        return None
    if data.find(b"\nturn ", 0, end) >= 0 or int(sealed[1], 16) != crc32c(data[:end]):
        return None
    return version


def _own_line(data: bytes, end: int, ask: Ask) -> re.Match[bytes] | None:
    """The number and version in the line of the ask's writer; None if it has none."""
    line = b"\ncommit " + tokens.quote(ask.writer).encode() + b" "
    start = data.find(line, 0, end)
    return _OPERATION.match(data, start + len(line), end) if start >= 0 else None
