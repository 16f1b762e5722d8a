"""A file to write to, whose content is taken away as it comes: Arrow's writers push, uploads pull."""

from __future__ import annotations


class Taken:
    """Keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> int:
        """Keep some bytes."""
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """How much was written, taken or not."""
        return self._size

    def writable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def flush(self) -> None:
        """There is nothing to do."""

    def close(self) -> None:
        """There is nothing to do."""

    def take(self) -> bytes:
        """What was written since."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
