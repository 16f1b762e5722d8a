"""Hypothesis strategies for everything that a header can say."""

import dataclasses
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from rollingfs.format import invariants, names
from rollingfs.format.header import (
    OFFSET_MAX,
    PIECES_MAX,
    Adopted,
    Chunk,
    Commit,
    Drop,
    Edges,
    Entry,
    Header,
    Merge,
    MergeOutcome,
    Origin,
    Page,
    Phase,
    Tier,
)
from rollingfs.policy import INLINE_BYTES_MAX, OffloadPolicy, RollingPolicy

TIMES_MS = st.integers(-(10**12), 10**14)
FAR = st.just(0) | st.integers(0, 2**40)
CRCS = st.integers(0, 2**32 - 1)
UUIDS = st.uuids().map(str)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = TEXTS.filter(bool)
UNKNOWN_LINES = st.sampled_from(["colour blue", "hint  two blanks", "x", "mirror-of a=1 %zz", "zeit später"])


def _is_part(text: str) -> bool:
    return "$" not in text and "/" not in text and names.fault_of(text) is None


LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="/$")
PARTS = st.text(LETTERS, min_size=1, max_size=8).filter(_is_part)
FOLDERS = st.lists(PARTS, min_size=1, max_size=3)
RELATIVE = st.builds(lambda up, parts: "../" * up + "/".join(parts), st.integers(0, 3), FOLDERS)


@st.composite
def references(draw: st.DrawFn) -> str:
    """A file in the segment's own chunk folder, in a neighbour's, or further away."""
    number = draw(st.integers(0, 2**48 - 1))
    name = draw(st.sampled_from([f"{number:020d}-{number:012x}", f"stage-{number:032x}", f"index-{number:012x}"]))
    if draw(st.booleans()):
        return name
    climb = [".."] * draw(st.integers(0, 3))
    folders = draw(st.lists(PARTS, max_size=2))
    return "/".join([*climb, *folders, draw(PARTS) + names.CHUNKS_SUFFIX, name])


AGES_S = st.integers(1, 10**12).map(lambda age_ms: age_ms / 1000)
POLICIES = st.builds(
    RollingPolicy, st.integers(1, OFFSET_MAX), st.none() | AGES_S, st.integers(0, INLINE_BYTES_MAX), st.booleans()
)
OFFLOAD_FIELDS = {
    "tier": st.sampled_from(["", "cold", "a-1_b"]),
    "after_bytes": st.integers(0, OFFSET_MAX),
    "after_age": st.just(0.0) | AGES_S,
    "deletion_lag": st.just(0.0) | AGES_S,
    "block_bytes": st.integers(1, OFFSET_MAX),
    "max_delay": st.just(0.0) | AGES_S,
}
OFFLOAD_POLICIES = (
    st.fixed_dictionaries({}, optional=OFFLOAD_FIELDS).filter(bool).map(lambda fields: OffloadPolicy(**fields))
)


@st.composite
def chunks(draw: st.DrawFn, start: int, length: int) -> Chunk:
    offset = draw(FAR)
    size = offset + length + draw(FAR)
    return Chunk(start, length, draw(references()), draw(st.none() | CRCS), draw(TIMES_MS), offset, size)


@st.composite
def pages(draw: st.DrawFn, start: int, length: int) -> Page:
    count = draw(st.integers(1, 4096))
    size, skipped = draw(st.integers(1, 10**7)), draw(st.just(0) | st.integers(0, count))
    return Page(start, length, draw(references()), count, draw(CRCS), size, draw(FAR), skipped)


ALIASES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True)
TIER_KEYS = st.integers(0, 16**12 - 1).map("{:012x}".format)
TIER_IDS = st.sampled_from(["", "0d1f2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b"])
TIER_PATHS = st.sampled_from(["", "bucket/a b", "/mnt/%/ä\n"])
TIERS = st.lists(
    st.builds(Tier, ALIASES, TIER_KEYS, TIMES_MS, TIER_IDS, TIER_PATHS), unique_by=lambda tier: tier.alias, max_size=2
).map(tuple)


@st.composite
def in_tiers(draw: st.DrawFn, header: Header) -> Header:
    """The header with some of its chunks and dropped files in tiers."""
    lines = draw(TIERS)
    choose = st.sampled_from(["", *(line.alias for line in lines)])

    def placed(line: Any) -> Any:
        if isinstance(line, Page) or (isinstance(line, Drop) and (line.is_hint or line.is_page)):
            return line
        tier = draw(choose)
        if isinstance(line, Drop) or not tier:
            return dataclasses.replace(line, tier=tier)
        ends = sorted({*draw(st.lists(st.integers(1, line.size), max_size=PIECES_MAX - 1)), line.size})
        lengths = [end - start for start, end in pairwise([0, *ends])]
        pieces = tuple((length, draw(st.integers(0, 2**32 - 1))) for length in lengths)
        moved_ms, kept = draw(st.just(0) | TIMES_MS), draw(st.booleans())
        return dataclasses.replace(line, tier=tier, moved_ms=moved_ms, pieces=pieces if kept else ())

    drops = tuple(map(placed, header.drops))
    return dataclasses.replace(header, tiers=lines, entries=tuple(map(placed, header.entries)), drops=drops)


