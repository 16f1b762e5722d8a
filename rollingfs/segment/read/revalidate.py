"""Snapshots of readers: the store is asked for a newer header while data is read by the last."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial

from rollingfs.errors import SegmentTruncatedError
from rollingfs.format import transitions
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.read.piece_checks import PieceChecks
from rollingfs.segment.read.ranges import Fetcher, Request
from rollingfs.segment.segment import Segment, replaced

OUTDATED = (FileNotFoundError, SegmentTruncatedError)
"""The errors of a read whose snapshot is out of date."""
GONE = "What was opened here is gone: it was deleted, or another has its name; open it again"
SNAPSHOTS_MAX = 8
"""Maximum number of new snapshots of a read of a file that others go on replacing."""


class Trust(Enum):
    """Trust of a reader in a snapshot."""

    OLD = "old"
    """The store must be asked: before the first read, or during it."""
    RECENT = "recent"
    """The header was seen within the cache time. The store is asked only if a read does not find what it wants."""
    LOOKED = "looked"
    """The store was asked for this reader."""


class Current:
    """A reader's snapshot of a path, and its trust in it.

    Parameters
    ----------
    snapshot
        The snapshot that was just taken; by default unknown.
    is_bound
        Only the incarnation of the first snapshot is valid. A plain file may be written again and may be adopted, but
        the segment that is written over it is another.
    """

    snapshot: Segment | None = None
    trust = Trust.OLD
    is_bound = False

    def __init__(self, headers: Headers, path: str, snapshot: Segment | None = None, *, is_bound: bool = False) -> None:
        self.path, self._headers, self.is_bound = path, headers, is_bound
        if snapshot is not None:
            self.snapshot, self.trust = snapshot, Trust.LOOKED

    @property
    def known(self) -> Segment:
        """Return the snapshot, for a caller who knows that it was taken."""
        assert self.snapshot is not None
        return self.snapshot

    @property
    def is_of_segment(self) -> bool:
        """Return whether this is bound to a segment, so that a read that does not find it need not look again."""
        return self.is_bound and self.snapshot is not None and self.snapshot.header is not None

    def believe(self, *, old: bool = True) -> None:
        """Go by what the header cache knows.

        Parameters
        ----------
        old
            Also believe a header that was seen longer ago than the cache time.

        Raises
        ------
        FileNotFoundError
            This is bound to an incarnation, which is gone.
        """
        recent = self._headers.recent(self.path)
        self.trust = Trust.OLD
        if recent is not None and (recent.live or self.is_of_segment):
            if self.snapshot is None or self.snapshot.header is not recent.header:
                self._take(recent if recent.live else None)
            self.trust = Trust.RECENT
        elif self.is_bound:
            self.advance()
        elif old and (seen := self._headers.seen(self.path)) is not None and seen.live:
            self.snapshot = seen

    async def look(self, *, fresh: bool = True) -> Segment:
        """Take a new snapshot: a request, conditional on the header seen before.

        Without a header, it takes more requests.

        Parameters
        ----------
        fresh
            Ask the store, however recently the header was seen.

        Raises
        ------
        FileNotFoundError
            The path is free, or has another incarnation than the bound incarnation.
        """
        if self.is_of_segment:
            loaded = await self._headers.look(self.path, fresh=fresh)
            found = self._take(loaded if loaded.live else None)
        else:
            found = self._take(await self._headers.view(self.path, fresh=fresh))
        self.trust = Trust.LOOKED
        return found

    def advance(self, made: Segment | None = None) -> None:
        """Go on to the newest header of this incarnation that is known, if this is bound; no request.

        Parameters
        ----------
        made
            The segment that an own commit has made.
        """
        if not self.is_bound:
            return
        known = made or self.snapshot
        bound = known.text if known is not None else None
        seen = self._headers.seen(self.path) or Segment(self.path)
        text = seen.text
        is_same = bound is not None and text is not None and text.segment == bound.segment and not text.deleted
        if is_same and (made is None or seen.version >= made.version):
            self.snapshot = seen
        elif made is not None:
            self.snapshot = made

    def _take(self, found: Segment | None) -> Segment:
        old = self.snapshot if self.is_bound else None
        if old is None:
            is_same = True
        elif old.header is not None:
            is_same = found is not None and found.header is not None and found.header.segment == old.header.segment
        else:
            is_same = found is not None and (found.header is None or found.header.was_plain)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, GONE, self.path)
        if not is_same:
            raise replaced(found)
        self.snapshot = found
        return found


Span = Callable[[Segment], tuple[int, int]]
"""The segment offsets that a caller wants of a snapshot; may raise the error of a range outside of it."""
Wanted = tuple[Current, Span]


class RevalidatingReads:
    """Several reads at once, by snapshots that may be out of date.

    1. A snapshot that is `OLD` is looked at again: with a header over an async backend in parallel with the data, else
       before the data. So an unchanged header costs no time, and never more than a request.
    2. Data of a header that has changed stays if the new header has the same incarnation, and the same offsets
       are wanted of it: these bytes never change. Else it is read again.
    3. If a read fails because its snapshot is out of date, a new snapshot is taken and all reads of that path are
       repeated, at most `looks_max` times.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        wanted: Sequence[Wanted],
        *,
        looks_max: int = SNAPSHOTS_MAX,
        limit: int | None = None,
        checks: PieceChecks | None = None,
        verify: bool = False,
    ) -> None:
        self._fetcher = fetcher
        self._wanted = wanted
        self._looks_max = looks_max
        self._read_many = partial(fetcher.read_many, limit=limit, checks=checks, verify=verify)
        self._errors: dict[Current, OSError] = {}
        """The errors of looks that failed."""
        self._asked: list[Request | Exception] = []
        self._answers: list[bytes | Exception] = [b""] * len(wanted)

    async def run(self) -> list[bytes | Exception]:
        """Return the bytes of each read, or the error that it raises."""
        self._asked = self._requests()
        old = self._old()
        again: Sequence[int] = await self._begin(old) if old else range(len(self._wanted))
        for looks in range(self._looks_max + 1):
            await self._read(again)
            gone = self._gone()
            if not gone or looks == self._looks_max:
                break
            await self._look(gone)
            self._asked = self._requests()
            again = [number for number, (current, _) in enumerate(self._wanted) if current in gone]
        return self._answers

    def _old(self) -> dict[Current, None]:
        """Return the paths to look at first, also if recent snapshots lack bytes."""
        old: dict[Current, None] = {}
        for (current, _), asked in zip(self._wanted, self._asked, strict=True):
            if current.trust is Trust.OLD or (isinstance(asked, Exception) and current.trust is Trust.RECENT):
                old[current] = None
        return old

    async def _begin(self, old: Iterable[Current]) -> Sequence[int]:
        """Look at old snapshots, and read in parallel; return the remaining reads."""
        numbers = range(len(self._wanted))
        is_beside = self._fetcher.backend.is_async and all(
            current.snapshot is not None and current.snapshot.header is not None for current in old
        )
        if not is_beside:
            await self._look(old)
            self._asked = self._requests()
            return numbers
        before = self._asked
        await self._fetcher.runtime.gather([partial(self._look, old), partial(self._read, numbers)], 2)
        self._asked = self._requests()
        return [number for number in numbers if not _holds(before[number], self._asked[number], self._answers[number])]

    def _requests(self) -> list[Request | Exception]:
        errors = self._errors
        return [errors[current] if current in errors else _request(current, span) for current, span in self._wanted]

    async def _look(self, currents: Iterable[Current]) -> None:
        calls = [partial(self._look_at, current) for current in currents]
        await self._fetcher.runtime.gather(calls, self._fetcher.backend.capability.requests_max)

    async def _look_at(self, current: Current) -> None:
        try:
            await current.look()
        except OSError as error:  # the answer to each read of this path
            self._errors[current] = error

    async def _read(self, numbers: Sequence[int]) -> None:
        asked = [self._asked[number] for number in numbers]
        requests = [one for one in asked if not isinstance(one, Exception)]
        found = iter(await self._read_many(requests) if requests else ())
        for number, one in zip(numbers, asked, strict=True):
            self._answers[number] = one if isinstance(one, Exception) else next(found)

    def _gone(self) -> set[Current]:
        """Return the paths whose snapshot was out of date, so that another look may help."""
        pairs = zip(self._wanted, self._answers, strict=True)
        gone = {current for (current, _), answer in pairs if isinstance(answer, OUTDATED)}
        return {current for current in gone if current not in self._errors and not current.is_of_segment}


def _request(current: Current, span: Span) -> Request | Exception:
    snapshot = current.snapshot  # other threads may move it on
    if snapshot is None:
        return transitions.missing(current.path)
    try:
        return snapshot, *span(snapshot)
    except OSError as error:
        return error


def _holds(before: Request | Exception, now: Request | Exception, answer: bytes | Exception) -> bool:
    """Return whether the answer by an older snapshot is valid for the newer."""
    if isinstance(before, Exception) or isinstance(now, Exception):
        return False
    (old, *span), (new, *span_now) = before, now
    if old.token == new.token:
        return True
    if isinstance(answer, Exception) or span != span_now or old.header is None or new.header is None:
        return False
    return old.header.segment == new.header.segment
