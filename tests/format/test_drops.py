"""Drop lines: their limits, and which files the segment itself deletes for them."""

import dataclasses
import uuid

import pytest
from hypothesis import given, strategies as st

from rollingfs.format.codec import format_text
from rollingfs.format.drops import (
    drop_line,
    dropped_chunks,
    drops_of,
    is_deletable,
    is_due,
    led_to,
    merge_drops,
    shed_drops,
)
from rollingfs.format.header import DROPS_MAX, Chunk, Commit, Drop, Header, Page

EMPTY = Header(str(uuid.UUID(int=7)), 1)
NOW_MS = 1_795_168_800_000


@given(st.lists(st.integers(0, 3), max_size=200))
def test_drop_lines_keep_a_hint_for_each_folder(kinds):
    new = [
        [
            Drop(f"f{index}", 1),
            Drop(f"index-{index}", 1, 0, 5, True),
            Drop("../a$chunks/", 1, size=10),
            Drop("./", 1, size=1),
        ][kind]
        for index, kind in enumerate(kinds)
    ]
    merged = merge_drops(new[:50], new[50:])
    assert len(merged) <= DROPS_MAX
    assert {drop.file: drop.size for drop in merged if drop.is_hint} == {
        file: sum(drop.size for drop in new if drop.file == file)
        for file in {drop.file for drop in new if drop.is_hint}
    }
    pages = [drop for drop in new if drop.is_page]
    assert [drop for drop in merged if drop.is_page] == pages[: DROPS_MAX - sum(drop.is_hint for drop in merged)]
    if len({drop.file for drop in new}) <= DROPS_MAX:
        assert {drop.file for drop in merged} == {drop.file for drop in new}


def test_long_drop_lines_give_way_and_hints_go_last():
    hints = [Drop(f"../{'n' * 900}{index}$chunks/", 1, size=9) for index in range(60)]
    files = [Drop(f"{index:020d}-0123456789ab", 1) for index in range(60)]
    header = dataclasses.replace(EMPTY, drops=merge_drops(files, hints))
    assert header.drops == (*hints, *files)
    for over in (1, 1000, 5000, 30_000):
        shed = shed_drops(header, over)
        assert len(format_text(header)) - len(format_text(shed)) >= over
        assert shed.drops == header.drops[: len(shed.drops)]


@pytest.mark.parametrize(
    ("file", "is_deleted"),
    [("own", True), ("stage-own", False), ("x$chunks/foreign", False), ("../y/x$chunks/far", False)],
)
def test_a_segment_deletes_its_own_unstaged_chunks(file, is_deleted):
    assert is_deletable(file) == is_deleted
    chunk = Chunk(0, 5, file, None, NOW_MS)
    drop = drop_line(chunk, NOW_MS)
    assert drop.is_hint == (not is_deleted)
    assert dropped_chunks("s", drop) == [f"s$chunks/{file}"] * is_deleted
    page = Drop("index-1", NOW_MS, 0, 5, whole=True)
    assert dropped_chunks("s", page, [chunk]) == [f"s$chunks/{file}"] * is_deleted


def test_a_crossed_page_leads_collections_to_foreign_chunks():
    files = ("own", "../b/x$chunks/far", "../b/x$chunks/later")
    listed = tuple(Chunk(5 * nth, 5, file, None, NOW_MS) for nth, file in enumerate(files))
    page = Page(0, 15, "index-1", 3, 1, 100, 0, 2)
    assert list(drops_of(page, 0, 10, NOW_MS, {page: listed})) == [
        Drop("index-1", NOW_MS, 0, 10),
        drop_line(listed[1], NOW_MS),
    ]
    assert drop_line(listed[1], NOW_MS) == Drop("../b/x$chunks/", NOW_MS, size=5)


def test_a_line_for_a_foreign_file_ends_in_time():
    protecting = Drop("x$chunks/chunk", NOW_MS, after_ms=NOW_MS + 5)
    assert not is_due(protecting, NOW_MS + 4)
    assert is_due(protecting, NOW_MS + 5)
    assert dropped_chunks("s", protecting) == [], "the collection of its own folder deletes it"
    assert not is_due(Drop("x$chunks/index-1", NOW_MS, 0, 5, after_ms=NOW_MS), NOW_MS)
    assert not is_due(Drop("x$chunks/", NOW_MS, size=5, after_ms=NOW_MS), NOW_MS)


def test_an_older_releases_carried_commit_leads_to_own_folder():
    own, carried = Commit("w", 1, 1), Commit("w", 1, 1, offset=0)
    assert led_to("/a/log", dataclasses.replace(EMPTY, commits=(own,))) == set()
    assert led_to("/a/log", dataclasses.replace(EMPTY, commits=(carried,))) == {"/a/log$chunks"}
