"""Headers as they were last seen: loaded, and cached to spare requests."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rollingfs.backend.contract import Backend, Blob, FileInfo
from rollingfs.backend.patience import NAME_KEPT_S, look_for, read_fitting
from rollingfs.errors import lost_commit
from rollingfs.format import names, transitions
from rollingfs.format.codec import parse_file, parse_more
from rollingfs.format.commit_lines import Acknowledged, Trace, are_two, trace
from rollingfs.format.header import Header
from rollingfs.runtime.concurrency import Runtime
from rollingfs.segment.segment import Segment, is_shadowed

logger = logging.getLogger("rollingfs")

HEADERS_CACHED_MAX = 8192
TAIL_BYTES_CACHED_MAX = 64 * 1024 * 1024
FORGOTTEN = -math.inf
"""When a header was seen that is to be forgotten, and stays only for the commit of this client that it has."""


@dataclass(slots=True, eq=False, repr=False)
class _Entry:
    """A header that was seen, and when: by the clock, and by the cache's count of events."""

    loaded: Segment
    at_s: float = FORGOTTEN
    known: int = 0
    """When the cache learned of it."""
    own: int = 0
    """When the cache learned of the last commit of this client; 0 if there was no commit."""
    weight: int = 0
    """Bytes of its inline tail."""
    mine: Acknowledged | None = None
    """The last commit of this client; None before the first, or after its line has gone."""


