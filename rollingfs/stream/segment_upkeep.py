"""The steps of upkeep on a segment, and their report: policies, an idle tail, offload, consolidation, collection."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from rollingfs.format import names
from rollingfs.format.header import Header, Phase
from rollingfs.format.policies import Fields
from rollingfs.format.transitions import Guard
from rollingfs.policy import READERS_GRACE_S
from rollingfs.runtime.values import added, value_class
from rollingfs.segment.at import At
from rollingfs.segment.files.collected import Collected
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.change import change, roll
from rollingfs.segment.verbs.collect import collect
from rollingfs.segment.verbs.consolidate import Consolidated, consolidate_by_policy
from rollingfs.segment.verbs.offload import Offloaded
from rollingfs.segment.write.append_to_header import is_aged
from rollingfs.segment.write.parquet_footers import is_worn
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.offload import offload_by_policy

logger = logging.getLogger("rollingfs")


@value_class
class Upkept:
    """Work on a stream, or on a segment outside of streams."""

    path: str
    is_stream: bool
    dropped_bytes: int = 0
    """By retention."""
    deleted: tuple[str, ...] = ()
    """Sealed segments that retention deleted."""
    rolled: int = 0
    """Inline tails that became chunks, because they were older than `max_age`."""
    consolidated: Consolidated = Consolidated()
    appended_bytes: int = 0
    """All that were ever appended to the segments that were consolidated."""
    written_bytes: int = 0
    """These, and what all consolidations of these segments have written again."""
    offloaded: Offloaded = Offloaded()
    has_policy: bool = False
    """Whether an offload policy with a tier counts for a segment here."""
    files: int = 0
    """By collection."""
    collected_bytes: int = 0
    worn: tuple[str, ...] = ()
    """Open Parquet files that old footers waste a part of, for the caller to write again: that needs Arrow."""
    rewritten_bytes: int = 0
    """Freed by that."""
    young: int = 0
    """Files that a later collection takes."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why, by what failed: the operation and the path."""
    is_cut_short: bool = False
    """Whether the caller stopped it before all was done."""

    @property
    def is_idle(self) -> bool:
        """Return whether there was no step, no failure and no wait."""
        return self == Upkept(self.path, self.is_stream, has_policy=self.has_policy)

    @property
    def saved_objects(self) -> int:
        """Objects that there are fewer by joins and blocks, and requests that a read of everything makes fewer."""
        joined, moved = self.consolidated, self.offloaded
        return joined.replaced - joined.written + moved.chunks - moved.files

    @property
    def write_amplification(self) -> float | None:
        """Return the average number of writes of a byte of consolidated segments, or None."""
        return self.written_bytes / self.appended_bytes if self.appended_bytes else None

    def as_fields(self) -> dict[str, Any]:
        """Return the work by name, for people and programs."""
        amplification = self.write_amplification
        return {
            "dropped_bytes": self.dropped_bytes,
            "deleted": self.deleted,
            "rolled": self.rolled,
            "joined_chunks": self.consolidated.replaced,
            "joined_to": self.consolidated.written,
            "joined_bytes": self.consolidated.bytes,
            "write_amplification": None if amplification is None else round(amplification, 3),
            "chunks": self.offloaded.chunks,
            "moved_bytes": self.offloaded.bytes,
            "saved_objects": self.saved_objects,
            "files": self.files,
            "collected_bytes": self.collected_bytes,
            "rewritten_bytes": self.rewritten_bytes,
            "failed": dict(self.failed),
        }

    def plus(self, *others: Upkept) -> Upkept:
        """Return the sum of all, under the path of this report."""
        return replace(added(self, *others), is_stream=self.is_stream)


def with_rewritten(one: Upkept, rewrite: Callable[[str], int]) -> Upkept:
    """Return the result after its worn Parquet files were written again; an error is part of the result."""
    for path in one.worn:
        try:
            one = replace(one, rewritten_bytes=one.rewritten_bytes + rewrite(path))
        except Exception as error:  # noqa: BLE001 - whatever it is, the next segment has nothing to do with it
            one = one.plus(failure(path, "rewrite", path, error))
    return one


def failure(path: str, verb: str, what: str, error: Exception) -> Upkept:
    """Return an operation that failed, as a result."""
    logger.warning("%s: cannot %s it: %s", what, verb, error)
    return Upkept(path, is_stream=False, failed={f"{verb} {what}": str(error)})


def total(results: Sequence[Upkept]) -> Upkept:
    """Return all results together."""
    return Upkept("", is_stream=False).plus(*results)


RETAIN = "retain"
ROLL = "roll"
OFFLOAD = "offload"
CONSOLIDATE = "consolidate"
COLLECT = "collect"
STEPS = (RETAIN, ROLL, OFFLOAD, CONSOLIDATE, COLLECT)
"""In the order in which they are done to a folder. An offload joins chunks itself, so it comes before consolidation."""


