"""Records that name their writer and number, so that a log says whose appends it holds, and whether each is whole."""

import hashlib
from collections.abc import Iterator

BODY_SIZES = (0, 10, 100, 3_000, 40_000)
"""Some stay inline, some become a chunk, some roll."""


def record(writer: str, number: int) -> bytes:
    """The record that a writer appends: a head, and a body of a size that looks random."""
    size = BODY_SIZES[hashlib.sha256(f"{writer} {number}".encode()).digest()[0] % len(BODY_SIZES)]
    head = f"{writer} {number} {size}\n".encode()
    return head + (hashlib.sha256(head).digest() * (size // 32 + 1))[:size]


def records(data: bytes) -> Iterator[tuple[int, str, int]]:
    """Offset, writer and number of the records in some bytes; fails if one is torn."""
    offset = 0
    while offset < len(data):
        head = bytes(data[offset : data.find(b"\n", offset)]).decode(errors="replace").split()
        assert len(head) == 3, f"no record begins at {offset}: {data[offset : offset + 40]!r}"
        assert head[1].isdigit(), f"no record begins at {offset}: {data[offset : offset + 40]!r}"
        expected = record(head[0], int(head[1]))
        assert data[offset : offset + len(expected)] == expected, f"a torn record at {offset}: {head}"
        yield offset, head[0], int(head[1])
        offset += len(expected)
