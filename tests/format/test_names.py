"""Names on the backend: every legal name works, and every reference leads back to its file and to no other."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from tests.support.strategies import PARTS, references

PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
ROOTS = st.sampled_from(["", "/"])


REFUSED = {
    "is empty": [""],
    "ends in '/'": ["a/"],
    "empty, '.' or '..'": [".", "a//b", "a/./b", "/a/../b", "https://host//a", "https://host/../a", "a/b://c", "://a"],
    "reserved": ["a$header", "a$chunks", "a$chunks/b", "a$chunksx/b"],
    "line break": ["a\nb", "a\rb"],
    "NUL": ["a\0b"],
    "Unicode": ["a\ud800"],
}


@pytest.mark.parametrize(("name", "why"), [(name, why) for why, found in REFUSED.items() for name in found])
def test_a_reserved_or_impossible_name_is_refused_with_the_reason(name, why):
    with pytest.raises(ValueError, match=why):
        names.check_segment_name(name)


def test_listings_hide_headers_and_chunk_folders_and_nothing_else():
    hidden = [name for name in ("a", "a$header", "a$chunks", "a$x", "$header", "issue4591$x") if names.is_hidden(name)]
    assert hidden == ["a$header", "a$chunks", "$header"]


@given(ROOTS, PATHS, PATHS, st.sampled_from(["f", "stage-1", "index-1"]))
def test_every_file_in_a_chunk_folder_can_be_referred_to_from_every_segment(root, segment, other, file):
    segment, path = root + segment, f"{names.chunks_folder(root + other)}/{file}"
    reference = names.relate(segment, path)
    names.check_reference(reference)
    assert names.resolve(segment, reference) == path
    assert ("/" in reference) == (segment != root + other)


@given(ROOTS, PATHS, references())
def test_a_reference_resolves_into_a_chunk_folder_below_the_root_or_not_at_all(root, segment, reference):
    depth = len((root + segment).strip("/").split("/")) - 1
    climbs = reference.count("../")
    if climbs > depth:
        with pytest.raises(CorruptHeaderError, match="climbs above the root"):
            names.resolve(root + segment, reference)
        return
    path = names.resolve(root + segment, reference)
    assert posixpath.dirname(path).endswith(names.CHUNKS_SUFFIX)
    assert posixpath.normpath(path) == path
    assert path.startswith("/") == bool(root)


OUTSIDE = [
    *("", "/etc/passwd", "../../etc/passwd", "/x$chunks/f", "x/f", "x$header", "lock", "x$chunks/lock", "x$chunks/"),
    *("x$chunks/y$header", "x$chunks/..", "x$chunks/.", "x$chunks/../f", "x$chunks/../y$chunks/f", "a/../x$chunks/f"),
    *("./x$chunks/f", "a//x$chunks/f", "x$chunks/y$chunks/f", "$chunks/f", "../$chunks/f", "..", "../..", "x$chunks"),
]


@pytest.mark.parametrize("reference", OUTSIDE)
def test_a_reference_that_could_lead_outside_chunk_folders_is_refused(reference):
    with pytest.raises(ValueError, match=r"names|refers|plain"):
        names.check_reference(reference)
