"""The operations on a stream, as coroutines; `fs.stream_handle.Stream` makes its methods of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rollingfs.backend.tiers import check_tier
from rollingfs.errors import ConflictError
from rollingfs.folders.info import Info, info_of_row, info_of_unreadable
from rollingfs.folders.listing import REPORT, Listings, OnError
from rollingfs.format import names
from rollingfs.format.listing_codec import Row
from rollingfs.format.policies import PolicyChange
from rollingfs.policy import OffloadPolicy
from rollingfs.segment.at import At
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.delete import delete
from rollingfs.stream import trim
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.cut_finder import take_cut
from rollingfs.stream.ledger_codec import Ledger, Published, Trim
from rollingfs.stream.members import LOOKS_MAX, Members, View
from rollingfs.stream.offload_policy import check_policy, policies_of
from rollingfs.stream.retention import RetentionPolicy
from rollingfs.stream.stream_offload import StreamOffloaded, offload_stream
from rollingfs.stream.trim import Retained, Trimmed, expected_trim, finish_trim, goals_of


class _TrimUnderWayError(Exception):
    """Internal: a new subscriber would not be heeded by this trim."""


class StreamVerbs:
    """The operations on the stream in a folder; the parameters are as of `Members`."""

    def __init__(self, client: At, listings: Listings, path: str, on_error: OnError = REPORT) -> None:
        self.client = client
        self.path = path
        self.members = Members(client, listings, path, on_error)
        self.ledgers = self.members.ledgers

    # -- the segments --------------------------------------------------------------------------------------

    async def segments(self) -> list[str]:
        """The paths of the stream's segments, sorted.

        Raises
        ------
        FileNotFoundError
            There is no such folder.
        """
        return [self.members.path_of(name) for name in (await self.members.find()).names]

    async def infos(self, paths: Iterable[str] | None = None) -> dict[str, Info]:
        """Return the infos of many segments in a batch, by path; by default of all.

        A segment that cannot be read has the size None, and the error.

        Raises
        ------
        FileNotFoundError
            A segment is not there.
        """
        members = self.members
        looks: dict[str, View | OSError]
        if paths is None:
            found = await members.find()
            looks = {members.path_of(name): found.views.get(name) or found.unreadable[name] for name in found.names}
        else:
            asked = [self.client.backend.strip(path) for path in paths]
            each = await members.listings.gather([partial(members.look, one) for one in asked])
            looks = dict(zip(asked, each, strict=True))
        infos = {path: info_of_row(path, seen) for path, seen in looks.items() if isinstance(seen, Row)}
        infos |= {path: info_of_unreadable(path, seen) for path, seen in looks.items() if isinstance(seen, OSError)}
        views = [seen for seen in looks.values() if isinstance(seen, Segment)]
        infos |= {view.path: await members.listings.info_of(view) for view in views}
        return {path: infos[path] for path in looks}

    async def size(self) -> int:
        """Bytes that the stream holds."""
        found = await self.members.find_once()
        self.members.warn(found.unreadable)
        return sum(view.size for view in found.views.values())

    async def delete(self) -> None:
        """Delete all segments of the stream, and its memory. An interrupted call may be repeated.

        Raises
        ------
        CorruptHeaderError, PermissionError
            A segment cannot be read; no segment was deleted. ``fs.rm(path, damaged=True)`` deletes such a segment.
        """
        found = await self.members.find()
        if found.unreadable:
            raise found.unreadable[min(found.unreadable)]
        ledger = names.ledger_path(self.path)
        await self.client.headers.load(ledger)  # if it cannot be read, this raises before anything is deleted
        await self.members.listings.gather([partial(self._delete, self.members.path_of(name)) for name in found.views])
        await self._delete(ledger)
        self.client.inherited.forget()

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # another client deleted it meanwhile
            await delete(self.client, path)

    # -- cuts ----------------------------------------------------------------------------------------------

    async def cut(self, at: float | None = None, align: bytes | None = None) -> StreamCut:
        """Return the present ends of the stream's segments.

        A segment that cannot be read is not in the cut; a warning in the log names it.

        Parameters
        ----------
        at
            Instead, cut before everything that may have been written after this time (seconds since 1970), as far as
            the chunks' times show.
        align
            Cut after the last of these delimiters, so that no record is cut in two.
        """
        found = await self.members.find_once()
        self.members.warn(found.unreadable)
        when = (await self.members.times(found))[1] if at is None else at
        cut, _ = await take_cut(self.members, found.views, at, align, when)
        return cut.renamed(self.members.path_of)

    async def trim(self, cut: StreamCut, dry_run: bool = False, as_bytes: bool = False) -> Trimmed:
        """Truncate every segment to its offset in a cut, and delete sealed segments that end before it.

        The trim is recorded first: the next `trim` or `retain` finishes an interrupted trim. Two kinds of segments
        stay as they are: segments that the cut does not name, or that took a name after the cut.

        Parameters
        ----------
        dry_run
            Make no change, return the result that it would have.
        as_bytes
            Cut files of formats of which no part is a file, too; a trim that others finish leaves them.

        Raises
        ------
        BadOffsetError
            The cut is before an earlier trim, or beyond the end of a segment; no byte was trimmed.
        ValueError
            The cut is of another stream, or does not name the incarnations that it means; no byte was trimmed.
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        self._check_cut(cut)
        meant = cut.renamed(self.members.name_of)
        last = await self.ledgers.load(self.path)
        found = await self.members.find_once({name for name, _ in last.columns})
        unread = {name: error for name, error in found.unreadable.items() if name in meant}
        self.members.warn(unread)
        goals = goals_of(self.members, found.views, meant)
        if dry_run:
            pending = {} if last.trim.done else last.trim.goals
            expected = await expected_trim(self.members, found.views, {**pending, **goals}, as_bytes=as_bytes)
            return replace(expected, failed=self.members.reasons(unread))
        gone = found.gone(last.columns)
        ledger = await self.ledgers.update(self.path, lambda last: last.trimmed(goals, gone, self.path))
        did = await finish_trim(self.members, ledger, as_bytes=as_bytes)
        return replace(did, failed={**self.members.reasons(unread), **did.failed})

    def _check_cut(self, cut: Any) -> None:
        _check_kind(self.path, cut, StreamCut, "the cut", "stream.cut() or StreamCut.parse(text)")

    async def cuts(self) -> list[StreamCut]:
        """The cuts that retention has kept, oldest first."""
        ledger = await self.ledgers.load(self.path)
        return [cut.renamed(self.members.path_of) for cut in ledger.cuts]

    # -- retention -----------------------------------------------------------------------------------------

    async def get_retention(self) -> RetentionPolicy | None:
        """Return the stream's own policy, or None."""
        return (await self.ledgers.load(self.path)).retention

    async def set_retention(self, policy: RetentionPolicy | None) -> None:
        """Store a policy with the stream, or remove it.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        ValueError
            The offload policy of the folder contradicts it; no byte was written.
        """
        if policy is not None:
            example = "RetentionPolicy.by_size('1GiB')"
            _check_kind(self.path, policy, RetentionPolicy, "the retention", example)
        await self.change_retention(lambda _: policy)

    async def change_retention(self, change: Callable[[RetentionPolicy | None], RetentionPolicy | None]) -> None:
        """Store what `change` makes of the policy that is there at the commit, as `set_retention` does."""
        above = await self.ledgers.above(self.path)

        def changed(found: Ledger) -> Ledger:
            policy = change(found.retention)
            stored = policy if policy is not None and policy.as_fields() else None
            return self._checked(replace(found, retention=stored), above)

        await self.ledgers.update(self.path, changed)

    async def get_offload_policy(self) -> OffloadPolicy | None:
        """Return the folder's own offload policy, or None."""
        return (await self.ledgers.load(self.path)).offload

    async def set_offload_policy(self, policy: OffloadPolicy | None) -> None:
        """Store an offload policy with the stream, or remove it.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        UnknownTierError
            The filesystem has no such tier; no byte was written.
        ValueError
            The retention of the stream contradicts it; no byte was written.
        """
        if policy is not None:
            _check_kind(self.path, policy, OffloadPolicy, "the offload policy", "OffloadPolicy('cold')")
            if policy.tier:
                check_tier(self.client.backend, policy.tier, self.path)
        stored = policy if policy is not None and policy.as_fields() else None
        above = await self.ledgers.above(self.path)
        await self.ledgers.update(self.path, lambda found: self._checked(replace(found, offload=stored), above))

    async def set_rolling(self, change: PolicyChange) -> None:
        """Change the folder's fields of the rolling policy.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        ValueError
            A value is outside its range; no byte was written.
        """
        await self.ledgers.update(self.path, lambda found: replace(found, rolling=change.of_folder(found.rolling)))

    def _checked(self, ledger: Ledger, above: Ledger) -> Ledger:
        """The ledger, if the retention and the offload policy that count go together."""
        resolved = ledger.under(above)
        policies = policies_of(self.path, None, resolved, self.client.offload_policy)
        check_policy(self.path, policies, resolved, "nothing was written")
        return ledger

    async def publish(self, subscriber: str, cut: StreamCut) -> None:
        """Record that a subscriber has read all before a cut.

        A segment counts as unread if the cut names no incarnation of it.

        Raises
        ------
        ValueError
            The subscriber has no name, or the cut is of another stream.
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        self._check_subscriber(subscriber)
        self._check_cut(cut)
        published = Published(cut.renamed(self.members.name_of), self.client.clock())
        await self._enrol(subscriber, lambda found: {**found, subscriber: published})

    async def subscribe(self, subscriber: str) -> None:
        """Become a subscriber at the start; a known subscriber keeps its position.

        Retention drops no unread byte from the moment when this returns, but for what a trim that began earlier could
        not drop yet because a segment could not be read. If it raises, do not rely on that.

        Raises
        ------
        ValueError
            The subscriber has no name.
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        CommitTimeoutError, ConflictError, AppendOutcomeUnknown
            The subscription may not be stored; it may be made again.
        """
        self._check_subscriber(subscriber)
        now = self.client.clock()
        published = Published(StreamCut({}, now, 0), now)
        await self._enrol(subscriber, lambda found: {subscriber: published, **found})

    async def _enrol(
        self, subscriber: str, change: Callable[[Mapping[str, Published]], Mapping[str, Published]]
    ) -> None:
        """Change positions of subscribers. A trim under way does not know a new subscriber, so it is finished first."""
        tried = Trim()

        def changed(found: Ledger) -> Ledger:
            if subscriber not in found.subscribers and not found.trim.done and found.trim != tried:
                raise _TrimUnderWayError
            return replace(found, subscribers=change(found.subscribers))

        for _ in range(LOOKS_MAX):
            try:
                await self.ledgers.update(self.path, changed)
            except _TrimUnderWayError:
                ledger = await self.ledgers.load(self.path)
                tried = ledger.trim
                await finish_trim(self.members, ledger)
            else:
                return
        raise ConflictError(f"{self.path}: others began {LOOKS_MAX} trims meanwhile; nothing was written, try again")

    def _check_subscriber(self, subscriber: Any) -> None:
        _check_kind(self.path, subscriber, str, "the subscriber", "'billing'")
        if not subscriber:
            raise ValueError(f"{self.path}: a subscriber needs a name; nothing was written")

    async def subscribers(self) -> dict[str, StreamCut]:
        """The cut that each subscriber has published, by name."""
        ledger = await self.ledgers.load(self.path)
        return {name: found.cut.renamed(self.members.path_of) for name, found in sorted(ledger.subscribers.items())}

    async def unsubscribe(self, name: str) -> None:
        """Forget a subscriber, if there is a subscriber of this name."""

        def change(found: Ledger) -> Ledger:
            return replace(found, subscribers={who: cut for who, cut in found.subscribers.items() if who != name})

        await self.ledgers.update(self.path, change)

    async def retain(
        self, dry_run: bool = False, *, policy: RetentionPolicy | None = None, as_bytes: bool = False
    ) -> Retained:
        """Run retention once: finish an interrupted trim, take a cut if it is time, trim.

        Parameters
        ----------
        dry_run
            Make no change, return the result that it would have.
        policy
            With `dry_run`: what this policy would do, in place of the stream's own.
        as_bytes
            As in `trim`.

        Raises
        ------
        ValueError
            The stream has no policy, or a policy is given without `dry_run`; no byte was changed.
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        if policy is not None and not dry_run:
            raise ValueError(
                f"{self.path}: only a dry run tries a policy; nothing was changed: assign it to `retention`"
            )
        run = partial(trim.retain, self.members, dry_run, policy, as_bytes)
        return await self.client.with_room(names.ledger_path(self.path), run)

    async def offload(
        self,
        tier: str | None = None,
        after_bytes: int | str | None = None,
        after_age: float | str | None = None,
        deletion_lag: float | str | None = None,
        block_bytes: int | str | None = None,
    ) -> StreamOffloaded:
        """Move chunks of every segment to a tier, as `fs.offload` does; plain files stay as they are.

        Without arguments the policy of each segment decides (`OffloadPolicy`), and a policy that cannot be carried out
        is reported for its segment. With any of these arguments, the policies do not count.

        Parameters
        ----------
        tier
            An alias among the filesystem's `tiers`; ``"cold"`` if other arguments are given.
        after_bytes, after_age
            Move only chunks before the newest `after_bytes` bytes of each segment (or text like ``"64MiB"``), or older
            than `after_age` seconds (or text like ``"7d"``). Either is enough.
        deletion_lag
            Seconds (or text like ``"4h"``, the default) for which the old files stay.
        block_bytes
            Neighbouring chunks become a file of up to this many bytes (or text like ``"64MiB"``, the default).

        Raises
        ------
        ValueError
            The lag outlives the retention, or retention trims before anything is offloaded; or the policies are to
            decide, and there is no policy. No chunk was moved.
        UnknownTierError
            The filesystem has no such tier.
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        asked = Asked.of(tier, after_bytes, after_age, deletion_lag, block_bytes)
        return await offload_stream(self.members, self.ledgers, asked)


def _check_kind(path: str, value: Any, kind: type, name: str, example: str) -> None:
    """Refuse an argument of another class.

    Raises
    ------
    TypeError
        The argument is of another class.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(
            f"{path}: {name} is {value!r}: it must be {article} {kind.__name__}, as {example}; nothing was written"
        )
