"""Headers as they were last seen: loading, and the cache that spares requests."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from rollingfs import names
from rollingfs.backend.contract import Backend
from rollingfs.codec import parse_header
from rollingfs.header import Header

HEADERS_CACHED_MAX = 8192
TAIL_BYTES_CACHED_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Loaded:
    """A header file as it was read: no file, an empty one (a token, but no header), or a header."""

    header: Header | None
    token: str | None

    @property
    def live(self) -> bool:
        """Whether it is the header of a segment that exists."""
        return self.header is not None and not self.header.deleted


NOTHING = Loaded(None, None)


@dataclass(frozen=True, slots=True)
class _Entry:
    loaded: Loaded
    at_s: float

    @property
    def weight(self) -> int:
        return len(self.loaded.header.tail) if self.loaded.header else 0

    @property
    def version(self) -> int:
        return _version(self.loaded)


def _version(loaded: Loaded) -> int:
    return loaded.header.version if loaded.header else 0


class Headers:
    """The headers of one backend, read through a cache of the last seen.

    Parameters
    ----------
    backend
        Where they lie.
    cache_s
        For how long, in seconds, a header seen is believed without asking; 0 to ask always.
    """

    def __init__(self, backend: Backend, cache_s: float) -> None:
        self.backend = backend
        self.cache_s = cache_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def seen(self, segment: str) -> Loaded | None:
        """What was last seen, however long ago: good enough as the base of a conditional write."""
        with self._lock:
            entry = self._entries.get(segment)
            return entry.loaded if entry else None

    def recent(self, segment: str) -> Loaded | None:
        """What was seen within the cache time."""
        with self._lock:
            entry = self._entries.get(segment)
            if entry is None or time.monotonic() - entry.at_s >= self.cache_s:
                return None
            self._entries.move_to_end(segment)
            return entry.loaded

    def by_token(self, segment: str, token: str | None) -> Loaded | None:
        """What was seen, if a listing shows that it is still there; it counts as seen now."""
        loaded = self.seen(segment)
        if loaded is None or token is None or loaded.token != token:
            return None
        self.keep(segment, loaded)
        return loaded

    def keep(self, segment: str, loaded: Loaded) -> None:
        """Remember what is there now; that nothing is there is not remembered."""
        with self._lock:
            self._drop(segment)
            if loaded.token is None:
                return
            entry = _Entry(loaded, time.monotonic())
            self._entries[segment] = entry
            self._weight += entry.weight
            while len(self._entries) > HEADERS_CACHED_MAX or self._weight > TAIL_BYTES_CACHED_MAX:
                self._drop(next(iter(self._entries)))

    def forget(self, segment: str | None = None) -> None:
        """Remember nothing of one segment, or of any."""
        with self._lock:
            for name in [segment] if segment is not None else list(self._entries):
                self._drop(name)

    def _drop(self, segment: str) -> None:
        entry = self._entries.pop(segment, None)
        if entry is not None:
            self._weight -= entry.weight

    def after_fork(self) -> None:
        """In a child process: nothing is seen yet, and nobody holds the lock."""
        self._entries = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    async def load(self, segment: str) -> Loaded:
        """The header as it is now: one request, conditional on the token last seen.

        Raises
        ------
        CorruptHeaderError
            It cannot be believed.
        """
        with self._lock:
            before = self._entries.get(segment)
        seen = before.loaded if before else None
        path = names.header_path(segment)
        try:
            if seen is not None and seen.token is not None:
                blob = await self.backend.read_if_changed(path, seen.token)
                if blob is None:
                    self._keep_read(segment, seen, before)
                    return seen
            else:
                blob = await self.backend.read(path)
        except FileNotFoundError:
            with self._lock:
                if self._entries.get(segment) is before:
                    self._drop(segment)
            return NOTHING
        loaded = Loaded(parse_header(blob.data, path), blob.token)
        self._keep_read(segment, loaded, before)
        return loaded

    async def secure(self, segment: str, loaded: Loaded | None = None) -> None:
        """Make durable what a look at a segment has shown, before anything is concluded from it.

        Of a header that was `loaded`, nothing if there was none: that says no more than that nothing is there.
        """
        if self.backend.shows_unflushed and (loaded is None or loaded.token is not None):
            await self.backend.flush(names.header_path(segment))

    async def load_durable(self, segment: str) -> Loaded:
        """`load`, for whoever concludes from it that something is done: a loss of power will not undo it."""
        loaded = await self.load(segment)
        await self.secure(segment, loaded)
        return loaded

    def _keep_read(self, segment: str, loaded: Loaded, before: _Entry | None) -> None:
        """Remember what was read, unless a commit of our own overtook the answer."""
        with self._lock:
            now = self._entries.get(segment)
            overtaken = now is not None and now is not before and now.version > _version(loaded)
        if not overtaken:
            self.keep(segment, loaded)
