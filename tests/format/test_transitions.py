"""How a header changes: against models that know what every byte is and what every writer really did."""

import dataclasses
import itertools
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rollingfs.errors import (
    AttributeMismatchError,
    BadOffsetError,
    FencedError,
    SegmentNotSealedError,
    SegmentSealedError,
)
from rollingfs.format import invariants, merging, names, placement, transitions
from rollingfs.format.codec import format_header, parse_header
from rollingfs.format.drops import clear_drops, drop_all, merge_drops
from rollingfs.format.header import COMMITS_MAX, Chunk, Commit, Drop, Header, Merge, MergeOutcome, Page, Phase
from rollingfs.format.placement import Spill
from rollingfs.format.plain_file import Adopted
from rollingfs.format.transitions import Guard, MarksFullError, MergeFoundError, stamp
from rollingfs.policy import RollingPolicy
from tests.support.examples import examples
from tests.support.strategies import WORDS, full_commits, headers

SEGMENT = str(uuid.UUID(int=7))
TXN = str(uuid.UUID(int=8))
EMPTY = Header(SEGMENT, 1)
NOW_MS = 1_795_168_800_000


# -- stamp ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, COMMITS_MAX + 9), min_size=1, max_size=300))
def test_stamp_keeps_the_last_64_writers_and_the_newest_version_that_it_evicts(writers):
    header, newest = None, {}
    for version, writer in enumerate(writers, start=1):
        header = stamp(header or EMPTY, header, f"w{writer}", version, NOW_MS)
        newest[f"w{writer}"] = version
        assert header.version == version
    lines = {line.writer: line.version for line in header.commits}
    by_age = sorted(newest, key=newest.get)
    assert set(lines) == set(by_age[-COMMITS_MAX:])
    assert all(newest[writer] == version for writer, version in lines.items())
    lost = [newest[writer] for writer in by_age[:-COMMITS_MAX]]
    assert header.evicted >= max(lost, default=0)
    # never newer than the oldest line that is kept: so long, each kept line's writer can be sure of its verdict
    assert header.evicted < min(lines.values())


def test_stamp_takes_version_and_lines_from_the_base_and_not_from_the_wanted_header():
    base = dataclasses.replace(EMPTY, version=70, commits=full_commits(70), evicted=3)
    fresh = Header(str(uuid.UUID(int=9)), 1)
    found = stamp(fresh, base, "new", 1, NOW_MS)
    assert (found.version, found.evicted, found.modified_ms) == (71, 7, NOW_MS)
    assert found.commits[-1] == Commit("new", 1, 71)
    assert len(found.commits) == COMMITS_MAX


# -- checks --------------------------------------------------------------------------------------------------


def test_a_guard_is_checked_against_incarnation_epoch_offset_and_attributes():
    held = dataclasses.replace(EMPTY, epoch=3, owner="driver", attrs={"k": "1"}, tail=b"1234", tail_at_ms=1)
    fine = Guard(segment=SEGMENT, epoch=3, expected_offset=4, expected_attrs={"k": "1", "absent": None})
    assert transitions.check(held, fine, "s") is held
    replace = dataclasses.replace
    for guard, error, message in [
        (replace(fine, segment=TXN), FileNotFoundError, "opened on is gone"),
        (replace(fine, epoch=2), FencedError, "epoch 2 has passed; it is now 3"),
        (replace(fine, epoch=None), FencedError, r"held exclusively by 'driver' \(epoch 3\)"),
        (replace(fine, expected_offset=3), BadOffsetError, "expected offset 3, but its length is 4"),
        (replace(fine, expected_attrs={"k": "2"}), AttributeMismatchError, "'k' is '1', expected '2'"),
        (replace(fine, expected_attrs={"k": None}), AttributeMismatchError, "expected None"),
    ]:
        with pytest.raises(error, match=message):
            transitions.check(held, guard, "s")


def test_an_epoch_that_was_released_fences_its_old_handle():
    with pytest.raises(FencedError):
        transitions.check(dataclasses.replace(EMPTY, epoch=3), Guard(epoch=3), "s")


@pytest.mark.parametrize("header", [None, Header(SEGMENT, 2, phase=Phase.DELETED)])
def test_nothing_and_a_tombstone_are_not_found(header):
    with pytest.raises(FileNotFoundError):
        transitions.check(header, Guard(), "s")