class Headers:
    """The headers of a backend, read through a cache of the last seen.

    Answers arrive in another order than requests are sent. So every load and every commit notes when it began. Its
    header may be older than an entry that the cache learned of since, and then does not simply replace it.

    Parameters
    ----------
    backend
        The backend of the headers.
    cache_s
        For how long, in seconds, a header seen is believed without asking; 0 to ask always.
    """

    def __init__(self, backend: Backend, runtime: Runtime, cache_s: float) -> None:
        self.backend = backend
        self.runtime = runtime
        self.cache_s = cache_s
        self.condemn: Callable[[str, str], None] = lambda _path, _why: None
        """Called with a path and the reason when the store of the path has lost a commit."""
        self.store_shown: Callable[[str], str] = lambda _path: ""
        """Return the store of a path as errors name it."""
        self.begin: Callable[[], int] = itertools.count(1).__next__
        """Give the moment at which a load or a commit begins, for `keep`; no two are the same."""
        self._lost = 0
        """A load that began before this event may bring an older header than the removed header."""
        self.after_fork()

    def seen(self, segment: str) -> Segment | None:
        """Return the header that was last seen, however long ago: good enough as the base of a conditional write."""
        entry = self._entries.get(segment)
        return None if entry is None or entry.at_s == FORGOTTEN else entry.loaded

    def recent(self, segment: str, within_s: float | None = None) -> Segment | None:
        """Return the header, if it was seen within the cache time, or within the time given."""
        within_s = self.cache_s if within_s is None else within_s
        with self._lock:
            entry = self._entries.get(segment)
            if entry is None or time.monotonic() - entry.at_s >= within_s:
                return None
            self._entries.move_to_end(segment)
            return entry.loaded

    def by_token(self, segment: str, token: str | None) -> Segment | None:
        """Return the header that was seen, if a listing shows that it is still there; it counts as seen now."""
        return self.by_tokens({segment: token}).get(segment)

    def by_tokens(self, tokens: Mapping[str, str | None]) -> dict[str, Segment]:
        """Return `by_token` of many segments, without unseen and changed segments."""
        found = {}
        with self._lock:
            for segment, token in tokens.items():
                entry = self._entries.get(segment)
                if entry is None or token is None or entry.at_s == FORGOTTEN:
                    continue
                if entry.loaded.token == token:
                    entry.at_s = time.monotonic()
                    self._entries.move_to_end(segment)
                    found[segment] = entry.loaded
        return found

    def keep(
        self, segment: str, loaded: Segment, began: int, *, is_own: bool = False, mine: Acknowledged | None = None
    ) -> None:
        """Remember a header, unless the remembered header may be newer. A missing header is not remembered.

        Parameters
        ----------
        began
            The answer of `begin` before the load or the commit.
        is_own
            Whether a commit of this client made it, rather than that a load found it.
        mine
            That commit, where the store may lose it.

        Raises
        ------
        LostCommitError
            It shows that the store has lost the last commit of this client.
        """
        with self._lock:
            entry = self._entries.get(segment)
            if not is_own and entry is not None and entry.mine is not None:
                mine = self._checked(segment, entry, loaded.header, began)
            elif mine is not None and loaded.header is not None and entry is not None and began < entry.known:
                self.acknowledge(segment, mine, loaded.header)
            is_known = entry is not None and entry.loaded is loaded
            if entry is not None and not (is_own or is_known) and loaded.header is not None:
                self._compare(segment, entry.loaded, loaded.header)
            is_late = began < self._lost and (entry is None or entry.at_s == FORGOTTEN)
            if is_late and not (is_own and mine is not None):
                return
            if entry is not None and began < entry.known and not self._is_newer(segment, entry, loaded, began, is_own):
                return
            if loaded.token is None:
                self._lose(segment)
                return
            if entry is None:
                entry = self._entries[segment] = _Entry(loaded)
            entry.loaded, entry.known, entry.mine = loaded, self.begin(), mine
            entry.own = entry.known if is_own else entry.own
            entry.at_s = FORGOTTEN if is_late else time.monotonic()
            before, entry.weight = entry.weight, loaded.tail_bytes
            self._weight += entry.weight - before
            self._entries.move_to_end(segment)
            while len(self._entries) > HEADERS_CACHED_MAX or self._weight > TAIL_BYTES_CACHED_MAX:
                self._lose(next(iter(self._entries)))

    def acknowledge(self, segment: str, mine: Acknowledged, made: Header) -> None:
        """Note the last commit of this client, which made a header, where a look has shown the segment since it began.

        If the look has shown another commit in its place, another look must show which is there now.
        """
        with self._lock:
            entry = self._entries.get(segment)
            found = entry.loaded.header if entry is not None else None
            if entry is None or found is None:
                return
            shown = trace(mine, made, found, time.monotonic())
            if shown is Trace.LOST or (shown is Trace.KEPT and found.commit_of(mine.writer) is not None):
                entry.mine, entry.own = mine, self.begin()
                entry.at_s = FORGOTTEN if shown is Trace.LOST else entry.at_s

    def _checked(self, segment: str, entry: _Entry, found: Header | None, began: int) -> Acknowledged | None:
        """Return the last commit of this client, if the header that was found has it, or may be older than it."""
        mine, seen = entry.mine, entry.loaded.header
        if mine is None or found is None or seen is None or began < entry.own:
            return mine
        shown = trace(mine, seen, found, time.monotonic())
        if shown is Trace.KEPT:
            return mine if found.commit_of(mine.writer) is not None else None
        entry.mine = None
        if shown is Trace.LOST:
            at, line = mine.start - seen.tail_start, seen.commit_of(mine.writer)
            has_data = at >= 0 and line is not None and line.number >= mine.number
            data = seen.tail[at:] if has_data else None
            error = lost_commit(names.shown(segment), mine.start, mine.end, data, self.store_shown(segment))
            self._lose(segment)
            self.condemn(segment, error.why)
            raise error
        logger.warning(
            "%s: the commit of the bytes from %d to %d is not there any more: an older header was put in its place, or "
            "that of a new segment",
            names.shown(segment),
            mine.start,
            mine.end,
        )
        return None

    def _compare(self, segment: str, before: Segment, found: Header) -> None:
        """Warn if two commits had the same version: the newest of the header that was seen, and another."""
        if not self.backend.may_tear(names.header_path(segment)):
            return  # before the header is made of records
        seen = before.header
        if seen is None or not are_two(seen, found):
            return
        logger.warning(
            "%s: the store let two commits win as version %d, or a hand put an older header back: the commit that this "
            "client saw is gone; its writer is told",
            names.shown(segment),
            seen.version,
        )

    def _is_newer(self, segment: str, entry: _Entry, loaded: Segment, began: int, is_own: bool) -> bool:
        """Return whether a header has a newer version than the remembered header; times do not decide."""
        old, new = entry.loaded.header, loaded.header
        is_newer = new is not None and (old is None or new.version > old.version)
        is_same = old is not None and new is not None and old.segment == new.segment
        # versions begin anew once a tombstone was collected: between two incarnations a greater version proves
        # nothing against an own commit. Then neither is remembered
        if not is_same and (is_own != is_newer) and (is_own or began < entry.own):
            self._lose(segment)
            self._lost = self.begin()
            return False
        return is_newer

    def forget(self, segment: str | None = None) -> None:
        """Forget a segment, or all, except own commits; forget the results of loads under way, too."""
        with self._lock:
            for name in [segment] if segment is not None else list(self._entries):
                entry = self._entries.get(name)
                if entry is not None and entry.mine is not None:
                    entry.at_s = FORGOTTEN
                else:
                    self._lose(name)
            self._lost = self.begin()

    def _lose(self, segment: str) -> None:
        entry = self._entries.pop(segment, None)
        if entry is not None:
            self._weight -= entry.weight
            self._lost = max(self._lost, entry.known)

    def after_fork(self) -> None:
        """Begin again in a child process, with an empty cache and a free lock."""
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._weight = 0
        self._lock = threading.RLock()

    async def load(self, segment: str, token: str | None = None) -> Segment:
        """Load the present header by a request on the token last seen, or on the given token.

        Raises
        ------
        CorruptHeaderError
            It cannot be believed.
        """
        with self._lock:
            began, entry = self.begin(), self._entries.get(segment)
        seen = None if entry is None or entry.at_s == FORGOTTEN else entry.loaded
        if token is not None and (seen is None or seen.token != token):
            seen = Segment(segment, None, token)
        path = names.header_path(segment)
        try:
            if seen is not None and seen.token is not None:
                blob = await self.backend.read_if_changed(path, seen.token)
            else:
                blob = await self.backend.read(path)
            loaded = await self._whole(segment, blob, seen) if blob is not None else seen or Segment(segment)
        except FileNotFoundError:
            loaded = Segment(segment)
        if loaded is not seen or token is None:
            self.keep(segment, loaded, began)
        return loaded

    async def look(self, segment: str, *, fresh: bool) -> Segment:
        """Return the header that was seen within the cache time, unless `fresh`; else load it."""
        return (None if fresh else self.recent(segment)) or await self.load(segment)

    async def load_newer(self, segment: str, token: str | None) -> Segment:
        """Load again after the header with `token` has named a missing file, which a mount may remember for a while."""
        path = names.header_path(segment)

        async def newer() -> Segment | None:
            loaded = await self.load(segment, token)
            return None if loaded.token == token else loaded

        if token is None or not self.backend.may_tear(path):
            return await self.load(segment)
        return await look_for(self.backend, self.runtime, path, newer, NAME_KEPT_S) or await self.load(segment)

    async def _whole(self, segment: str, blob: Blob, seen: Segment | None) -> Segment:
        """Return the header that was read: whole, or as records after the known header."""
        path = names.header_path(segment)
        if blob.is_rest and (seen is None or seen.header is None or not seen.room):
            blob = await self.backend.read(path)
        if blob.is_rest and seen is not None and seen.header is not None:
            more, room = parse_more(seen.header, seen.room, blob.data, path)
            return Segment(segment, more, blob.token, room=room)

        def parsed(blob: Blob) -> Segment:
            return self.parsed(segment, blob.token, blob.data)

        return await read_fitting(self.backend, self.runtime, path, parsed, blob)

    def listed(self, segment: str, token: str, data: bytes, began: int) -> Segment:
        """Return the header that a listing has read.

        Raises
        ------
        CorruptHeaderError
            It cannot be believed.
        """
        loaded = self.parsed(segment, token, data)
        self.keep(segment, loaded, began)
        return loaded

    def parsed(self, segment: str, token: str | None, data: bytes) -> Segment:
        """Return a header that was read, without a note of it; raise the errors of `listed`.

        The backend learns by which path tiers keep the files of a segment that this client reaches by another.
        """
        header, room = parse_file(data, names.header_path(segment))
        for line in header.tiers if header is not None else ():
            if line.path and line.path != segment:
                self.backend.place(segment, line.path)
        return Segment(segment, header, token, room=room)

    async def secure(self, segment: str, loaded: Segment | None = None) -> None:
        """Make durable what a look at a segment has shown, before anything is concluded from it.

        Without a header in `loaded`, there is no need to make anything durable.
        """
        if self.backend.capability.shows_unflushed and (loaded is None or loaded.token is not None):
            await self.backend.flush(names.header_path(segment))

    async def load_durable(self, segment: str) -> Segment:
        """Load for a caller that concludes that something is done: a loss of power will not undo it.

        A header is missing only after it has been missing for a while (`look_for`), and that is made durable, too.
        """

        async def look() -> Segment | None:
            loaded = await self.load(segment)
            return None if loaded.token is None else loaded

        loaded = await look_for(self.backend, self.runtime, names.header_path(segment), look) or Segment(segment)
        await self.secure(segment)
        return loaded

    # -- what is at a path: a segment, or a plain file -------------------------------------------------------------

    async def view(self, path: str, *, fresh: bool = False) -> Segment:
        """Return the content of a path, by header, plain file, and header again.

        Parameters
        ----------
        fresh
            Ask the store, however recently the header was seen.

        Raises
        ------
        FileNotFoundError
            Neither a segment nor a plain file is there, or the name is illegal.
        """
        if names.is_reserved(path):
            raise transitions.missing(path)
        loaded = await self.look(path, fresh=fresh)
        if loaded.live:
            return loaded
        plain = await self.plain(loaded)
        if plain is not None:
            return Segment.of_plain(plain)
        # another may have adopted the plain file between the two looks
        loaded = await self.load(path)
        transitions.live(loaded.header, path)
        return loaded

    async def plain(self, seen: Segment) -> FileInfo | None:
        """Return the plain file at a path, unless the tombstone that was seen hides it."""
        try:
            info = await self.backend.stat(seen.path)
        except FileNotFoundError:
            return None
        return None if is_shadowed(seen.header, info) else info
