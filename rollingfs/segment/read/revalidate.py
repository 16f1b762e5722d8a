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


async def read_current(
    fetcher: Fetcher,
    wanted: Sequence[Wanted],
    *,
    looks_max: int = SNAPSHOTS_MAX,
    limit: int | None = None,
    checks: PieceChecks | None = None,
    verify: bool = False,
) -> list[bytes | Exception]:
    """Return the bytes of several reads, or the error of each, by snapshots that may be out of date.

    1. A snapshot that is `OLD` is looked at again: with a header over an async backend in parallel with the data, else
       before the data. So an unchanged header costs no time, and never more than a request.
    2. Data of a header that has changed stays if the new header has the same incarnation, and the same offsets
       are wanted of it: these bytes never change. Else it is read again.
    3. If a read fails because its snapshot is out of date, a new snapshot is taken and all reads of that path are
       repeated, at most `looks_max` times.
    """
    errors: dict[Current, OSError] = {}
    """The errors of looks that failed."""
    answers: list[bytes | Exception] = [b""] * len(wanted)
    runtime, again = fetcher.runtime, list(range(len(wanted)))

    def requests() -> list[Request | Exception]:
        return [errors[current] if current in errors else _request(current, span) for current, span in wanted]

    async def look(currents: Iterable[Current]) -> None:
        calls = [partial(_look_at, current, errors) for current in currents]
        await runtime.gather(calls, fetcher.backend.capability.requests_max)

    async def read(asked: Sequence[Request | Exception], numbers: Sequence[int]) -> None:
        todo = [one for one in map(asked.__getitem__, numbers) if not isinstance(one, Exception)]
        found = iter(await fetcher.read_many(todo, limit, checks=checks, verify=verify) if todo else ())
        for number in numbers:
            one = asked[number]
            answers[number] = one if isinstance(one, Exception) else next(found)

    asked = requests()
    if old := _to_look_at(wanted, asked):
        if fetcher.backend.is_async and all(one.snapshot and one.snapshot.header for one in old):
            before = asked
            await runtime.gather([partial(look, old), partial(read, before, again)], 2)
            asked = requests()
            again = [number for number in again if not _holds(before[number], asked[number], answers[number])]
        else:
            await look(old)
            asked = requests()
    for looks in range(looks_max + 1):
        await read(asked, again)
        pairs = zip(wanted, answers, strict=True)
        gone = {current for (current, _), answer in pairs if isinstance(answer, OUTDATED)}
        gone = {current for current in gone if current not in errors and not current.is_of_segment}
        if not gone or looks == looks_max:
            break
        await look(gone)
        asked = requests()
        again = [number for number, (current, _) in enumerate(wanted) if current in gone]
    return answers


async def _look_at(current: Current, errors: dict[Current, OSError]) -> None:
    try:
        await current.look()
    except OSError as error:  # the answer to each read of this path
        errors[current] = error


def _to_look_at(wanted: Sequence[Wanted], asked: Sequence[Request | Exception]) -> dict[Current, None]:
    """Return the paths to look at first, also if recent snapshots lack bytes."""
    return {
        current: None
        for (current, _), one in zip(wanted, asked, strict=True)
        if current.trust is Trust.OLD or (isinstance(one, Exception) and current.trust is Trust.RECENT)
    }


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