def test_a_merging_source_asks_for_its_mark_to_be_resolved_first():
    merge = Merge(TXN, "t", SEGMENT, Phase.SEALED, NOW_MS)
    marked = merging.mark_merging(transitions.seal(EMPTY), merge)
    assert marked.sealed
    with pytest.raises(MergeFoundError):
        transitions.check(marked, Guard(), "s")
    assert merging.unmark(marked) == transitions.seal(EMPTY)


def test_only_a_sealed_source_is_merged_by_concat_and_an_open_one_by_rename():
    with pytest.raises(SegmentNotSealedError):
        merging.check_source(EMPTY, "s", sealed=True)
    assert merging.check_source(EMPTY, "s", sealed=False) is EMPTY
    with pytest.raises(SegmentSealedError, match="sealed at length 0"):
        transitions.check_open(transitions.seal(EMPTY), "s")


@given(headers(live=True))
def test_marks_are_settled_one_by_one_and_keep_a_header_from_disappearing(header):
    if header.merges or header.aborts:
        for transition in (transitions.tombstone, lambda found: transitions.create(found, TXN, RollingPolicy(), 1)):
            with pytest.raises(MarksFullError):
                transition(header)
    marks = [*header.merges, *header.aborts]
    for mark in marks:
        header = merging.settle(header, [mark])
        assert mark not in [*header.merges, *header.aborts]
    assert merging.settle(header, [MergeOutcome(TXN, "of another")]) == header
    grave = transitions.tombstone(header)
    assert grave.deleted
    invariants.check(grave)


@given(headers(live=True), WORDS)
def test_epochs_only_grow_and_a_new_incarnation_continues_version_epoch_and_commit_lines(header, owner):
    held = transitions.acquire(header, owner)
    assert (held.epoch, held.owner) == (header.epoch + 1, owner)
    released = transitions.release(held)
    assert (released.epoch, released.owner) == (held.epoch, None)
    again = transitions.acquire(released, owner)
    assert again.epoch > held.epoch
    bare = dataclasses.replace(header, merges=(), aborts=())
    made = stamp(transitions.create(bare, TXN, RollingPolicy(), NOW_MS), bare, "me", 1, NOW_MS)
    assert made.version == header.version + 1
    assert made.epoch > header.epoch
    assert {line.writer for line in header.commits} <= {line.writer for line in made.commits}
    assert (made.start, made.size, made.attrs, made.owner, made.phase) == (0, 0, {}, None, Phase.OPEN)
    format_header(made)


@pytest.mark.parametrize(
    "attrs", [{"": "x"}, {str(index): "" for index in range(65)}, {"k": "v" * 4096}, {"é" * 2048: "x"}, {"k": "\ud800"}]
)
def test_attributes_beyond_the_limits_are_refused(attrs):
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        transitions.with_attrs(EMPTY, attrs)


def test_attributes_are_merged_and_the_limit_is_of_all_together():
    found = transitions.with_attrs(transitions.with_attrs(EMPTY, {"a": "1", "b": "2"}), {"b": "3"})
    assert found.attrs == {"a": "1", "b": "3"}
    with pytest.raises(ValueError, match="66 attributes"):
        transitions.with_attrs(found, {f"k{index}": "" for index in range(64)})


def test_an_attribute_that_is_none_goes_and_the_others_keep_their_order():
    found = transitions.with_attrs(EMPTY, {"a": "1", "b": "2", "c": "3"})
    assert list(transitions.with_attrs(found, {"d": "4", "b": None, "a": "5"}).attrs.items()) == [
        ("a", "5"),
        ("c", "3"),
        ("d", "4"),
    ]
    assert transitions.with_attrs(found, {"x": None}) is found
    full = transitions.with_attrs(EMPTY, {f"k{index}": "" for index in range(64)})
    assert len(transitions.with_attrs(full, {"k0": None, "new": "x"}).attrs) == 64


@pytest.mark.parametrize("offset", [-1, 11])
def test_a_truncation_outside_the_segment_is_refused(offset):
    header = dataclasses.replace(EMPTY, tail=b"0123456789", tail_at_ms=1)
    with pytest.raises(BadOffsetError, match=rf"truncate at {offset}; it holds bytes 0 to 10"):
        transitions.truncate(header, offset, NOW_MS, {}, "s")


