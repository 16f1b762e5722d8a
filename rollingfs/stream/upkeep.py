"""Upkeep of all below a folder: retention, idle tails, consolidation, offload by policy, collection.

No failure stops the rest.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rollingfs.client import Client
from rollingfs.folders.collect_tree import SEGMENTS_AT_ONCE_MAX, TreeCollector
from rollingfs.folders.listing import Listings
from rollingfs.format import names
from rollingfs.format.header import GRACE_S, Header, Page, Phase
from rollingfs.format.policies import Fields
from rollingfs.format.transitions import Guard
from rollingfs.maintenance.collected import Collected
from rollingfs.maintenance.consolidate import Consolidated, Consolidator
from rollingfs.maintenance.offload import Offloaded
from rollingfs.maintenance.roll import Roller
from rollingfs.policy import READERS_GRACE_S
from rollingfs.read.snapshot import Snapshot
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.offload import offload_by_policy
from rollingfs.stream.offload_policy import Asked, policies_of
from rollingfs.stream.stream_verbs import StreamVerbs
from rollingfs.write.grow import is_aged
from rollingfs.write.parquet_footers import is_worn

logger = logging.getLogger("rollingfs")

RETAIN = "retain"
ROLL = "roll"
CONSOLIDATE = "consolidate"
OFFLOAD = "offload"
COLLECT = "collect"
STEPS = (RETAIN, ROLL, CONSOLIDATE, OFFLOAD, COLLECT)
"""In the order in which they are done to a folder."""
LOOK_AGAIN_S = GRACE_S
"""For how long a segment is left alone where a look found nothing to do, and a listing shows no other header since."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, and what lies directly in it."""

    path: str
    segments: tuple[str, ...]
    """Also those with only leftovers, but not the memory of a stream."""
    is_stream: bool
    """Whether it has, or had, the memory of a stream."""
    is_whole: bool = True
    """Whether all of its segments are meant, and so the stream."""


@dataclass(frozen=True, slots=True)
class Upkept:
    """What was done to a stream, or to one segment outside of streams."""

    path: str
    is_stream: bool
    dropped_bytes: int = 0
    """By retention."""
    deleted: tuple[str, ...] = ()
    """Sealed segments that retention deleted."""
    rolled: int = 0
    """Inline tails that became chunks, because they were older than `max_age`."""
    consolidated: Consolidated = Consolidated()  # noqa: RUF009 - it is frozen
    appended_bytes: int = 0
    """All that were ever appended to the segments that were consolidated."""
    written_bytes: int = 0
    """These, and what all consolidations of these segments have written anew."""
    offloaded: Offloaded = Offloaded()  # noqa: RUF009 - it is frozen
    has_policy: bool = False
    """Whether an offload policy with a tier counts for a segment here."""
    files: int = 0
    """By collection."""
    collected_bytes: int = 0
    worn: tuple[str, ...] = ()
    """Open Parquet files that old footers waste a part of, for the caller to write anew: that needs Arrow."""
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
        """Whether nothing was done, and nothing failed or waits."""
        return self == Upkept(self.path, self.is_stream, has_policy=self.has_policy)

    @property
    def write_amplification(self) -> float | None:
        """How often a byte of the segments that were consolidated has been written, on average; None without any."""
        return self.written_bytes / self.appended_bytes if self.appended_bytes else None

    def as_fields(self) -> dict[str, Any]:
        """What was done, by name, for people and programs."""
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
            "files": self.files,
            "collected_bytes": self.collected_bytes,
            "rewritten_bytes": self.rewritten_bytes,
            "failed": dict(self.failed),
        }

    def plus(self, other: Upkept) -> Upkept:
        """Both together, under the path of this one."""
        return replace(
            self,
            dropped_bytes=self.dropped_bytes + other.dropped_bytes,
            deleted=self.deleted + other.deleted,
            rolled=self.rolled + other.rolled,
            consolidated=self.consolidated.plus(other.consolidated),
            appended_bytes=self.appended_bytes + other.appended_bytes,
            written_bytes=self.written_bytes + other.written_bytes,
            offloaded=self.offloaded.plus(other.offloaded),
            has_policy=self.has_policy or other.has_policy,
            files=self.files + other.files,
            collected_bytes=self.collected_bytes + other.collected_bytes,
            worn=self.worn + other.worn,
            rewritten_bytes=self.rewritten_bytes + other.rewritten_bytes,
            young=self.young + other.young,
            failed={**self.failed, **other.failed},
            is_cut_short=self.is_cut_short or other.is_cut_short,
        )


