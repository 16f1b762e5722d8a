"""The most bytes that a file of the format has, by its name: no client reads more of what somebody put there. Pure."""

from __future__ import annotations

from rollingfs.format import names
from rollingfs.format.header import HEADER_BYTES_MAX
from rollingfs.format.index_codec import PAGE_BYTES_MAX
from rollingfs.format.pin_codec import PIN_BYTES_MAX


def read_bytes_max(path: str) -> int | None:
    """Return the bytes to read of a file: a byte more than the format allows.

    The parser refuses such a file. None: all bytes.

    Parameters
    ----------
    path
        The file's path, or its key.
    """
    name = path.rpartition("/")[2]
    if name.endswith(names.HEADER_SUFFIX):
        return HEADER_BYTES_MAX + 1
    if name.startswith(names.INDEX_PREFIX):
        return PAGE_BYTES_MAX + 1
    if name.startswith(names.PIN_PREFIX):
        return PIN_BYTES_MAX + 1
    return None