def test_a_tombstone_keeps_what_was_adopted_and_lines_of_newer_releases():
    header = dataclasses.replace(EMPTY, adopted=Adopted("etag", 5), unknown=("colour blue",), epoch=4)
    grave = transitions.tombstone(header, merged=TXN)
    assert (grave.adopted, grave.unknown, grave.epoch, grave.merged) == (header.adopted, header.unknown, 4, TXN)
    assert transitions.create(grave, TXN, RollingPolicy(), 1).adopted == header.adopted


# -- segments and files: a model of the whole life -----------------------------------------------------------

SMALL_POLICIES = st.builds(RollingPolicy, st.integers(1, 6), st.none(), st.integers(0, 8))
PIECES = st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=9)), min_size=1, max_size=12)
PATHS = ("d/a", "d/e/b", "c")


class Life(RuleBasedStateMachine):
    """Three segments that grow, shrink, are paged, merged and made again; a dictionary of files; what they hold.

    Files are deleted as soon as a header drops them. Whatever happens, each segment reads as the model says.
    """

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, value in {"PAGE_CHUNKS": 3, "PAGES_JOINED": 2, "LARGE_PAGE_CHUNKS": 8}.items():
            self.patch.setattr(placement, name, value)
        self.numbers = itertools.count()
        self.files = {}
        self.headers = {}
        self.contents = {}
        self.has_merged = False

    def teardown(self):
        self.patch.undo()

    def _name(self, prefix=""):
        return f"{prefix}{next(self.numbers):020d}-000000000000"

    def _store(self, path, content, prefix=""):
        name = self._name(prefix)
        self.files[f"{names.chunks_folder(path)}/{name}"] = content
        return name

    def _commit(self, path, header):
        number = next(self.numbers) + 1
        header = stamp(header, self.headers.get(path), "w", number, NOW_MS)
        assert parse_header(format_header(header), path) == header
        self.headers[path] = header
        self._finish_drops(path)

    def _finish_drops(self, path):
        """As `finish_drops`: own files only, what a page lists before the page."""
        header = self.headers[path]
        due = [drop for drop in header.drops if not drop.is_hint]
        for drop in sorted(due, key=lambda found: found.whole):
            file = names.resolve(path, drop.file)
            if not drop.is_page:
                assert not names.is_staged(drop.file)
                self.files.pop(file, None)
                continue
            for listed in self.files.get(file, ()):
                if drop.start < listed.end <= drop.end and "/" not in listed.file and not names.is_staged(listed.file):
                    self.files.pop(names.resolve(path, listed.file), None)
            if drop.whole:
                self.files.pop(file, None)
        self.headers[path] = clear_drops(header, due)

    def _unfold(self, path, entry):
        if isinstance(entry, Chunk):
            return (entry,)
        return placement.unfold(entry, self.files[names.resolve(path, entry.file)], path)

    def _extend(self, path, header, items):
        placed, tail = placement.arrange(header.tail, items, header.policy)
        entries = []
        for item in placed:
            if isinstance(item, Spill):
                file = self._store(path, item.data)
                item = Chunk(0, len(item.data), file, 1, 1)
            entries.append(item)
        return transitions.extend(header, placement.place(entries, header.tail_start), tail, NOW_MS)

    @initialize(policies=st.tuples(SMALL_POLICIES, SMALL_POLICIES, SMALL_POLICIES))
    def create(self, policies):
        for path, policy in zip(PATHS, policies, strict=True):
            self._commit(path, transitions.create(None, str(uuid.uuid4()), policy, NOW_MS))
            self.contents[path] = (0, b"")

    @rule(path=st.sampled_from(PATHS), pieces=PIECES, loose_max=st.integers(0, 6))
    def append(self, path, pieces, loose_max):
        """Bytes, and chunks that were staged, in one commit that folds."""
        items = [
            Chunk(0, len(data), self._store(path, data, names.STAGED_PREFIX), 1, 1) if is_staged else data
            for is_staged, data in pieces
        ]
        self._commit(path, self._folded(path, self._extend(path, self.headers[path], items), loose_max))
        start, content = self.contents[path]
        self.contents[path] = (start, content + b"".join(data for _, data in pieces))

    @rule(path=st.sampled_from(PATHS), share=st.integers(0, 12))
    def truncate(self, path, share):
        """By so many twelfths of what is retained."""
        header = self.headers[path]
        offset = header.start + header.size * share // 12
        pages = {page: self._unfold(path, page) for page in transitions.pages_to_truncate(header, offset)}
        self._commit(path, transitions.truncate(header, offset, NOW_MS, pages, path))
        start, content = self.contents[path]
        self.contents[path] = (offset, content[offset - start :])

    def _folded(self, path, header, loose_max):
        """As `Pages.fold`."""
        while plan := placement.plan_fold(header.entries, loose_max=loose_max):
            folded = header.entries[plan.first : plan.last]
            listed = [chunk for entry in folded for chunk in self._unfold(path, entry)]
            origin = listed[0].start
            shifted = tuple(dataclasses.replace(chunk, start=chunk.start - origin) for chunk in listed)
            file = self._store(path, shifted, names.INDEX_PREFIX)
            foreign = sum("/" in chunk.file or names.is_staged(chunk.file) for chunk in listed)
            page = Page(origin, listed[-1].end - origin, file, len(listed), 1, 1, 0, foreign)
            drops = [
                Drop(f"{names.parent(entry.file)}/", NOW_MS, size=1) if "/" in entry.file else Drop(entry.file, NOW_MS)
                for entry in folded
                if isinstance(entry, Page)
            ]
            header = dataclasses.replace(
                header,
                entries=(*header.entries[: plan.first], page, *header.entries[plan.last :]),
                drops=merge_drops(header.drops, drops),
            )
        return header

    @rule(pair=st.permutations(PATHS), loose_max=st.integers(0, 6), odds=st.integers(0, 3))
    def concat(self, pair, loose_max, odds):
        if odds:
            return  # more often, nothing would grow
        target, source = pair[:2]
        self.has_merged = True
        merged = self.headers[source]
        items = [*placement.transplant(merged.entries, merged.start, source, target), merged.tail]
        self._commit(target, self._folded(target, self._extend(target, self.headers[target], items), loose_max))
        self._commit(source, merging.bury(merged, TXN))
        start, content = self.contents[target]
        self.contents[target] = (start, content + self.contents[source][1])
        self._make_again(source)

    @rule(path=st.sampled_from(PATHS), dies_first=st.booleans(), odds=st.integers(0, 7))
    def overwrite(self, path, dies_first, odds):
        if odds:
            return
        if dies_first:
            header = self.headers[path]
            drops = drop_all(header, NOW_MS)
            self._commit(path, dataclasses.replace(transitions.tombstone(header), drops=drops))
        self._make_again(path)

    def _make_again(self, path):
        base = self.headers[path]
        self._commit(path, transitions.create(base, str(uuid.uuid4()), base.policy, NOW_MS))
        self.contents[path] = (0, b"")

    @invariant()
    def every_segment_reads_as_the_model_says(self):
        for path, (start, content) in self.contents.items():
            header = self.headers[path]
            assert (header.start, header.length) == (start, start + len(content))
            found = b""
            for entry in header.entries:
                for chunk in self._unfold(path, entry):
                    if chunk.end > start:
                        file = self.files[names.resolve(path, chunk.file)]
                        assert len(file) == chunk.size
                        found += file[chunk.offset + max(start - chunk.start, 0) : chunk.offset + chunk.length]
            assert found + header.tail == content

    @invariant()
    @precondition(lambda self: not self.has_merged)
    def what_was_dropped_is_deleted_and_nothing_else_is_left_but_staged_chunks(self):
        expected = set()
        for path, header in self.headers.items():
            for entry in header.entries:
                if isinstance(entry, Page):
                    expected.add(names.resolve(path, entry.file))
                listed = [chunk for chunk in self._unfold(path, entry) if chunk.end > header.start]
                expected.update(names.resolve(path, chunk.file) for chunk in listed)
        left = {file for file in self.files if not names.is_staged(file)}
        missed = left - expected
        # the pages with staged chunks of an overwritten segment, and what they list, are left to collection
        mixed = {
            file
            for file in missed
            if names.INDEX_PREFIX in file and any(names.is_staged(chunk.file) for chunk in self.files[file])
        }
        listed = {f"{names.parent(file)}/{chunk.file}" for file in mixed for chunk in self.files[file]}
        assert missed <= mixed | listed


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(120), stateful_step_count=20, deadline=None)
