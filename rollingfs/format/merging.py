"""Changes of concat and rename to the headers of sources and target. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rollingfs.errors import SegmentNotSealedError, worded
from rollingfs.format import names, tokens
from rollingfs.format.drops import OWN_HINT, is_own, led_to, with_hints
from rollingfs.format.header import (
    MARKS_BYTES_MAX,
    MARKS_MAX,
    Adopted,
    Entry,
    Header,
    Merge,
    MergeOutcome,
    Phase,
    Tier,
    changed,
)
from rollingfs.format.transitions import Guard, MarksFullError, check, create, tombstone

# -- sources -------------------------------------------------------------------------------------------------

PARQUET, ARROW_STREAM = "parquet", "arrow-stream"
"""Formats whose files a concat makes one file of."""


def with_tiers(header: Header, tiers: Iterable[Tier]) -> Header:
    """Add the lines of tiers that entries of other segments name; a tier that has a line keeps it.

    Raises
    ------
    ValueError
        There are too many.
    """
    added = {tier.alias: tier for tier in tiers if header.tier(tier.alias) is None}
    return replace(header, tiers=(*header.tiers, *added.values())) if added else header


def check_source(header: Header | None, name: str, *, sealed: bool, segment: str | None = None) -> Header:
    """Return the header, if it may be merged into another; with `segment`, if it is of this incarnation.

    Raises
    ------
    SegmentNotSealedError
        It is open, and `sealed` asks for a sealed segment.
    """
    found = check(header, Guard(segment), name)
    if sealed and found.phase is not Phase.SEALED:
        raise not_sealed(name)
    return found


def check_other(header: Header | None, marks: Sequence[MergeOutcome], name: str) -> None:
    """Refuse a segment that the move has marked under another name.

    For instance, a link leads to its folder.

    Raises
    ------
    ValueError
        It is that segment.
    """
    merge = header.merge if header is not None else None
    if merge is not None and any(mark.txn == merge.txn for mark in marks):
        raise ValueError(f"{name} is the same segment as another that is named here, by another way; nothing was moved")


def not_sealed(name: str) -> SegmentNotSealedError:
    """Return the error for a source that still takes bytes."""
    return SegmentNotSealedError(
        f"{name} is not sealed; {worded('seal')} it before concat, so that no append is lost; nothing was joined"
    )


def mark_merging(header: Header, merge: Merge) -> Header:
    """Freeze a source: its map, start and drops stay as they are until the mark is resolved."""
    return changed(header, phase=Phase.MERGING, merge=merge)


def is_merging(header: Header | None, txn: str) -> bool:
    """Return whether this is the header of a source that is still bound to a transaction."""
    return header is not None and header.merge is not None and header.merge.txn == txn


def unmark(header: Header) -> Header:
    """Give a source its prior state back, after its transaction was aborted in the target."""
    assert header.merge is not None
    return replace(header, phase=header.merge.prior, merge=None)


def bury(header: Header, txn: str) -> Header:
    """Return the tombstone of a merged source; its own drops stay."""
    return replace(tombstone(header, merged=txn), drops=header.drops)


# -- the target ----------------------------------------------------------------------------------------------


def renamed(
    source: Header,
    entries: Sequence[Entry],
    base: Header | None,
    mark: MergeOutcome,
    incarnation: str,
    adopted: Adopted | None,
    now_ms: int,
) -> Header:
    """Return the header of a rename's target: a new incarnation with the source's fields.

    It lacks the fields of the source's own file.

    Parameters
    ----------
    entries
        Entries of the source, as the target refers to them.
    base
        The present header of the target's path. Its content becomes `Drop`.
    adopted
        The plain file that the target hides.
    """
    assert source.merge is not None
    fresh = create(base, incarnation, source.policy, now_ms, adopted)
    return replace(
        source,
        segment=incarnation,
        version=fresh.version,
        phase=source.merge.prior,
        merge=None,
        epoch=max(source.epoch, base.epoch if base else 0) + 1,
        owner=None,
        entries=tuple(entries),
        commits=fresh.commits,
        evicted=fresh.evicted,
        turn=None,
        drops=fresh.drops,
        tiers=with_tiers(fresh, source.tiers).tiers,
        adopted=fresh.adopted,
        origin=None,
        root=source.lineage,
        merges=(mark,),
        aborts=(),
    )


def with_waiting(header: Header, target: str, sources: Iterable[tuple[str, Header]], now_ms: int) -> Header:
    """Note in a target the folders of its sources' waiting files.

    An erase of the target looks there.

    A folder that an entry names needs no note: it gets one when the entry goes. The target's own folder, in which files
    may wait because the segment had this name before, needs a note for another rename.
    """
    folders = {folder for source, found in sources for folder in led_to(source, found)}
    if not folders:
        return header
    base = names.parent(target)
    named = {names.climb(base, names.parent(entry.file)) for entry in header.entries if not is_own(entry.file)}
    own = names.chunks_folder(target)
    hints = [OWN_HINT] if own in folders else []
    hints += [names.relative(base, folder) + "/" for folder in sorted(folders - {own, *named})]
    return with_hints(header, hints, now_ms)


def check_marks(header: Header, more: Sequence[MergeOutcome]) -> None:
    """Refuse marks for which a header has no room.

    Raises
    ------
    MarksFullError
        Present marks must be settled first.
    """
    old = (*header.merges, *header.aborts)
    if not old:
        return
    lines = [f"Aborted {mark.txn} {tokens.quote(mark.source)}\n".encode() for mark in (*old, *more)]
    if len(lines) > MARKS_MAX or sum(map(len, lines)) > MARKS_BYTES_MAX:
        raise MarksFullError("too many concats and renames that it takes part in are not finished")


def with_merged(header: Header, marks: Sequence[MergeOutcome], modified_ms: int = 0) -> Header:
    """Note in a target that these transactions took place, and the time of the newest change of their sources."""
    return changed(header, merges=(*header.merges, *marks), modified_ms=max(header.modified_ms, modified_ms))


def with_aborted(header: Header, mark: MergeOutcome) -> Header:
    """Note in a target that this transaction will never take place.

    Raises
    ------
    MarksFullError
        There is no room for it: the marks that are there must be settled first.
    """
    check_marks(header, [mark])
    return replace(header, aborts=(*header.aborts, mark))


def has_merged(header: Header, merge: Merge) -> bool:
    """Return whether the header of a target has this merge, in the marked incarnation."""
    return header.segment == merge.target_segment and any(mark.txn == merge.txn for mark in header.merges)


def has_aborted(header: Header, txn: str) -> bool:
    return any(mark.txn == txn for mark in header.aborts)


def settle(header: Header, marks: Iterable[MergeOutcome]) -> Header:
    """Forget marks whose sources are not merging in their transactions any more."""
    gone = set(marks)
    return replace(
        header,
        merges=tuple(mark for mark in header.merges if mark not in gone),
        aborts=tuple(mark for mark in header.aborts if mark not in gone),
    )
