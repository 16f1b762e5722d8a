"""The event loop that connections belong to: after its end, they cannot send."""

from __future__ import annotations

import asyncio
import threading
import weakref

from rollingfs.backend.objects.errors import LastingError


class HomeLoop:
    """The event loop on which a filesystem's connections were made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def is_left(self) -> bool:
        """Return whether the connections belong to a loop that has ended; the running loop is theirs from now on.

        Raises
        ------
        LastingError
            Their loop still runs, in another thread.
        """
        here = asyncio.get_running_loop()
        with self._lock:
            before = self._loop
            loop = None if before is None else before()
            if loop is here:
                return False
            if loop is not None and loop.is_running():
                raise LastingError(
                    "this asynchronous filesystem is in use on another event loop, which runs, so nothing was sent: "
                    "make a filesystem for each loop (skip_instance_cache=True)"
                )
            self._loop = weakref.ref(here)
            return before is not None
