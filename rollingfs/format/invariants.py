"""Invariants of every header. Pure."""

from __future__ import annotations

from itertools import pairwise

from rollingfs.format.header import (
    ALIAS,
    ATTRS_BYTES_MAX,
    ATTRS_MAX,
    CARRIED_LINES_MAX,
    COMMITS_MAX,
    DROPS_MAX,
    LOOSE_CHUNKS_MAX,
    MARKS_MAX,
    OFFSET_MAX,
    TAIL_BYTES_MAX,
    TIER,
    TIERS_MAX,
    VERSION,
    WRITER,
    Header,
    Page,
    Phase,
)


def check(header: Header, known: Header | None = None) -> None:
    """Check the invariants of every header, before it is written and after it is read.

    Parameters
    ----------
    known
        A header that was checked; if it has the same map, that is not checked again.

    Raises
    ------
    ValueError
        An invariant does not hold; the message names it.
    """
    problem = _problem(header)
    if header.entries and (known is None or known.entries is not header.entries or known.start != header.start):
        problem = problem or _map_problem(header)
    aliases = {"", *map(ALIAS, header.tiers)}
    if len(aliases) <= len(header.tiers):
        problem = problem or "a tier has two lines"
    for alias in {*map(TIER, header.entries), *map(TIER, header.drops)} - aliases:
        problem = problem or f"a line names the tier {alias!r}, which has no line of its own"
    if problem:
        raise ValueError(problem)


def _problem(header: Header) -> str | None:
    if header.version < 1 or header.epoch < 0 or header.evicted < 0 or header.start < 0:
        return "a number is below its least value"
    if (header.phase is Phase.MERGING) != (header.merge is not None):
        return "the state 'merging' and its mark do not go together"
    if header.merge is not None and header.merge.prior not in (Phase.OPEN, Phase.SEALED):
        return "the state before a merge must be open or sealed"
    is_deleted = header.phase is Phase.DELETED
    if header.merged is not None and not is_deleted:
        return "only a tombstone can have been merged"
    if is_deleted and (header.entries or header.tail or header.attrs or header.owner):
        return "a tombstone has no content"
    if header.length > OFFSET_MAX:
        return f"it is longer than {OFFSET_MAX} bytes"
    commits, version = header.commits, header.version
    if max(map(VERSION, commits), default=0) > version or header.evicted > version:
        return "a commit line is newer than the header"
    if len(set(map(WRITER, commits))) != len(commits):
        return "a writer has two commit lines"
    attrs_bytes = 0
    for key, value in header.attrs.items():
        attrs_bytes += len(key.encode()) + len(value.encode())
    for what, count, limit in (
        ("bytes of inline tail", len(header.tail), TAIL_BYTES_MAX),
        ("drop lines", len(header.drops), DROPS_MAX),
        ("tiers", len(header.tiers), TIERS_MAX),
        ("attributes", len(header.attrs), ATTRS_MAX),
        ("bytes of attributes", attrs_bytes, ATTRS_BYTES_MAX),
        ("commit lines", len(commits), COMMITS_MAX + CARRIED_LINES_MAX),
        ("merge marks", len(header.merges) + len(header.aborts), MARKS_MAX),
    ):
        if count > limit:
            return f"{count} {what}, but at most {limit} are allowed"
    return None


def _map_problem(header: Header) -> str | None:
    entries = header.entries
    if not entries[0].start <= header.start < entries[0].end:
        return "the start offset lies outside the first entry"
    for before, after in pairwise(entries):
        if before.end != after.start:
            how = "overlap" if before.end > after.start else "leave a gap"
            return f"entries {how} at offset {min(before.end, after.start)}"
    pages = [entry.file for entry in entries if isinstance(entry, Page)]
    if len(set(pages)) != len(pages):
        return "an index page is named twice"
    loose = len(entries) - len(pages)
    return f"{loose} loose chunks, but at most {LOOSE_CHUNKS_MAX} are allowed" if loose > LOOSE_CHUNKS_MAX else None
