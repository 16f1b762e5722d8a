"""The checksum of everything: CRC-32C (Castagnoli, RFC 3720), of bytes, and of joined runs of bytes. Pure."""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import accumulate

from fastcrc.crc32 import iscsi as crc32c

__all__ = ["combined", "crc32c"]

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial (RFC 3720), bits reversed."""
_ONE = 1 << 31


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