@dataclass(frozen=True, slots=True)
class _Rest:
    """A look at a segment that found nothing to do, and for what that counts."""

    token: str
    """That of its header."""
    policies: tuple[object, ...]
    """What its folders say."""
    until_s: float
    """Seconds since 1970."""


class Upkeep:
    """Keeps the streams and segments below a folder as their policies say, in rounds: `folders`, then `keep` of each.

    A later round leaves idle segments alone: those whose header the listing shows unchanged since a look found nothing
    to do. It looks at them again after `LOOK_AGAIN_S`, or when a policy may ask for something, because a crash of a
    writer may leave files that no header tells of.

    Parameters
    ----------
    steps
        Of `STEPS`.
    grace_s
        As of a collection.
    readers_grace_s
        As of a consolidation.
    dropped
        Fields of the rolling policy that no folder may have any longer, with what counts then.
    is_stopped
        Asked before each step of each segment; what has begun is finished.
    """

    def __init__(
        self,
        client: Client,
        steps: Collection[str] = STEPS,
        *,
        grace_s: float | None = None,
        readers_grace_s: float = READERS_GRACE_S,
        dropped: Fields | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.client = client
        self.listings = Listings(client)
        self.ledgers = Ledgers(client, once=True)
        self.steps = steps
        self.grace_s = grace_s
        self.readers_grace_s = readers_grace_s
        self.dropped = dropped or {}
        self.is_stopped = is_stopped
        self._tree = TreeCollector(client)
        self._seen: dict[str, int] = {}
        self._named: frozenset[str] = frozenset()
        self._rests: dict[str, _Rest] = {}

    async def folders(self, root: str, unlisted: dict[str, OSError]) -> list[Folder]:
        """The folders at or below a path that have segments, sorted; or one with the segment of this path alone.

        Parameters
        ----------
        unlisted
            Takes the folders that may not be listed, with the error.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        """
        found: dict[str, list[str]] = defaultdict(list)
        streams = set()
        tree = self._tree = TreeCollector(self.client)
        segments = await tree.segments(root, unlisted)
        self._seen, self._named = {}, frozenset(segments)
        self._rests = {path: rest for path, rest in self._rests.items() if path in tree.tokens}
        self.ledgers = Ledgers(self.client, once=True, listed=tree.listed, tokens=tree.tokens)
        if COLLECT in self.steps:
            await tree.clear_marks()  # of the round before, which has taken the last tombstones
        for path in segments:
            folder = names.parent(path)
            if names.is_ledger(path):
                streams.add(folder)
            elif not names.is_hidden_segment(path):
                found[folder].append(path)
        if root in found.get(names.parent(root), ()):  # a segment: the policy of its folder counts, nothing else there
            return [Folder(names.parent(root), (root,), is_stream=False, is_whole=False)]
        return [Folder(path, tuple(found[path]), path in streams) for path in sorted({*found, *streams})]

    async def keep(self, folder: Folder) -> list[Upkept]:
        """Do the steps to a folder: one result for a stream, else one for each segment in it."""
        whole = Upkept(folder.path, is_stream=True)
        ledger: Ledger | None = None
        try:
            ledger = await self.ledgers.resolved(folder.path)
        except OSError as error:  # what the folder's policies are is not known: nothing is trimmed, joined or moved
            whole = whole.plus(_failure(folder.path, "read the memory of", folder.path, error))
        retains = folder.is_whole and ledger is not None and ledger.retention is not None
        folder = replace(folder, is_stream=folder.is_stream or (retains and bool(folder.segments)))
        if RETAIN in self.steps and retains:
            whole = whole.plus(await self._try(RETAIN, folder.path, self._retain))
        calls = [partial(self.segment, path, ledger) for path in folder.segments]
        if COLLECT in self.steps and folder.is_stream:
            calls.append(partial(self.segment, names.ledger_path(folder.path), ledger))
        each = await self.client.runtime.gather(calls, SEGMENTS_AT_ONCE_MAX)
        if not folder.is_stream:
            return [whole, *each] if whole.failed else list(each)
        for one in each:
            whole = whole.plus(one)
        return [whole]

    async def segment(self, path: str, ledger: Ledger | None) -> Upkept:
        """Do the steps to a segment, or collect the memory of a stream, unless it is idle.

        Parameters
        ----------
        ledger
            That of the folder in which it lies, resolved; without, nothing is done but collection.
        """
        result = Upkept(path, is_stream=False)
        if self._rests_now(path, ledger):
            return result
        if not names.is_ledger(path) and ledger is not None:
            if ROLL in self.steps:
                result = result.plus(await self._try(ROLL, path, partial(self._roll, ledger)))
            if CONSOLIDATE in self.steps:
                result = result.plus(await self._try(CONSOLIDATE, path, self._consolidate))
            if OFFLOAD in self.steps:
                result = result.plus(await self._try(OFFLOAD, path, partial(self._offload, ledger)))
        if COLLECT in self.steps:
            result = result.plus(await self._try(COLLECT, path, self._collect))
        if result.is_idle and ledger is not None:
            self._let_rest(path, ledger)
        return result

    def _rests_now(self, path: str, ledger: Ledger | None) -> bool:
        """Whether a look has found nothing to do, and nothing asks for another yet."""
        rest = self._rests.get(path)
        if rest is None or ledger is None or rest.token != self._tree.tokens.get(path):
            return False
        return rest.policies == _policies(ledger) and self.client.store.now_ms() < rest.until_s * 1000

    def _let_rest(self, path: str, ledger: Ledger) -> None:
        """Note that a look has found nothing to do."""
        seen, token = self.client.headers.seen(path), self._tree.tokens.get(path)
        header = None if seen is None or seen.token != token else seen.header
        if token is None or header is None or header.drops or header.must_settle or header.phase is Phase.MERGING:
            return
        now_s = self.client.store.now_ms() / 1000
        asked = Asked.by(policies_of(path, header, ledger, self.client.offload_policy).offload)
        times = [now_s + LOOK_AGAIN_S, *_due_s(header, None if asked is None else asked.chosen.after_age_s)]
        if header.deleted:
            times.append(header.modified_ms / 1000 + (GRACE_S if self.grace_s is None else self.grace_s))
        self._rests[path] = _Rest(token, _policies(ledger), min(one for one in times if one > now_s))

    async def _try(self, verb: str, path: str, step: Callable[[str], Awaitable[Upkept]]) -> Upkept:
        """Do a step to a stream or segment, unless the caller has stopped; an error is part of the result."""
        if self.is_stopped():
            return Upkept(path, is_stream=False, is_cut_short=True)
        try:
            return await step(path)
        except FileNotFoundError:
            return Upkept(path, is_stream=False)  # deleted or replaced meanwhile
        except (OSError, ValueError) as error:
            return _failure(path, verb, path, error)

    async def _retain(self, path: str) -> Upkept:
        did = await StreamVerbs(self.client, self.listings, path).retain()
        failed = {f"{RETAIN} {segment}": reason for segment, reason in did.failed.items()}
        return Upkept(path, is_stream=True, dropped_bytes=did.bytes, deleted=did.deleted, failed=failed)

    async def _roll(self, ledger: Ledger, path: str) -> Upkept:
        """Give a segment what its folders say of it now, and make a chunk of its tail if that is too old."""
        loaded = await self.client.headers.load(path)
        header = loaded.header
        if not loaded.live or header is None or header.phase is Phase.MERGING:
            return Upkept(path, is_stream=False)
        fields = {**self.dropped, **ledger.rolling}
        if header.policy.inheriting(fields) != header.policy:
            header = await self.client.segments.change(
                path,
                lambda found: replace(found, policy=found.policy.inheriting(fields)),
                Guard(header.segment, header.epoch if header.owner is not None else None),
            )
        is_due = is_aged(header, self.client.store.now_ms())
        if is_due:
            await Roller(self.client.commits).roll(path, header.segment)
        return Upkept(path, is_stream=False, rolled=int(is_due))

    async def _consolidate(self, path: str) -> Upkept:
        loaded = await self.client.headers.load(path)
        if not loaded.live or loaded.header is None:
            return Upkept(path, is_stream=False)
        view = Snapshot(path, loaded.header, loaded.token)
        worn = (path,) if loaded.header.policy.consolidate and await is_worn(self.client.fetcher, view) else ()
        result = Upkept(path, is_stream=False, worn=worn)
        consolidator = Consolidator(self.client.commits, self.client.fetcher)
        did = await consolidator.keep(path, loaded.header, self.readers_grace_s)
        seen = self.client.headers.seen(path)
        if not did.replaced or seen is None or seen.header is None:
            return result
        appended, rewritten = seen.header.length, seen.header.rewritten
        return replace(result, consolidated=did, appended_bytes=appended, written_bytes=appended + rewritten)

    async def _offload(self, ledger: Ledger, path: str) -> Upkept:
        did = await offload_segment(self.client, path, ledger)
        return Upkept(path, is_stream=False, offloaded=did or Offloaded(), has_policy=did is not None)

    async def _collect(self, path: str) -> Upkept:
        did = await collect_segment(self.client, path, self.grace_s, seen=self._seen, named=self._named)
        return Upkept(path, is_stream=False, files=len(did.files), collected_bytes=did.bytes, young=did.young)


async def offload_segment(client: Client, path: str, ledger: Ledger | None = None) -> Offloaded | None:
    """Offload a segment as its policies say; None if none of them has a tier, or if it is a plain file.

    Parameters
    ----------
    ledger
        That of the folder in which the segment lies, if it is known.
    """
    loaded = await client.headers.load(path)
    if not loaded.live or loaded.header is None:
        return None
    ledger = await Ledgers(client).resolved(names.parent(path)) if ledger is None else ledger
    return await offload_by_policy(client, path, loaded.header, ledger)


async def collect_segment(
    client: Client, path: str, grace_s: float | None, *, dry_run: bool = False, **known: Any
) -> Collected:
    """Collect what lies in the folder of a segment, or of one that was; nothing if somebody has done it meanwhile."""
    try:
        return await client.collector.collect(path, grace_s=grace_s, dry_run=dry_run, **known)
    except FileNotFoundError:
        return Collected()


def with_rewritten(one: Upkept, rewrite: Callable[[str], int]) -> Upkept:
    """The result after its worn Parquet files were written anew; an error is part of the result."""
    for path in one.worn:
        try:
            one = replace(one, rewritten_bytes=one.rewritten_bytes + rewrite(path))
        except (OSError, ValueError, ImportError) as error:
            one = one.plus(_failure(path, "rewrite", path, error))
    return one


def _policies(ledger: Ledger) -> tuple[object, ...]:
    return ledger.rolling, ledger.offload, ledger.retention


def _due_s(header: Header, after_age_s: float | None) -> list[float]:
    """The times from which a policy may ask for something, though nothing changes, in seconds since 1970."""
    times = []
    if header.tail and header.policy.max_age is not None:
        times.append(header.tail_at_ms / 1000 + header.policy.max_age)
    if after_age_s is not None:
        hot = [one for one in header.entries if isinstance(one, Page) or not one.tier]
        # of the chunks that an index page lists, only the time is known by which all of them were written
        dates = [header.modified_ms if isinstance(one, Page) else one.at_ms for one in hot]
        times += [at_ms / 1000 + after_age_s for at_ms in dates]
    return times


def _failure(path: str, verb: str, what: str, error: Exception) -> Upkept:
    logger.warning("%s: cannot %s it: %s", what, verb, error)
    return Upkept(path, is_stream=False, failed={f"{verb} {what}": str(error)})


def total(results: Sequence[Upkept]) -> Upkept:
    """All results together."""
    whole = Upkept("", is_stream=False)
    for one in results:
        whole = whole.plus(one)
    return whole
