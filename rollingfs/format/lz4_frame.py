"""The first bytes of what an LZ4 frame holds. Pure.

Python has no LZ4 of its own, and the marks of formats are within few bytes.
"""

from __future__ import annotations

FLAGS_AT, FIXED_BYTES = 4, 7
"""Place of the flags, and size of a frame's header without its optional fields."""
HAS_DICTIONARY, HAS_SIZE, HAS_BLOCK_CHECKSUMS = 1, 8, 16
IS_PLAIN = 1 << 31
"""The bit in a block's size that marks bytes which are not compressed."""
DISTANCE_BYTES, MATCH_BYTES_MIN = 2, 4
MORE = 15
"""A length of four bits that continues in the next bytes."""


def first_bytes(frame: bytes, limit: int) -> bytes:
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