@value_class
class How:
    """Options of upkeep: see the parameters of `Upkeep`."""

    steps: Collection[str] = STEPS
    grace_s: float | None = None
    readers_grace_s: float = READERS_GRACE_S
    dropped: Fields | None = None
    is_stopped: Callable[[], bool] = lambda: False


class SegmentUpkeep:
    """Does the steps to a segment, whose header is loaded once.

    Parameters
    ----------
    ledger
        The ledger of its folder, resolved; without it, only collection runs.
    known
        Arguments `seen` and `named` of a collection.
    """

    def __init__(self, client: At, how: How, path: str, ledger: Ledger | None, **known: Any) -> None:
        self.client = client
        self.how = how
        self.path = path
        self.ledger = ledger
        self.known = known
        self._is_loaded = False

    async def keep(self) -> Upkept:
        """Do all steps; an error is part of the result, and does not stop the other steps."""
        result = Upkept(self.path, is_stream=False)
        steps: dict[str, Callable[[], Awaitable[Upkept]]] = {}
        if not names.is_hidden_segment(self.path) and self.ledger is not None:
            steps = {
                ROLL: partial(self._roll, self.ledger),
                OFFLOAD: partial(self._offload, self.ledger),
                CONSOLIDATE: self._consolidate,
            }
        for verb, step in (steps | {COLLECT: self._collect}).items():
            if verb in self.how.steps:
                result = result.plus(await attempt(self.how, verb, self.path, step))
        return result

    async def _header(self) -> Header | None:
        """The newest header that this client knows; None if the segment is gone, or is a plain file."""
        seen = self.client.headers.seen(self.path) if self._is_loaded else None
        loaded = await self.client.headers.load(self.path) if seen is None else seen
        self._is_loaded = True
        return loaded.header if loaded.live else None

    async def _roll(self, ledger: Ledger) -> Upkept:
        """Give a segment the present policies of its folders, and make a chunk of a tail that is too old."""
        path, header = self.path, await self._header()
        if header is None or header.phase is Phase.MERGING:
            return Upkept(path, is_stream=False)
        fields = {**(self.how.dropped or {}), **ledger.rolling}
        if header.policy.inheriting(fields) != header.policy:
            header = await change(
                self.client,
                path,
                lambda found: replace(found, policy=found.policy.inheriting(fields)),
                Guard(header.segment, header.epoch if header.owner is not None else None),
            )
        is_due = is_aged(header, self.client.now_ms())
        if is_due:
            await roll(self.client, path, header.segment)
        return Upkept(path, is_stream=False, rolled=int(is_due))

    async def _offload(self, ledger: Ledger) -> Upkept:
        header = await self._header()
        did = None if header is None else await offload_by_policy(self.client, self.path, header, ledger)
        return Upkept(self.path, is_stream=False, offloaded=did or Offloaded(), has_policy=did is not None)

    async def _consolidate(self) -> Upkept:
        path, header = self.path, await self._header()
        if header is None:
            return Upkept(path, is_stream=False)
        is_old = header.policy.consolidate and await is_worn(self.client.fetcher, Segment(path, header))
        result = Upkept(path, is_stream=False, worn=(path,) if is_old else ())
        did = await consolidate_by_policy(self.client, path, header, self.how.readers_grace_s)
        seen = self.client.headers.seen(path)
        if not did.replaced or seen is None or seen.header is None:
            return result
        appended, rewritten = seen.header.length, seen.header.rewritten
        return replace(result, consolidated=did, appended_bytes=appended, written_bytes=appended + rewritten)

    async def _collect(self) -> Upkept:
        did = await collect_segment(self.client, self.path, self.how.grace_s, **self.known)
        return Upkept(self.path, is_stream=False, files=len(did.files), collected_bytes=did.bytes, young=did.young)


async def attempt(how: How, verb: str, path: str, step: Callable[[], Awaitable[Upkept]]) -> Upkept:
    """Do a step to a stream or segment, unless the caller has stopped; an error is part of the result."""
    if how.is_stopped():
        return Upkept(path, is_stream=False, is_cut_short=True)
    try:
        return await step()
    except FileNotFoundError:
        return Upkept(path, is_stream=False)  # deleted or replaced meanwhile
    except Exception as error:  # noqa: BLE001 - whatever it is, the next segment has nothing to do with it
        return failure(path, verb, path, error)


async def offload_segment(client: At, path: str) -> Offloaded | None:
    """Offload a segment by its policies; None without a tier, or for a plain file."""
    loaded = await client.headers.load(path)
    if not loaded.live or loaded.header is None:
        return None
    ledger = await Ledgers(client).resolved(names.parent(path))
    return await offload_by_policy(client, path, loaded.header, ledger)


async def collect_segment(
    client: At, path: str, grace_s: float | None, *, dry_run: bool = False, **known: Any
) -> Collected:
    """Collect the folder of a present or former segment, unless another client has done it."""
    try:
        return await collect(client, path, grace_s=grace_s, dry_run=dry_run, **known)
    except FileNotFoundError:
        return Collected()
