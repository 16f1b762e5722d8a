"""Reads a chunk folder and the headers that refer to it, decides which files may go, and names the reason for each."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

from rollingfs.backend.contract import FileInfo, Listing
from rollingfs.backend.contract_values import PendingUpload
from rollingfs.backend.patience import read_fitting
from rollingfs.backend.tiers import check_aliases, list_folder
from rollingfs.format import names
from rollingfs.format.drops import is_due
from rollingfs.format.header import Header, Phase, Tier
from rollingfs.format.side_files import Pin, parse_pin
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.index_pages import PageGoneError, successor
from rollingfs.segment.commit.removals import check_there, dropped_files
from rollingfs.segment.segment import Segment

logger = logging.getLogger("rollingfs")

CHUNK = "unreferenced chunk"
STAGED = "staged chunk that nobody committed"
PAGE = "unreferenced index page"
LEFTOVER = "leftover of a write that was broken off"
PROBE = "leftover of a probe of the store"
PIN = "stale pin"
DROPPED = "dropped"
PLAIN = "plain file that its segment shadows"
TOMBSTONE = "tombstone"
UPLOAD = "unfinished upload"

_BY_PREFIX = {
    names.STAGED_PREFIX: STAGED,
    names.INDEX_PREFIX: PAGE,
    names.TEMPORARY_PREFIX: LEFTOVER,
    names.PROBE_PREFIX: PROBE,
    names.PIN_PREFIX: PIN,
}
_OURS = re.compile(
    rf"[0-9]{{{names.OFFSET_DIGITS}}}-.+|({names.INDEX_PREFIX}|{names.STAGED_PREFIX}|{names.PROBE_PREFIX}"
    rf"|{names.TEMPORARY_PREFIX}).+"
)


def is_old(now: float, since: float, grace_s: float) -> bool:
    """Return whether a time `since` is as old as the grace, by the clock of the store (seconds since 1970).

    A date ahead of that clock counts as young. S3 gives its time (the `Date` of an answer) in whole seconds, so a file
    that was just written may have such a date.
    """
    return max(0.0, now - since) >= grace_s


@value_class
class Failure:
    """A segment that could not be collected (or not to its end) or a folder that could not be listed, and why."""

    path: str
    reason: str


@value_class
class Collected:
    """The files that a collection deleted (in a dry run: would delete)."""

    files: tuple[str, ...] = ()
    """Paths on the backend: chunks, pages, pins, plain files that were adopted, tombstones, unfinished uploads."""
    bytes: int = 0
    """Their sizes, together; unfinished uploads count as 0."""
    young: int = 0
    """Unreferenced files that are younger than the grace."""
    folders: tuple[str, ...] = ()
    """Chunk folders that were looked at."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """For each of the files, why it goes: ``"unreferenced chunk"``, ``"dropped"``, ``"stale pin"``, ..."""
    segments: tuple[str, ...] = ()
    """Of a whole tree: the segments that were looked at, and former segments that have only leftovers."""
    failures: tuple[Failure, ...] = ()
    """Of a whole tree: what could not be collected."""


Garbage = tuple[Sequence[FileInfo], Sequence[PendingUpload], int]
"""Of a chunk folder: the files that may go, on a disk also the folders that a probe of the store left; the unfinished
uploads that may go; and the number of further files and uploads that are only too young."""


def garbage(loose: Sequence[FileInfo], uploads: Sequence[PendingUpload], grace_s: float, now: float) -> Garbage:
    """Return the loose files and the unfinished uploads that are older than the grace.

    `now` is the store's own clock, seconds since 1970.
    """
    old = [info for info in loose if is_old(now, info.modified, grace_s)]
    abandoned = [upload for upload in uploads if is_old(now, upload.began, grace_s)]
    return old, abandoned, len(loose) - len(old) + len(uploads) - len(abandoned)


def collected(folder: str, found: Garbage) -> Collected:
    """Return garbage as the result of a collection of its folder."""
    files, uploads, young = found
    reasons = {}
    for info in files:
        name = info.path.rpartition("/")[2]
        reasons[info.path] = next((why for prefix, why in _BY_PREFIX.items() if name.startswith(prefix)), CHUNK)
    reasons |= {upload.path: UPLOAD for upload in uploads}
    return Collected(tuple(reasons), sum(info.size for info in files), young, (folder,), reasons)


def report(files: Iterable[FileInfo], reason: str) -> Collected:
    """Return files that all go for the same reason, as the result of a collection."""
    sizes = {info.path: info.size for info in files}
    return Collected(tuple(sizes), sum(sizes.values()), reasons=dict.fromkeys(sizes, reason))


@value_class
class Referrer:
    """The part of a header that matters to a folder. If two looks find the same, no file has moved in between."""

    path: str
    segment: str | None
    """Incarnation; None if there is no header."""
    phase: Phase | None
    txn: str | None
    files: frozenset[str]
    """Paths in this folder that it refers to."""
    merged: str | None = None
    """Of a tombstone: the transaction that moved its content away."""
    until: float = field(default=0.0, compare=False)
    """When the last of the files that it has dropped for readers of older snapshots may go, seconds since 1970."""

    @property
    def is_done_here(self) -> bool:
        """Whether there is a header without a reference to this folder."""
        return self.segment is not None and not self.files

    def has_kept(self, pin: Pin) -> bool:
        """Return whether the source of a pin is unchanged: the transaction did not take place and never will."""
        return self.segment == pin.incarnation and pin.txn not in (self.txn, self.merged)


@value_class
class Survey:
    """A look at a folder and at all headers that may refer to it."""

    segment: str
    """Path of the folder's own segment."""
    own: Segment
    referrers: frozenset[Referrer]
    pins: tuple[tuple[FileInfo, Pin], ...]
    """Pins, each with its file."""
    files: tuple[FileInfo, ...]
    """Chunks, pages and leftovers; neither pins nor files that rollingfs does not know."""
    now: float | None
    """The store's own clock, seconds since 1970, if its listing has it."""
    tier_uploads: tuple[PendingUpload, ...] = ()
    """Unfinished uploads in the folder's tiers."""

    @property
    def named(self) -> frozenset[str]:
        """Paths in the folder that a header refers to."""
        return frozenset(file for referrer in self.referrers for file in referrer.files)

    @property
    def kept(self) -> dict[str, Referrer]:
        """Files here that tombstones keep for readers of older snapshots, with the tombstone.

        A tombstone has no entries. Such files hold bytes that may be part of another segment now.
        """
        graves = [found for found in self.referrers if found.phase is Phase.DELETED]
        here = {info.path for info in self.files}  # a line stays until the next commit, a file does not
        return {file: found for found in graves for file in found.files & here}

    def agrees_with(self, other: Survey) -> bool:
        """Return whether two looks agree on all that matters.

        The references of the folder's own header may change, or the collection of a busy segment would never end.
        Whether it refers to garbage is checked against the very header that the collection replaces.
        """
        pins = {(info.path, pin) for info, pin in self.pins}
        same_pins = pins == {(info.path, pin) for info, pin in other.pins}
        return same_pins and self._without_own_files() == other._without_own_files()

    def _without_own_files(self) -> set[Referrer]:
        return {replace(found, files=frozenset()) if found.path == self.segment else found for found in self.referrers}

    def discharged(self) -> list[FileInfo]:
        """Return pins whose transaction is over and whose target has no reference here, or is the own segment.

        Another target that is absent discharges no pin, unless the source shows that the transaction was undone: the
        target's tree may have been moved, and may come back.
        """
        known = self.known
        return [
            info
            for info, pin in self.pins
            if known[pin.source].txn != pin.txn
            and (pin.target == self.segment or known[pin.target].is_done_here or known[pin.source].has_kept(pin))
        ]

    @property
    def known(self) -> dict[str, Referrer]:
        """The headers by the paths of their segments, with the folder's own."""
        return {referrer.path: referrer for referrer in self.referrers}

    def loose(self) -> list[FileInfo]:
        """Return files that no header refers to, however young, and pins that are discharged."""
        blocked, named = self.blocked_until(), self.named
        return [info for info in self.files if info.path not in named and info.modified > blocked] + self.discharged()

    def blocked_until(self) -> float:
        """Return the date (seconds since 1970) up to which a pinned target that cannot be found may name files."""
        known = self.known
        lost = [(info, pin) for info, pin in self.pins if known[pin.target].segment is None]
        return max((info.modified for info, pin in lost if not known[pin.source].has_kept(pin)), default=-1.0)


