"""An account that is reached through a private clone of a filesystem of fsspec, as s3fs and gcsfs have."""

from __future__ import annotations

import abc
import asyncio
import threading
import weakref
from typing import Any, TypeVar

from fsspec import AbstractFileSystem

from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.clouds import options_of
from rollingfs.backend.objects.obstore_process import keep_from_children
from rollingfs.backend.objects.request_errors import LastingError, errors_of

F = TypeVar("F", bound=AbstractFileSystem)


def clone_of(fs: F, forked: bool = False, **changes: Any) -> F:
    """Return a private copy of a filesystem, with its own connections; in a child, with the child's event loop."""
    options = options_of(fs) | changes | {"skip_instance_cache": True}
    if forked:
        options.pop("loop", None)  # the loop runs in the parent only
    clone: F = type(fs)(**options)
    keep_from_children(clone)
    return clone


class ClonedBackend(ObjectBackend):
    """Requests on the event loop of a private clone of a filesystem. The first request connects.

    Parameters
    ----------
    fs
        Gives class and options. The instance itself is neither used nor changed.
    """

    buckets: dict[str, Any]

    def __init__(self, fs: AbstractFileSystem) -> None:
        self.fs = self.clone(fs)
        self._renew_lock = threading.Lock()
        self._home: weakref.ref[asyncio.AbstractEventLoop] | None = None
        """The event loop on which the connections were made."""

    @abc.abstractmethod
    async def disconnect(self) -> None:
        """Close the connections of the clone."""

    def clone(self, fs: Any, forked: bool = False) -> Any:
        """Return a private copy of a filesystem."""
        return clone_of(fs, forked)

    @property
    def loop(self) -> Any:
        return self.fs.loop

    def renew(self, forked: bool = False) -> None:
        """Take a new clone, with its own connections; in a child, with the child's loop."""
        self.fs = self.clone(self.fs, forked)
        self.buckets.clear()

    def come_home(self) -> None:
        """Take a new clone if the connections belong to a loop that has ended.

        Raises
        ------
        LastingError
            Their loop still runs, in another thread.
        """
        here = asyncio.get_running_loop()
        with self._renew_lock:
            before = self._home
            loop = None if before is None else before()
            if loop is here:
                return
            if loop is not None and loop.is_running():
                raise LastingError(
                    "this asynchronous filesystem is in use on another event loop, which runs, so nothing was sent: "
                    "make a filesystem for each loop (skip_instance_cache=True)"
                )
            self._home = weakref.ref(here)
            if before is not None:
                self.renew()

    def after_fork(self) -> None:
        self._renew_lock, self._home = threading.Lock(), None
        self.renew(forked=True)

    async def close(self) -> None:
        self.buckets.clear()
        with errors_of("closing the connections of", f"{self.scheme}://"):
            self.come_home()
            await self.disconnect()
