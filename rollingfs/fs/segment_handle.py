"""`Segment`: a handle on one segment, bound to its incarnation, speaking segment offsets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rollingfs.client import Client
from rollingfs.fs.chunk_list import ChunkList
from rollingfs.fs.policy_verbs import HandlePolicyVerbs
from rollingfs.fs.segment_verbs import SegmentVerbs
from rollingfs.fs.sync_async import both, name_for_users
from rollingfs.fs.tail import POLL_S_MAX, POLL_S_MIN, Tail
from rollingfs.fs.tier_verbs import HandleTierVerbs
from rollingfs.policy import RollingPolicy
from rollingfs.read.snapshot import Snapshot
from rollingfs.runtime.bridge import Bridge

if TYPE_CHECKING:
    from rollingfs.fs.filesystem import RollingFileSystem


class Segment:
    """A handle on one segment.

    Its attributes are those of a snapshot. The handle's own verbs take a new one, and so do `refresh` and a `read`
    beyond the known end. A handle is bound to the incarnation that it was opened on: once that is deleted or replaced,
    every verb raises `FileNotFoundError`. Every verb has an async twin of its name with an underscore before it. A
    handle may be pickled: the copy has the same snapshot, and the same epoch if the handle holds one.

    Made by ``fs.segment(path)``.
    """

    def __init__(
        self,
        client: Client,
        bridge: Bridge,
        snapshot: Snapshot,
        strip: Callable[[str], str],
        held: int | None = None,
        fs: RollingFileSystem | None = None,
    ) -> None:
        self._fs = fs
        self._client = client
        self._bridge = bridge

        def handle(snapshot: Snapshot, held: int) -> Segment:
            return Segment(client, bridge, snapshot, strip, held, fs)

        self._verbs = SegmentVerbs(client, snapshot, strip, handle, held)
        self._tiers = HandleTierVerbs(client, self._verbs)
        self._policies = HandlePolicyVerbs(client, self._verbs)

    @classmethod
    async def open(
        cls,
        client: Client,
        bridge: Bridge,
        path: str,
        strip: Callable[[str], str] | None = None,
        fs: RollingFileSystem | None = None,
    ) -> Segment:
        """A handle on the segment or plain file that is at a path now.

        Parameters
        ----------
        strip
            Turns the paths that `concat` is given into the backend's own.
        fs
            The filesystem with which a pickle of the handle takes its way.

        Raises
        ------
        FileNotFoundError
            Neither a segment nor a plain file is there.
        """
        snapshot = await client.lookup.view(path, fresh=True)
        return cls(client, bridge, snapshot, strip or client.backend.strip, fs=fs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._fs, self._snapshot, self._verbs.held)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.path!r} [{self.start}, {self.length}) {self.state} version {self.version}>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the map of the snapshot; it asks the store nothing."""
        from rollingfs.fs.notebook import segment_html

        return segment_html(self._snapshot)

    # -- the snapshot --------------------------------------------------------------------------------------

    @property
    def _snapshot(self) -> Snapshot:
        return self._verbs.snapshot

    @property
    def path(self) -> str:
        """Its path on the backend."""
        return self._snapshot.path

    @property
    def start(self) -> int:
        """Offset of the first retained byte."""
        return self._snapshot.start

    @property
    def length(self) -> int:
        """Offset of the end."""
        return self._snapshot.length

    @property
    def size(self) -> int:
        """Bytes retained: length - start."""
        return self._snapshot.size

    @property
    def sealed(self) -> bool:
        """Whether it takes no more bytes."""
        return self._snapshot.sealed

    @property
    def state(self) -> str:
        """``"open"``, ``"sealed"``, or ``"merging"`` while it becomes part of another segment."""
        return self._snapshot.state

    @property
    def version(self) -> int:
        """Grows with every commit; 0 for a plain file."""
        return self._snapshot.version

    @property
    def epoch(self) -> int:
        """The epoch that this handle holds; if it holds none, the segment's."""
        held = self._verbs.held
        return self._snapshot.epoch if held is None else held

    @property
    def owner(self) -> str | None:
        """Who holds the segment exclusively."""
        return self._snapshot.owner

    @property
    def attrs(self) -> dict[str, str]:
        """The segment's attributes."""
        return self._snapshot.attrs

    @property
    def policy(self) -> RollingPolicy:
        """When it rolls to a new chunk; for a plain file, the policy that this client would give it."""
        return self._snapshot.policy or self._client.segments.policy

    @property
    def created(self) -> datetime:
        """When this incarnation was created (UTC); for a plain file, when it was last changed."""
        return self._snapshot.created

    @property
    def modified(self) -> datetime:
        """When it was last changed (UTC)."""
        return self._snapshot.modified

    @property
    def chunks(self) -> ChunkList:
        """Its chunks, in order; the bytes behind the last one are inline in the header."""
        return ChunkList(self._client, self._bridge, self._snapshot)

    # -- verbs ---------------------------------------------------------------------------------------------

    append, _append = both(SegmentVerbs.append, commits=True, takes=SegmentVerbs.take)
    refresh, _refresh = both(SegmentVerbs.refresh)
    read, _read = both(SegmentVerbs.read)
    stage, _stage = both(SegmentVerbs.stage)
    seal, _seal = both(SegmentVerbs.seal, commits=True)
    truncate, _truncate = both(SegmentVerbs.truncate, commits=True)
    concat, _concat = both(SegmentVerbs.concat, commits=True)
    delete, _delete = both(SegmentVerbs.delete, commits=True)
    collect, _collect = both(SegmentVerbs.collect)
    consolidate, _consolidate = both(SegmentVerbs.consolidate, commits=True)
    roll, _roll = both(HandleTierVerbs.roll, of="_tiers", commits=True)
    offload, _offload = both(HandleTierVerbs.offload, of="_tiers", commits=True)
    onload, _onload = both(HandleTierVerbs.onload, of="_tiers", commits=True)
    set_policy, _set_policy = both(HandlePolicyVerbs.set_policy, of="_policies", commits=True)
    verify, _verify = both(SegmentVerbs.verify)
    acquire, _acquire = both(SegmentVerbs.acquire, commits=True)
    release, _release = both(SegmentVerbs.release, commits=True)

    def tail(
        self,
        offset: int | None = None,
        follow: bool = True,
        *,
        poll_s_min: float = POLL_S_MIN,
        poll_s_max: float = POLL_S_MAX,
    ) -> Tail:
        """Its bytes as they come, to iterate over by `for` or `async for`; see `Tail`.

        Parameters
        ----------
        offset
            Where to begin, as a segment offset; by default at the first retained byte. Begin at `length` to see only
            what is new.
        follow
            Wait for more until the segment is sealed; else end where it ends now.
        poll_s_min, poll_s_max
            The shortest and the longest pause between two polls, in seconds.
        """
        return Tail(
            self._client,
            self._bridge,
            self.path,
            offset,
            snapshot=self._snapshot,
            follow=follow,
            poll_s_min=poll_s_min,
            poll_s_max=poll_s_max,
        )


def _unpickled(fs: RollingFileSystem, snapshot: Snapshot, held: int | None) -> Segment:
    """The same handle in another process: the same snapshot and, if it holds the segment, the same epoch."""
    return Segment(fs._client, fs._bridge, snapshot, fs._strip, held, fs)


name_for_users(Segment, "Segment")