async def survey_folder(at: At, folder: str) -> Survey:
    """List a folder, then read its own header, its pins, and the headers that they name, sources first.

    Raises
    ------
    CorruptHeaderError
        A pin, a header or an index page cannot be read; then no file may be deleted.
    FileNotFoundError
        There is no such folder; or a page went away, because its header was just replaced.
    UnknownTierError, MissingTierError
        The folder has a tier that is not configured, or not there; then no file may be deleted.
    """
    segment = names.segment_of_folder(folder)
    try:
        listing = await at.backend.list(folder)
    except FileNotFoundError:
        header = (await at.headers.load(segment)).header
        if header is None or not header.tiers:
            raise
        listing = Listing(())  # all of its chunks lie in tiers
    pins = [await _pin(at, folder, info) for info in listing.entries if _has(info, names.PIN_PREFIX)]
    own = await at.headers.load(segment)
    referrers = [await referrer_of(at, folder, segment, own)]

    async def add(path: str) -> None:
        # durable, because files that it does not refer to may be deleted. The own header is committed before
        loaded = await at.headers.load_durable(path) if path else Segment(path)
        referrers.append(await referrer_of(at, folder, path, loaded))

    sources = {pin.source for _, pin in pins} - {segment}
    targets = {pin.target for _, pin in pins} - sources - {segment}
    for paths in (sources, targets):
        await at.each([partial(add, path) for path in sorted(paths)])
    files, uploads, now = [info for info in listing.entries if _is_ours(info)], list[PendingUpload](), listing.now
    if own.header is not None and own.header.tiers:
        more, uploads, now = await _in_tiers(at, folder, own.header.tiers, now)
        files += more
        await check_there(at, segment, own.header)  # after the lists, which may have been in vain
    return Survey(segment, own, frozenset(referrers), tuple(pins), tuple(files), now, tuple(uploads))


