"""`Segment`: a handle on a segment, bound to its incarnation, speaking segment offsets."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, overload

from fsspec import AbstractFileSystem

from rollingfs.format import names
from rollingfs.format.header import Chunk, Entry, Page
from rollingfs.fs import segment_verbs, upkeep_verbs
from rollingfs.fs.binding import Binding
from rollingfs.fs.core import Core, core
from rollingfs.fs.methods import both, name_for_users
from rollingfs.fs.tail import POLL_S_MAX, POLL_S_MIN, Tail
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.values import cached
from rollingfs.segment.segment import Segment as Snapshot, modified_ms
from rollingfs.segment.verbs.change import acquire as acquire_segment


def _of_snapshot(name: str) -> Any:
    """Return a property of a handle that is the same property of its snapshot, with its docstring."""
    found = getattr(Snapshot, name).fget

    @functools.wraps(found)
    def get(handle: SegmentHandle) -> Any:
        return found(handle._binding.known)

    return property(get)


async def acquire(at: Binding, owner: str) -> SegmentHandle:
    """Take the segment exclusively, from whoever holds it.

    Returns
    -------
    SegmentHandle
        Return a handle with the new epoch. Only this handle can change the segment until another acquires it.
    """
    header = await acquire_segment(at.client, at.path, owner, at.guard())
    at.advance(made := Snapshot(at.path, header))
    return SegmentHandle(at.core, at.known if at.known.header is header else made, header.epoch)


class SegmentHandle:
    """A handle on a segment.

    It has the attributes of a snapshot. The handle's own verbs take a new snapshot, and so do `refresh` and a `read`
    beyond the known end. A handle is bound to the incarnation that it was opened on: once that is deleted or replaced,
    every verb raises `FileNotFoundError`. Every verb has an async twin of its name with an underscore before it. A
    handle may be pickled: the copy has the same snapshot, and the same epoch if the handle holds an epoch.

    Made by ``fs.segment(path)``.
    """

    def __init__(self, core: Core, snapshot: Snapshot, held: int | None = None) -> None:
        self._bridge = core.bridge
        self._binding = Binding(core, snapshot, held)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._binding.core.fs, self._snapshot, self._binding.held)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.path!r} [{self.start}, {self.length}) {self.state} version {self.version}>"
        )

    def _repr_html_(self) -> str:
        """Return the text for a notebook: the map of the snapshot; it sends no request."""
        from rollingfs.show.notebook import segment_html
        from rollingfs.show.readable import prices_of

        core, view = self._binding.core, self._snapshot
        return segment_html(view, core.client.now_ms() / 1000, prices_of(core.target, view.path))

    # -- the snapshot --------------------------------------------------------------------------------------

    @property
    def _snapshot(self) -> Snapshot:
        return self._binding.known

    @property
    def path(self) -> str:
        """Its path on the backend."""
        return self._snapshot.path

    start: int = _of_snapshot("start")
    length: int = _of_snapshot("length")
    size: int = _of_snapshot("size")
    sealed: bool = _of_snapshot("sealed")
    state: str = _of_snapshot("state")
    version: int = _of_snapshot("version")
    owner: str | None = _of_snapshot("owner")
    attrs: dict[str, str] = _of_snapshot("attrs")
    created: datetime = _of_snapshot("created")
    modified: datetime = _of_snapshot("modified")

    @property
    def epoch(self) -> int:
        """The epoch that this handle holds; otherwise the segment's."""
        held = self._binding.held
        return self._snapshot.epoch if held is None else held

    @property
    def policy(self) -> RollingPolicy:
        """When it rolls to a new chunk; for a plain file, the policy that this client would give it."""
        return self._snapshot.policy or self._binding.client.inherited.default

    @property
    def rewritten(self) -> int:
        """Bytes that consolidations have written again."""
        header = self._snapshot.header
        return 0 if header is None else header.rewritten

    @property
    def chunks(self) -> ChunkList:
        """Its chunks, in order; the bytes after the last chunk are inline in the header."""
        return ChunkList(self._binding.core, self._snapshot)

    # -- verbs ---------------------------------------------------------------------------------------------

    append, _append = both(segment_verbs.append, of="_binding", takes=segment_verbs.take_append)
    stage, _stage = both(segment_verbs.stage, of="_binding")
    seal, _seal = both(segment_verbs.seal, of="_binding", commits=True)
    truncate, _truncate = both(segment_verbs.truncate, of="_binding", commits=True)
    concat, _concat = both(segment_verbs.concat, of="_binding", commits=True)
    roll, _roll = both(upkeep_verbs.roll, of="_binding", commits=True)
    offload, _offload = both(upkeep_verbs.offload, of="_binding", commits=True)
    onload, _onload = both(upkeep_verbs.onload, of="_binding", commits=True)
    set_policy, _set_policy = both(upkeep_verbs.set_policy, of="_binding", commits=True)
    refresh, _refresh = both(Binding.refresh, of="_binding")
    read, _read = both(Binding.read, of="_binding")
    delete, _delete = both(segment_verbs.delete, of="_binding", commits=True)
    collect, _collect = both(upkeep_verbs.collect, of="_binding")
    consolidate, _consolidate = both(upkeep_verbs.consolidate, of="_binding", commits=True)
    verify, _verify = both(upkeep_verbs.verify, of="_binding")
    release, _release = both(segment_verbs.release, of="_binding", commits=True)
    acquire, _acquire = both(acquire, of="_binding", commits=True)

    def tail(
        self,
        offset: int | str | None = None,
        follow: bool = True,
        *,
        retry: bool = False,
        poll_s_min: float = POLL_S_MIN,
        poll_s_max: float = POLL_S_MAX,
    ) -> Tail:
        """Return its bytes as they come, to iterate over by `for` or `async for`; see `Tail`.

        Parameters
        ----------
        offset
            Begin, as a segment offset; by default at the first retained byte. Begin at `length` to see only
            what is new. The text of a `Tail.spot` goes on in this very segment, or raises.
        follow
            Wait for more until the segment is sealed; else end where it ends now.
        retry
            When another segment has the name, go on with that, from its start.
        poll_s_min, poll_s_max
            The shortest and the longest pause between two polls, in seconds.
        """
        return Tail(
            self._binding.core,
            self.path,
            offset,
            snapshot=self._snapshot,
            follow=follow,
            retry=retry,
            poll_s_min=poll_s_min,
            poll_s_max=poll_s_max,
        )


