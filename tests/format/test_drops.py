"""Drop lines: their limits, and which files the segment itself deletes for them."""

from hypothesis import given
from hypothesis import strategies as st

from rollingfs.format.drops import (
    drop_line,
    drops_of,
    merge_drops,
)
from rollingfs.format.header import DROPS_MAX, Chunk, Drop, Page

NOW_MS = 1_795_168_800_000


@given(st.lists(st.integers(0, 3), max_size=200))
def test_drop_lines_keep_one_hint_a_folder_pages_first_and_the_limit(kinds):
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


def test_a_page_that_a_truncation_crosses_leads_collections_to_its_foreign_chunks():
    files = ("own", "../b/x$chunks/far", "../b/x$chunks/later")
    listed = tuple(Chunk(5 * nth, 5, file, None, NOW_MS) for nth, file in enumerate(files))
    page = Page(0, 15, "index-1", 3, 1, 100, 0, 2)
    assert list(drops_of(page, 0, 10, NOW_MS, {page: listed})) == [
        Drop("index-1", NOW_MS, 0, 10),
        drop_line(listed[1], NOW_MS),
    ]
    assert drop_line(listed[1], NOW_MS) == Drop("../b/x$chunks/", NOW_MS, size=5)