async def pending_uploads(at: At, folder: str) -> tuple[PendingUpload, ...]:
    """Return the unfinished uploads in a folder; [] if the store does not list them for this client."""
    if not at.backend.capability.can_list_uploads:
        return ()
    try:
        return tuple(await at.backend.list_uploads(folder))
    except PermissionError as error:
        logger.info("%s: unfinished uploads are not collected, because they cannot be listed: %s", folder, error)
        return ()


async def dropped_infos(at: At, path: str, header: Header, now_ms: int) -> list[FileInfo]:
    """Return the files in a segment's own folder that its drop lines name, except the files that stay for readers."""
    paths = set(await dropped_files(at.pages, path, [drop for drop in header.drops if is_due(drop, now_ms)]))
    aliases = sorted({names.split_tier(file)[0] for file in paths})
    listed = await list_folder(at.backend, names.chunks_folder(path), aliases)
    return [info for info in listed if info.path in paths]


async def _pin(at: At, folder: str, info: FileInfo) -> tuple[FileInfo, Pin]:
    runtime, path = at.headers.runtime, info.path
    pin = await read_fitting(at.backend, runtime, path, lambda blob: parse_pin(blob.data, folder, path))
    return info, pin


async def referrer_of(at: At, folder: str, path: str, loaded: Segment) -> Referrer:
    """Return the part of a loaded header that matters to a folder."""
    header = loaded.header
    if header is None:
        return Referrer(path, None, None, None, frozenset())
    txn = header.merge.txn if header.merge else None
    try:
        files = await at.pages.referred(path, header, folder)
    except PageGoneError as gone:
        await successor(at.headers, path, header, gone)
        raise
    until = max((drop.after_ms for drop in header.drops), default=0) / 1000
    return Referrer(path, header.segment, header.phase, txn, files, header.merged, until)


async def _in_tiers(
    at: At, folder: str, tiers: Sequence[Tier], now: float | None
) -> tuple[list[FileInfo], list[PendingUpload], float | None]:
    """List the parallel folders of a chunk folder; they look empty if a tier is not there.

    All dates are by the clock of the hot store; so is the time that is returned if an age is to be judged.

    Parameters
    ----------
    tiers
        The lines of the header that owns the folder.
    now
        The clock of the hot store, if a listing had it.

    Raises
    ------
    UnknownTierError
        A tier is not configured.
    """
    check_aliases(at.backend, tiers, folder)
    files: list[FileInfo] = []
    uploads: list[PendingUpload] = []
    for tier in tiers:
        place = names.in_tier(tier.alias, folder)
        listing = Listing(())
        with contextlib.suppress(FileNotFoundError):
            listing = await at.backend.list(place)
        left: Sequence[PendingUpload] = ()
        with contextlib.suppress(PermissionError):  # as in the hot store: the store's own rule ends them
            left = await at.backend.list_uploads(place)
        entries = [info for info in listing.entries if not info.is_folder]
        found = [info for info in entries if _is_of(info.path, tier) or _has(info, names.TEMPORARY_PREFIX)]
        pending = [one for one in left if _is_of(one.path, tier)]
        if not found and not pending:
            continue
        now = await at.backend.now(folder) if now is None else now
        there = listing.now if listing.now is not None else await at.backend.now(place)
        shift_s = now - there if there else 0.0  # without dates, nothing there is ever old
        files += [replace(info, modified=info.modified + shift_s) for info in found]
        uploads += [replace(one, began=one.began + shift_s) for one in pending]
    return files, uploads, now


def _is_of(path: str, tier: Tier) -> bool:
    """Return whether a file has the key of the segment's tier; another hot store may have the same root by mistake."""
    return names.key_of(path.rpartition("/")[2]) == tier.key


def _has(info: FileInfo, prefix: str) -> bool:
    return not info.is_folder and info.path.rpartition("/")[2].startswith(prefix)


def _is_ours(info: FileInfo) -> bool:
    name = info.path.rpartition("/")[2]
    if info.is_folder:  # on a disk, an interrupted probe left it
        return name.startswith(names.PROBE_PREFIX) and name.endswith(names.CHUNKS_SUFFIX) and info.modified > 0
    return _OURS.fullmatch(name) is not None
