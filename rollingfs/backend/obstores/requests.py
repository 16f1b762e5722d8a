"""What obstore takes: keys that it can name, bytes in pieces, a limited number of requests at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from rollingfs.backend.contract import Buffer

_NO_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
"""Empty parts, "." and ".." in a key, and control characters: obstore refuses them, or drops the empty parts."""


def can_name(key: str) -> bool:
    """Whether obstore sends a request for just this key."""
    return _NO_KEY.search(key) is None


def body(data: Sequence[Buffer]) -> Buffer | list[Buffer]:
    """Bytes as obstore takes them, not copied together."""
    if len(data) < 2:
        return b"".join(data)
    return [piece if isinstance(piece, bytes) else memoryview(piece).cast("B") for piece in data]


class Places:
    """A limit for the number of requests at once, on any event loop."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._loop: asyncio.AbstractEventLoop | None = None
        self._semaphore = asyncio.Semaphore(count)

    def taken(self) -> asyncio.Semaphore:
        """The semaphore that a request must enter."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._semaphore = loop, asyncio.Semaphore(self._count)
        return self._semaphore
