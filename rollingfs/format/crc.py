"""The checksum of everything: CRC-32C (Castagnoli, RFC 3720), of bytes, and of joined runs of bytes. Pure."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import accumulate

with warnings.catch_warnings():  # ours names a way out
    warnings.simplefilter("ignore", RuntimeWarning)
    import google_crc32c

STEP_BYTES = 256 * 1024
"""The library takes only `bytes`: other buffers are copied in steps."""
_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial (RFC 3720), bits reversed."""
_ONE = 1 << 31


def _extender() -> Callable[[int, bytes], int]:
    """Return the function that continues a checksum: compiled, from one of two libraries, or else in Python."""
    if google_crc32c.implementation == "c":
        return google_crc32c.extend  # type: ignore[no-any-return]
    try:
        from crc32c import crc32c as compiled
    except ImportError:
        warnings.warn(
            "rollingfs computes checksums in Python, some 900 times slower than compiled: pip install crc32c",
            RuntimeWarning,
            stacklevel=2,
        )
        return google_crc32c.extend  # type: ignore[no-any-return]
    return lambda before, data: int(compiled(data, before))


_extend = _extender()


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the checksum of some bytes.

    Parameters
    ----------
    before
        The checksum of the bytes that come before them.
    """
    if isinstance(data, bytes):  # first: a header that grows in place asks this twice for each record
        return _extend(before, data)
    if isinstance(data, memoryview) and isinstance(data.obj, bytes) and data.nbytes == len(data.obj):
        return _extend(before, data.obj)
    view = memoryview(data)
    for start in range(0, len(view), STEP_BYTES):
        before = _extend(before, bytes(view[start : start + STEP_BYTES]))
    return before


def _multiply(left: int, right: int) -> int:
    """Return the product of two polynomials over GF(2), modulo `_POLYNOMIAL`; the highest bit is the constant term."""
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product


@cache
def _of_zeros() -> tuple[int, ...]:
    """Return the polynomials x to the power of 8, 16, 32, …, which stand for 1, 2, 4, … bytes of zeros.

    There is a polynomial for each bit of a size; sizes are at most 2^63 - 1.
    """
    squares = accumulate(range(62), lambda square, _: _multiply(square, square), initial=1 << 23)
    return tuple(squares)


@lru_cache(maxsize=256)  # pieces have few sizes; a dozen products cost more than a checksum of 256 KiB
def _shift(size: int) -> int:
    """Return the polynomial that stands for `size` bytes of zeros: x to the power of 8 times `size`."""
    power = _ONE  # x to the 0
    for bit, factor in enumerate(_of_zeros()[: size.bit_length()]):
        if size >> bit & 1:
            power = _multiply(power, factor)
    return power


def combined(first: int, second: int, second_size: int) -> int:
    """Return the CRC-32C of two runs of bytes in a row.

    Parameters
    ----------
    first, second
        The checksum of each run.
    second_size
        Bytes of the second run.
    """
    return _multiply(_shift(second_size), first) ^ second