def _unpickled(fs: AbstractFileSystem, snapshot: Snapshot, held: int | None) -> SegmentHandle:
    """Return the same handle in another process: the same snapshot and, if it holds the segment, the same epoch."""
    return SegmentHandle(core(fs), snapshot, held)


class ChunkList(Sequence[Chunk]):
    """The chunks that hold the retained bytes of a snapshot, in order, without the inline tail.

    `len` reads no index page, unless the head of a page was truncated away. A plain file is a single chunk: itself.
    """

    def __init__(self, core: Core, snapshot: Snapshot) -> None:
        self._core = core
        self.snapshot = snapshot
        """The snapshot whose chunks these are."""
        self._entries: Sequence[Entry] = snapshot.header.entries if snapshot.header is not None else _plain(snapshot)

    @cached
    def _ends(self) -> list[int]:
        """The number of chunks up to each entry, its own included."""
        return list(itertools.accumulate(self._count(entry) for entry in self._entries))

    def _count(self, entry: Entry) -> int:
        if isinstance(entry, Chunk):
            return 1
        is_cut = entry.offset > 0 or entry.start < self.snapshot.start
        return len(self._chunks(entry)) if is_cut else entry.count

    def _chunks(self, entry: Entry) -> Sequence[Chunk]:
        if isinstance(entry, Chunk):
            return [entry]
        chunks = self._core.run(self._load(entry))
        return [chunk for chunk in chunks if chunk.end > self.snapshot.start]

    async def _load(self, page: Page) -> Sequence[Chunk]:
        try:
            return await self._core.client.pages.chunks(self.snapshot.path, page)
        except FileNotFoundError as error:
            path = self.snapshot.path
            raise FileNotFoundError(2, "The segment has changed since this snapshot: refresh() it", path) from error

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        position = index if index >= 0 else index + len(self)
        if not 0 <= position < len(self):
            raise IndexError(f"{self.snapshot.path}: there is no chunk {index}; it has {len(self)}")
        number = bisect.bisect_right(self._ends, position)
        first = self._ends[number - 1] if number else 0
        return self._chunks(self._entries[number])[position - first]

    def __iter__(self) -> Iterator[Chunk]:
        for entry in self._entries:
            yield from self._chunks(entry)

    def __repr__(self) -> str:
        return f"<{len(self)} chunks of {self.snapshot.path!r}>"


def _plain(snapshot: Snapshot) -> Sequence[Entry]:
    assert snapshot.plain is not None
    name = names.relative(names.parent(snapshot.path), snapshot.path)
    return [Chunk(0, snapshot.plain.size, name, None, modified_ms(snapshot.plain))] if snapshot.plain.size else []


name_for_users(SegmentHandle, "Segment")
Segment = SegmentHandle
