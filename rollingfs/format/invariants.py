"""What is true of every header. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rollingfs.format.header import (
    ATTRS_BYTES_MAX,
    ATTRS_MAX,
    CARRIED_LINES_MAX,
    COMMITS_MAX,
    DROPS_MAX,
    LOOSE_CHUNKS_MAX,
    MARKS_MAX,
    OFFSET_MAX,
    TAIL_BYTES_MAX,
    TIERS_MAX,
    Chunk,
    Header,
    Page,
    Phase,
)


def check(header: Header) -> None:
    """Check the invariants of every header, before it is written and after it is read.

    Raises
    ------
    ValueError
        An invariant does not hold; the message says which.
    """
    for problem in _problems(header):
        raise ValueError(problem)


def _problems(header: Header) -> Iterator[str]:
    if header.version < 1 or header.epoch < 0 or header.evicted < 0 or header.start < 0:
        yield "a number is below its least value"
    if (header.phase is Phase.MERGING) != (header.merge is not None):
        yield "the state 'merging' and its mark do not go together"
    if header.merge is not None and header.merge.prior not in (Phase.OPEN, Phase.SEALED):
        yield "the state before a merge must be open or sealed"
    if header.merged is not None and not header.deleted:
        yield "only a tombstone can have been merged"
    if header.deleted and (header.entries or header.tail or header.attrs or header.owner):
        yield "a tombstone has no content"
    yield from _map_problems(header)
    if header.tiers or header.drops:
        yield from _tier_problems(header)
    yield from _limit_problems(header)


def _map_problems(header: Header) -> Iterator[str]:
    if header.entries and not header.entries[0].start <= header.start < header.entries[0].end:
        yield "the start offset lies outside the first entry"
    for before, after in zip(header.entries, header.entries[1:], strict=False):
        if before.end != after.start:
            how = "overlap" if before.end > after.start else "leave a gap"
            yield f"entries {how} at offset {min(before.end, after.start)}"
    pages = [entry.file for entry in header.entries if isinstance(entry, Page)]
    if len(set(pages)) != len(pages):
        yield "an index page is named twice"
    if header.length > OFFSET_MAX:
        yield f"it is longer than {OFFSET_MAX} bytes"
    if any(line.version > header.version for line in header.commits) or header.evicted > header.version:
        yield "a commit line is newer than the header"
    if len({line.writer for line in header.commits}) != len(header.commits):
        yield "a writer has two commit lines"
    if header.asks is not None and header.asks > header.version:
        yield "the floor of asks is newer than the header"


def _tier_problems(header: Header) -> Iterator[str]:
    named = {drop.tier for drop in header.drops}
    if header.tiers:  # without any, `codec` sees by the text of the entries whether they name one
        if len({tier.alias for tier in header.tiers}) != len(header.tiers):
            yield "a tier has two lines"
        named |= {entry.tier for entry in header.entries if isinstance(entry, Chunk)}
    for alias in sorted(named - {"", *(tier.alias for tier in header.tiers)}):
        yield f"a line names the tier {alias!r}, which has no line of its own"


def _limit_problems(header: Header) -> Iterator[str]:
    attrs_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in header.attrs.items())
    limits = (
        ("loose chunks", header.loose_count, LOOSE_CHUNKS_MAX),
        ("bytes of inline tail", len(header.tail), TAIL_BYTES_MAX),
        ("drop lines", len(header.drops), DROPS_MAX),
        ("tiers", len(header.tiers), TIERS_MAX),
        ("attributes", len(header.attrs), ATTRS_MAX),
        ("bytes of attributes", attrs_bytes, ATTRS_BYTES_MAX),
        ("commit lines", len(header.commits), COMMITS_MAX + CARRIED_LINES_MAX),
        ("merge marks", len(header.merges) + len(header.aborts), MARKS_MAX),
    )
    over = (one for one in limits if one[1] > one[2])
    yield from (f"{count} {what}, but at most {limit} are allowed" for what, count, limit in over)
