"""The text of `$listing`: rows come back as they were, and nothing else is taken for rows."""

import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from rollingfs.format import listing_codec
from rollingfs.format.header import Adopted, Header, Merge, Phase
from rollingfs.format.listing_codec import DELETED, OPEN, OTHERS_MAX, SEALED, Row, format_rows, parse_rows, row_of
from rollingfs.policy import RollingPolicy

NUMBER = st.integers(0, 2**63 - 1)
OTHERS = st.lists(st.text(), max_size=OTHERS_MAX).map(tuple)
FIELDS = (st.text(), st.text(), st.uuids().map(str), NUMBER, st.sampled_from([OPEN, SEALED, DELETED]), *[NUMBER] * 5)
ROWS = st.lists(
    st.builds(Row, *FIELDS, OTHERS).map(
        lambda row: replace(row, start=min(row.start, row.length), length=max(row.start, row.length))
    ),
    unique_by=lambda row: row.name,
)
ROW = ["a", '"token"', "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27", 3, OPEN, 1, 2, 1, 5, 6]
HEADER = Header("7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27", 3, policy=RollingPolicy())


def packed(value):
    return zlib.compress(json.dumps(value).encode())


@given(ROWS)
def test_rows_come_back_as_they_were(rows):
    assert parse_rows(format_rows(rows)) == {row.name: row for row in rows}


BAD_ROWS = [
    *(ROW[:-1], [*ROW[:3], True, *ROW[4:]], [*ROW[:4], "merging", *ROW[5:]], [*ROW[:5], 3, 2, *ROW[7:]]),
    *([*ROW, 7], [*ROW, "a", "b", "c"]),
]
NOT_ROWS = [
    *(b"", b"nothing", format_rows([Row(*ROW)])[:-1], format_rows([Row(*ROW)]) + b"x"),
    *(zlib.compress(b"{"), zlib.compress(b"\xff"), packed([])),
    *(packed({"rollingfs-listing": 2, "rows": []}), packed({"rollingfs-listing": 1})),
    *(packed({"rollingfs-listing": 1, "rows": [row]}) for row in BAD_ROWS),
]


@pytest.mark.parametrize("data", NOT_ROWS)
def test_nothing_else_is_taken_for_rows(data):
    with pytest.raises(ValueError, match=r"not a list of rows|malformed|cut off"):
        parse_rows(data)


def test_a_bomb_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(listing_codec, "TEXT_BYTES_MAX", 1000)
    with pytest.raises(ValueError, match="too long"):
        parse_rows(zlib.compress(bytes(10_000)))


def test_the_first_of_too_many_rows_are_kept(monkeypatch):
    monkeypatch.setattr(listing_codec, "ROWS_MAX", 2)
    assert list(parse_rows(format_rows([replace(Row(*ROW), name=name) for name in "cab"]))) == ["a", "b"]


def test_a_header_with_an_unjudged_file_has_no_row():
    grave = replace(HEADER, phase=Phase.DELETED)
    assert row_of("a", HEADER, "t") == Row("a", "t", HEADER.segment, 3, OPEN, 0, 0, 0, 0, 0)
    assert row_of("a", grave, "t").state == DELETED
    assert row_of("a", replace(grave, adopted=Adopted("token", 7)), "t") is None
    assert row_of("a", replace(HEADER, adopted=Adopted("token", 7)), "t") is not None


def test_a_row_has_incarnations_unless_its_source_merges():
    renamed = replace(HEADER, root="c0ffee00-0000-4000-8000-000000000001")
    row = row_of("a", renamed, "t")
    assert (row.segment, *row.others) == renamed.incarnations
    merge = Merge("c0ffee00-0000-4000-8000-000000000002", "b", HEADER.segment, Phase.OPEN, 7)
    assert row_of("a", replace(HEADER, phase=Phase.MERGING, merge=merge), "t") is None
