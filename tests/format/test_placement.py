"""The place of bytes and chunks: nothing is lost, no limit broken, whatever the number and the length of names."""

import dataclasses
import itertools
import math
import uuid

from hypothesis import given, settings, strategies as st

from rollingfs.format import names, placement
from rollingfs.format.codec import format_header, format_text
from rollingfs.format.drops import merge_drops, shed_drops
from rollingfs.format.header import (
    COMMITS_MAX,
    LARGE_PAGE_CHUNKS,
    LOOSE_CHUNKS_MAX,
    PAGE_CHUNKS,
    TEXT_BYTES_MAX,
    Chunk,
    Commit,
    Drop,
    Header,
    Page,
)
from rollingfs.format.transitions import STAMP_BYTES_MAX
from rollingfs.policy import RollingPolicy
from tests.support.examples import examples

AT_MS = 1_795_168_800_000
CHUNK_BYTES = 64 * 1024 * 1024


def chunk(length, file="f"):
    return Chunk(0, length, file, 1, AT_MS)


# -- arrange -------------------------------------------------------------------------------------------------

POLICIES = st.builds(RollingPolicy, st.integers(1, 120), st.none(), st.integers(0, 150))
ITEMS = st.lists(st.binary(max_size=250) | st.integers(1, 250).map(chunk), max_size=8)


def as_text(items):
    """Items as one sequence of bytes and whole entries."""
    found = []
    for item in items:
        found += list(item) if isinstance(item, bytes) else [item]
    return found


@given(st.data(), POLICIES, ITEMS, st.booleans())
def test_arrange_keeps_every_byte_in_order_within_limits(data, policy, items, spill_all):
    tail = data.draw(st.binary(max_size=policy.tail_bytes_max))
    placed, new_tail = placement.arrange(tail, items, policy, spill_all=spill_all)
    assert as_text([*placed, new_tail]) == as_text([tail, *items])
    assert all(0 < len(item) <= policy.max_bytes for item in placed if isinstance(item, bytes))
    assert len(new_tail) <= policy.tail_bytes_max
    assert not (spill_all and new_tail)
    # and makes no chunk that it need not make
    for is_spill, run in itertools.groupby(placed, lambda item: isinstance(item, bytes)):
        sizes = [len(item) for item in run] if is_spill else []
        assert len(sizes) == math.ceil(sum(sizes) / policy.max_bytes)
    fits = all(isinstance(item, bytes) for item in items) and len(tail) + sum(map(len, items)) <= policy.tail_bytes_max
    assert spill_all or placed == [] or not fits


# -- overlapping, clip, place, transplant, unfold ------------------------------------------------------------


@st.composite
def maps(draw, start_max=20):
    at = draw(st.integers(0, start_max))
    found = []
    for number, length in enumerate(draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))):
        offset = draw(st.integers(0, 3))
        found.append(Chunk(at, length, f"f{number}", 1, AT_MS, offset, offset + length + draw(st.integers(0, 3))))
        at += length
    return tuple(found)


def bytes_of(entries):
    """The file and its byte for every segment offset."""
    return {
        entry.start + index: (entry.file, entry.offset + index) for entry in entries for index in range(entry.length)
    }


@given(maps(), st.integers(-2, 80), st.integers(-2, 80))
def test_overlapping_finds_what_a_search_of_all_entries_finds(entries, start, end):
    expected = [entry for entry in entries if any(start <= at < end for at in range(entry.start, entry.end))]
    assert list(placement.overlapping(entries, start, end)) == expected


@given(maps(), st.integers(0, 1000))
def test_placed_entries_follow_each_other_and_keep_their_bytes(entries, start):
    placed = placement.place(entries, start)
    shift = start - entries[0].start
    assert bytes_of(placed) == {at + shift: byte for at, byte in bytes_of(entries).items()}


SEGMENTS = st.sampled_from(["/a", "/b", "/d/a", "/d/e/a", "/d/e/$x", "bucket/a", "bucket/d/a", "bucket/b", "a", "d/b"])


def absolute_bytes(entries, segment):
    return {at: (names.resolve(segment, file), byte) for at, (file, byte) in bytes_of(entries).items()}


@given(maps(), st.data(), SEGMENTS, SEGMENTS)
def test_transplanted_entries_name_the_same_bytes_from_the_target(entries, data, source, target):
    if source.startswith("/") != target.startswith("/"):
        return  # two stores
    start = data.draw(st.integers(entries[0].start, entries[-1].end - 1))
    end = data.draw(st.integers(start, entries[-1].end))
    moved = placement.transplant(entries, start, end, source, target)
    expected = {at: byte for at, byte in absolute_bytes(entries, source).items() if start <= at < end}
    assert absolute_bytes(moved, target) == expected
    for entry in moved:
        names.check_reference(entry.file)


@given(maps(start_max=0), st.data(), SEGMENTS, SEGMENTS)
def test_an_unfolded_page_names_the_bytes_of_its_line(listed, data, home, segment):
    if home.startswith("/") != segment.startswith("/"):
        return
    total = listed[-1].end
    offset = data.draw(st.integers(0, total - 1))
    length = data.draw(st.integers(1, total - offset))
    start = data.draw(st.integers(0, 1000))
    file = names.relate(segment, f"{names.chunks_folder(home)}/index-0123456789ab")
    page = Page(start, length, file, len(listed), 1, 100, offset)
    found = placement.unfold(page, listed, segment)
    inside = absolute_bytes(listed, home)
    assert absolute_bytes(found, segment) == {start + at: inside[offset + at] for at in range(length)}


