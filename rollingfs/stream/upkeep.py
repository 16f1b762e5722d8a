"""Upkeep of all below a folder: retention, idle tails, consolidation, offload by policy, collection.

No failure stops the rest.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from rollingfs.folders.collect_tree import SEGMENTS_AT_ONCE_MAX, Tree, clear_marks, tree_at, tree_of
from rollingfs.format import names
from rollingfs.format.header import GRACE_S, Chunk, Header, Phase
from rollingfs.format.policies import Fields
from rollingfs.format.transitions import Guard
from rollingfs.policy import READERS_GRACE_S
from rollingfs.runtime.values import added, value_class
from rollingfs.segment.at import At
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.read.ends import is_worn
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.change import change, roll
from rollingfs.segment.verbs.collect import collect
from rollingfs.segment.verbs.consolidate import Consolidated, consolidate_by_policy
from rollingfs.segment.verbs.offload import Offloaded
from rollingfs.segment.write.append_to_header import is_aged
from rollingfs.stream.follow import offload_by_policy
from rollingfs.stream.ledger import Ledgers, policies_of
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.members import Members
from rollingfs.stream.trim import retain

logger = logging.getLogger("rollingfs")

RETAIN = "retain"
ROLL = "roll"
OFFLOAD = "offload"
CONSOLIDATE = "consolidate"
COLLECT = "collect"
STEPS = (RETAIN, ROLL, OFFLOAD, CONSOLIDATE, COLLECT)
"""In the order in which they are done to a folder. An offload joins chunks itself, so it comes before consolidation."""
LOOK_AGAIN_S = GRACE_S
"""Time for which a segment stays as it is after a look without a step, while a listing shows the same header."""
TIME_STEP_S = 0.01
"""A step that became due less than this before a look may have been missed: times are rounded to milliseconds."""


Folder = tuple[str, tuple[str, ...], bool]
"""A folder; the segments in it, also those with only leftovers, but not the memory of a stream; and whether all of its
segments are meant, and so the stream."""


class Upkeep:
    """Keeps the streams and segments below a folder by their policies, in rounds: `folders`, then `keep` of each.

    A later round leaves out idle segments: the listing shows their headers unchanged since a look found nothing
    to do. It looks at them again after `LOOK_AGAIN_S`, or when a policy may ask for something, because a crash of a
    writer may leave files that no header names. A follower lists folders and remembers idle segments by this, too.

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
        client: At,
        steps: Collection[str] = STEPS,
        *,
        grace_s: float | None = None,
        readers_grace_s: float = READERS_GRACE_S,
        dropped: Fields | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.client = client
        self.ledgers = Ledgers(client)
        self.steps = steps
        self.grace_s = grace_s
        self.readers_grace_s = readers_grace_s
        self.dropped = dropped or {}
        self.is_stopped = is_stopped
        self.tree = tree_of({})
        """The last listing."""
        self._seen: dict[str, int] = {}
        self.round = 0
        """Number of the last listing."""
        self._rests: dict[str, tuple[int, str | None, tuple[object, ...], float, float]] = {}
        """Looks at segments: the round, the token of the header, the policies of the folders, when the look began, and
        until when it counts, in seconds since 1970."""

    async def folders(self, root: str) -> list[Folder]:
        """Return the folders with segments at or below a path, sorted, or only the folder of the segment at this path.

        Raises
        ------
        FileNotFoundError
            The path does not exist.
        """
        found: dict[str, list[str]] = defaultdict(list)
        streams = set()
        tree = await tree_at(self.client, root)
        self._seen = {}
        await self.take(tree)
        if COLLECT in self.steps:
            await clear_marks(self.client, tree)  # of the round before, which has taken the last tombstones
        for path in sorted(tree.segments):
            folder = names.parent(path)
            if names.is_ledger(path):
                streams.add(folder)
            elif not names.is_hidden_segment(path):
                found[folder].append(path)
        itself = []
        if root in found.get(names.parent(root), ()):  # a segment: the policy of its folder counts, nothing else there
            itself = [(names.parent(root), tuple(found.pop(names.parent(root))), False)]
            seen = self.client.headers.seen(root)
            if seen is not None and seen.live:  # what is left of a segment hides no folder of its name
                return itself
        return itself + [(path, tuple(found[path]), True) for path in sorted({*found, *streams})]

    async def take(self, tree: Tree) -> None:
        """Begin a round with a listing: read changed policies, forget segments that are gone."""
        for path in self.tree.tokens.keys() - tree.tokens.keys():
            self._rests.pop(path, None)
        self.tree, self.round = tree, self.round + 1
        await self.ledgers.renew(tree)

    async def keep(self, folder: Folder) -> list[Upkept]:
        """Do the steps to a folder: a result for a stream, else a result for each segment in it."""
        path, segments, is_whole = folder
        whole = Upkept(path, is_stream=True)
        ledger, error = self.ledgers.by_folder.get(path), self.ledgers.errors.get(path)
        if error is not None:  # what the folder's policies are is not known: nothing is trimmed, joined or moved
            whole = replace(whole, failed={f"read the memory of {path}": str(error)})
        retention = None if ledger is None else ledger.retention
        retains = is_whole and retention is not None and not retention.keeps_all
        memory, rows = names.ledger_path(path), names.listing_path(path)
        is_stream = is_whole and (memory in self.tree.segments or (retains and bool(segments)))
        if RETAIN in self.steps and retains:
            whole = whole.plus(await self._attempt(RETAIN, path, partial(self._retain, path)))
        of_folder = {memory: is_stream, rows: is_whole and rows in self.tree.segments}
        hidden = [one for one, is_there in of_folder.items() if is_there and COLLECT in self.steps]
        each = await self.segments([*segments, *hidden], ledger)
        if not is_stream:
            shown = [one for one in each if one.path not in hidden or not one.is_idle]
            return [whole, *shown] if whole.failed else shown
        return [whole.plus(*each)]

    async def segments(self, paths: Sequence[str], ledger: Ledger | None) -> list[Upkept]:
        """Do the steps to segments of a folder, except idle segments; of a hidden segment, collect the files.

        Collection begins when no other step is under way: with a short grace, it deletes files that no header names
        yet, also in a folder of another segment.

        Parameters
        ----------
        ledger
            The ledger of the folder, resolved; without it, only collection runs.
        """
        began_s, gather = self.client.now_ms() / 1000, self.client.runtime.gather
        due = [path for path in paths if ledger is None or not self.rest_s(path, ledger)]
        done = [Upkept(path) for path in due]

        async def finish(did: Upkept) -> Upkept:
            if COLLECT in self.steps:
                did = did.plus(await self._attempt(COLLECT, did.path, partial(self._collect, did.path)))
            if did.is_idle and ledger is not None and not self.is_stopped():
                await self._let_rest(did.path, ledger, began_s)  # at once, while the cache has its header
            return did

        if ledger is not None:
            calls = [partial(self._attempt, "read", path, partial(self._by_policies, path, ledger)) for path in due]
            done = await gather(calls, SEGMENTS_AT_ONCE_MAX)
        done = await gather([partial(finish, did) for did in done], SEGMENTS_AT_ONCE_MAX)
        return list(({path: Upkept(path) for path in paths} | {did.path: did for did in done}).values())

    def rest_s(self, path: str, ledger: Ledger | None) -> float:
        """Return the time for which the last look at a segment counts; 0 if a look is due.

        Parameters
        ----------
        ledger
            As of `segments`; None if it cannot be read now.
        """
        if (rest := self._rests.get(path)) is None:
            return 0.0
        number, token, policies, since_s, until_s = rest
        now_s = self.client.now_ms() / 1000
        is_same = number == self.round or token == self.tree.tokens.get(path)
        is_same = is_same and (ledger is None or policies == _policies(ledger))
        # before the look it is where a clock went back: then all that waits for a time would wait longer
        return max(0.0, until_s - now_s) if is_same and since_s <= now_s else 0.0

    def let_rest(
        self, path: str, token: str | None, ledger: Ledger | None, since_s: float, until_s: float, number: int = 0
    ) -> None:
        """Note a look at a header that counts until a time, unless a listing shows another token.

        Parameters
        ----------
        since_s
            When the look began.
        number
            The round in which it began, whose listing is older; 0 if that listing shows this header.
        """
        self._rests[path] = number, token, () if ledger is None else _policies(ledger), since_s, until_s

    async def _let_rest(self, path: str, ledger: Ledger, began_s: float) -> None:
        """Note that a look has found no step. The next look does steps that become due during this look."""
        seen, token = self.client.headers.seen(path), self.tree.tokens.get(path)
        header = None if seen is None or seen.token != token else seen.header
        if token is None or header is None or header.drops or header.must_settle or header.phase is Phase.MERGING:
            return
        asked = Asked.by(policies_of(path, header, ledger, self.client.offload_policy).offload)
        after_s, delay_s = (None, None) if asked is None else (asked.chosen.after_age_s, asked.max_delay_s)
        waits = ([] if after_s is None else [after_s]) + ([] if delay_s is None else [(after_s or 0.0) + delay_s])
        try:
            chunks = await self.client.pages.unfold(path, header.entries) if waits else []
        except OSError as error:  # the next look says it
            logger.info("%s: looked at again in the next round: %s", path, error)
            return
        times = [began_s + LOOK_AGAIN_S, *_due_s(header, waits, chunks)]
        if header.deleted:
            times.append(header.modified_ms / 1000 + (GRACE_S if self.grace_s is None else self.grace_s))
        self.let_rest(path, token, ledger, began_s, min(one for one in times if one > began_s - TIME_STEP_S))

    async def _attempt(self, verb: str, path: str, step: Callable[[], Awaitable[Upkept]]) -> Upkept:
        """Do a step to a stream or segment, unless the caller has stopped; an error is part of the result."""
        if self.is_stopped():
            return Upkept(path)
        try:
            return await step()
        except FileNotFoundError:
            return Upkept(path)  # deleted or replaced meanwhile
        except Exception as error:  # noqa: BLE001 - whatever it is, the next segment has nothing to do with it
            return failure(path, verb, path, error)

    async def _by_policies(self, path: str, ledger: Ledger) -> Upkept:
        """Do the steps that need the header of a segment, which is loaded once."""
        result, steps = Upkept(path), {ROLL: self._roll, OFFLOAD: self._offload, CONSOLIDATE: self._consolidate}
        verbs = [verb for verb in steps if verb in self.steps and not names.is_hidden_segment(path)]
        if verbs:
            await self.client.headers.load(path)
        for verb in verbs:
            call = partial(self._by_header, steps[verb], path, ledger)
            result = result.plus(await self._attempt(verb, path, call))
        return result

    async def _by_header(self, step: Callable[..., Awaitable[Upkept]], path: str, ledger: Ledger) -> Upkept:
        """Do a step to the newest header that is known; no step to a plain file, or to a segment that is gone."""
        loaded = self.client.headers.seen(path) or await self.client.headers.load(path)
        return await step(loaded, loaded.header, ledger) if loaded.live and loaded.header else Upkept(path)

    async def _roll(self, known: Segment, header: Header, ledger: Ledger) -> Upkept:
        """Give a segment the present policies of its folders, and make a chunk of a tail that is too old."""
        path = known.path
        if header.phase is Phase.MERGING:
            return Upkept(path)
        fields = {**self.dropped, **ledger.rolling}
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
        return Upkept(path, rolled=int(is_due))

    async def _offload(self, known: Segment, header: Header, ledger: Ledger) -> Upkept:
        did = await offload_by_policy(self.client, known, ledger)
        return Upkept(known.path, offloaded=did or Offloaded(), has_policy=did is not None)

    async def _consolidate(self, known: Segment, header: Header, ledger: Ledger) -> Upkept:
        path = known.path
        is_old = header.policy.consolidate and await is_worn(self.client.fetcher, known)
        result = Upkept(path, worn=(path,) if is_old else ())
        did = await consolidate_by_policy(self.client, path, header, self.readers_grace_s)
        seen = self.client.headers.seen(path)
        if not did.replaced or seen is None or seen.header is None:
            return result
        appended, rewritten = seen.header.length, seen.header.rewritten
        return replace(result, consolidated=did, appended_bytes=appended, written_bytes=appended + rewritten)

    async def _collect(self, path: str) -> Upkept:
        did = await collect(self.client, path, grace_s=self.grace_s, seen=self._seen, named=self.tree.segments)
        return Upkept(path, files=len(did.files), collected_bytes=did.bytes, young=did.young)

    async def _retain(self, path: str) -> Upkept:
        did = await retain(Members(self.client, path))
        if did is None:  # another client has removed the policy since this one looked
            return Upkept(path, is_stream=True)
        failed = {f"{RETAIN} {segment}": reason for segment, reason in did.failed.items()}
        return Upkept(path, is_stream=True, dropped_bytes=did.bytes, deleted=did.deleted, failed=failed)


def _policies(ledger: Ledger) -> tuple[object, ...]:
    return ledger.rolling, ledger.offload, ledger.retention


def _due_s(header: Header, waits: Sequence[float], chunks: Sequence[Chunk]) -> list[float]:
    """Return the times from which a policy may ask for a step without a change, in seconds since 1970."""
    times = []
    if header.tail and header.policy.max_age is not None:
        times.append(header.tail_at_ms / 1000 + header.policy.max_age)
    dates = {one.at_ms for one in chunks if not one.tier}
    dates |= {header.tail_at_ms} if header.tail else set()
    return times + [at_ms / 1000 + wait_s for at_ms in dates for wait_s in waits]


# -- the report ---------------------------------------------------------------------------------------------------


@value_class
class Upkept:
    """Work on a stream, or on a segment outside of streams."""

    path: str
    is_stream: bool = False
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
    return Upkept(path, failed={f"{verb} {what}": str(error)})


def total(results: Sequence[Upkept]) -> Upkept:
    """Return all results together."""
    return Upkept("").plus(*results)