KINDS = st.sampled_from(["", "data", "lines", "open", "text", "newer"])
EDGES = st.builds(Edges, st.integers(0, OFFSET_MAX), KINDS, st.integers(0, OFFSET_MAX), KINDS)


@st.composite
def entry_maps(draw: st.DrawFn, at: int) -> tuple[Entry, ...]:
    """Contiguous entries, pages and chunks mixed, from `at` on."""
    found: list[Entry] = []
    for length in draw(st.lists(st.integers(1, 2**40), max_size=5)):
        seen = {one.file for one in found if isinstance(one, Page)}  # a header names a page once
        entry = st.one_of(chunks(at, length), pages(at, length))
        found.append(draw(entry.filter(lambda one, seen=seen: isinstance(one, Chunk) or one.file not in seen)))
        at += length
    return tuple(found)


@st.composite
def drops(draw: st.DrawFn) -> Drop:
    """One of each kind: a file, part of a page, a whole page, a hint."""
    file, at_ms = draw(references()), draw(TIMES_MS)
    after_ms = draw(st.just(0) | st.integers(1, 10**13))
    kind = draw(st.sampled_from(["file", "page", "hint"]))
    if kind == "file":
        return Drop(file, at_ms, after_ms=after_ms)
    if kind == "page":
        first = draw(st.integers(0, 2**40))
        return Drop(file, at_ms, first, first + draw(st.integers(0, 2**40)), draw(st.booleans()), 0, after_ms)
    folder = draw(st.just("./") | st.just("../other$chunks/") | PARTS.map(lambda part: f"{part}$chunks/"))
    return Drop(folder, at_ms, size=draw(st.integers(0, 2**50)), after_ms=after_ms)


@st.composite
def commits(draw: st.DrawFn, version: int) -> tuple[Commit, ...]:
    writers = draw(st.lists(st.uuids().map(lambda found: found.hex), unique=True, max_size=4))
    count = draw(st.integers(0, len(writers)))  # so many have committed themselves, the others were carried
    offsets = [None] * count + [draw(st.integers(0, 2**50)) for _ in writers[count:]]
    return tuple(
        Commit(writer, draw(st.integers(1, 10**6)), draw(st.integers(1, version)), offset)
        for writer, offset in zip(writers, offsets, strict=True)
    )


MARKS = st.lists(st.builds(MergeOutcome, UUIDS, RELATIVE), max_size=2).map(tuple)
MERGES = st.builds(Merge, UUIDS, RELATIVE, UUIDS, st.sampled_from([Phase.OPEN, Phase.SEALED]), TIMES_MS)


@st.composite
def headers(draw: st.DrawFn, *, live: bool | None = None) -> Header:
    """Any valid header: of every state, with every kind of line, perhaps with files in tiers.

    Parameters
    ----------
    live
        True for open and sealed ones only.
    """
    phase = draw(st.sampled_from([Phase.OPEN, Phase.SEALED] if live else list(Phase)))
    version = draw(st.integers(1, 2**40))
    lines = draw(commits(version))
    common = Header(
        draw(UUIDS),
        version,
        phase=phase,
        merge=draw(MERGES) if phase is Phase.MERGING else None,
        epoch=draw(st.integers(0, 2**40)),
        policy=draw(POLICIES),
        offload=draw(st.none() | OFFLOAD_POLICIES),
        commits=lines,
        evicted=draw(st.just(0) | st.integers(0, version)),
        turn=draw(st.none() | WORDS),
        drops=tuple(draw(st.lists(drops(), max_size=4))),
        adopted=draw(st.none() | st.builds(Adopted, TEXTS, TIMES_MS)),
        origin=draw(st.none() | st.builds(Origin, UUIDS, TIMES_MS)),
        root=draw(st.none() | UUIDS),
        created_ms=draw(TIMES_MS),
        modified_ms=draw(TIMES_MS),
        unknown=tuple(draw(st.lists(UNKNOWN_LINES, max_size=2))),
    )
    if phase is Phase.DELETED:
        found = dataclasses.replace(common, merged=draw(st.none() | UUIDS))
    else:
        at = draw(st.just(0) | st.integers(0, 2**50))
        entries = draw(entry_maps(at))
        tail = draw(st.binary(max_size=64))
        tail_at_ms = draw(TIMES_MS) if tail else 0
        found = dataclasses.replace(
            common,
            start=at + draw(st.integers(0, entries[0].length - 1)) if entries else at,
            entries=entries,
            tail=tail,
            tail_at_ms=tail_at_ms,
            tail_until_ms=draw(st.none() | st.integers(tail_at_ms + 1, tail_at_ms + 10_000)) if tail else None,
            edges=draw(st.none() | EDGES),
            rewritten=draw(st.just(0) | st.integers(0, OFFSET_MAX)),
            owner=draw(st.none() | WORDS),
            attrs=draw(st.dictionaries(WORDS, TEXTS, max_size=4)),
            merges=draw(MARKS),
            aborts=draw(MARKS),
        )
    invariants.check(found)  # a strategy must not make what the format forbids
    return draw(in_tiers(found)) if draw(st.booleans()) else found