# -- folding -------------------------------------------------------------------------------------------------


def folded(entries, plan):
    """The entries after a fold, the page that it has made, and the entries that are in it."""
    inside = entries[plan]
    count = sum(entry.count if isinstance(entry, Page) else 1 for entry in inside)
    assert 1 <= count <= LARGE_PAGE_CHUNKS
    length = inside[-1].end - inside[0].start
    page = Page(inside[0].start, length, names.new_index_name(2**40), count, 2**31, count * 120, 0, count)
    return (*entries[: plan.start], page, *entries[plan.stop :]), page, inside


class Growing:
    """A header whose map grows. It folds like `Pages.fold`, but keeps only the line of each page."""

    def __init__(self):
        version = 2**40
        commits = tuple(Commit(uuid.UUID(int=nth + 1).hex, 1, version - nth) for nth in range(COMMITS_MAX))
        self.header = Header(str(uuid.UUID(int=1)), version, commits=commits)
        self.chunks_written = 0

    def add(self, *entries):
        placed = placement.place(entries, self.header.length)
        self.header = dataclasses.replace(self.header, entries=self.header.entries + placed)
        while plan := placement.plan_fold(self.header.entries):
            self.fold(plan)
        while (over := len(format_text(self.header)) - (TEXT_BYTES_MAX - STAMP_BYTES_MAX)) > 0:
            plan = placement.plan_squeeze(self.header.entries)
            if plan is None:
                self.header = shed_drops(self.header, over)
                assert len(format_text(self.header)) <= TEXT_BYTES_MAX - STAMP_BYTES_MAX
                break
            self.fold(plan)

    def fold(self, plan):
        entries, page, inside = folded(self.header.entries, plan)
        drops = [
            Drop(entry.file, AT_MS) if "/" not in entry.file else Drop(f"{names.parent(entry.file)}/", AT_MS, size=9)
            for entry in inside
            if isinstance(entry, Page)
        ]
        self.chunks_written += page.count
        self.header = dataclasses.replace(self.header, entries=entries, drops=merge_drops(self.header.drops, drops))

    def clear_drops(self):
        """Forget the files that the commit before dropped, as every commit does."""
        self.header = dataclasses.replace(self.header, drops=tuple(drop for drop in self.header.drops if drop.is_hint))


def own_chunk():
    return chunk(CHUNK_BYTES, f"{2**62:020d}-0123456789ab")


def test_the_129th_loose_chunk_moves_128_into_a_page():
    entries = placement.place([own_chunk()] * (LOOSE_CHUNKS_MAX + 1), 0)
    assert placement.plan_fold(entries[1:]) is None
    assert placement.plan_fold(entries) == slice(0, PAGE_CHUNKS)


def test_the_oldest_of_two_equal_runs_is_folded_first():
    run = [chunk(1)] * (LOOSE_CHUNKS_MAX // 2 + 1)
    page = Page(0, 1, "p", 1, AT_MS, 1, 1)
    assert placement.plan_fold([*run, page, *run]) == slice(0, len(run))


def test_the_32nd_small_page_makes_them_one_of_4096():
    growing = Growing()
    for _ in range(33):
        growing.add(*[own_chunk()] * PAGE_CHUNKS)
    assert [entry.count for entry in growing.header.entries if isinstance(entry, Page)] == [LARGE_PAGE_CHUNKS]
    assert growing.header.loose_count == PAGE_CHUNKS
    # each chunk is written into pages twice, whatever the length of the segment
    assert growing.chunks_written <= 2 * growing.header.chunk_count


def long_reference(length, number):
    """References like those into another segment far away: about `length` bytes long, and all different."""
    return f"../{'n' * (length - 60)}{number:07d}$chunks/00000000000000000000-0123456789ab"


@settings(max_examples=examples(10), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["chunk", "page"]), st.integers(1, 4096), st.sampled_from([0, 100, 1500])),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 40),
)
def test_whatever_is_added_the_limits_hold(additions, repeat):
    growing = Growing()
    for number, (_, (kind, count, length)) in enumerate(itertools.product(range(repeat), additions)):
        if growing.header.chunk_count > 10**6:
            break
        # a header names a page once, so no two of them have one name
        file = long_reference(length, number) if length else f"{number:020d}-0123456789ab"
        if kind == "page":
            growing.add(Page(0, count, file, count, 1, 100 * count))
        else:
            growing.add(*[chunk(1, file)] * min(count, 300))
        growing.clear_drops()
        assert growing.header.loose_count <= LOOSE_CHUNKS_MAX
    format_header(growing.header)


def test_a_squeeze_saves_text_or_is_not_proposed():
    own_pages = placement.place([Page(0, 9, names.new_index_name(2**40), 4096, 1, 500_000)] * 300, 0)
    assert placement.plan_squeeze(own_pages) is None
    assert placement.plan_squeeze(()) is None
    far = dataclasses.replace(own_pages[7], file=long_reference(900, 1))
    assert placement.plan_squeeze((*own_pages[:7], far, *own_pages[8:])) == slice(7, 8)
