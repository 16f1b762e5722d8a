"""Names on the backend: every legal name works, and every reference leads back to its file and to no other."""

import posixpath

import pytest
from hypothesis import given, strategies as st

from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from tests.support.strategies import PARTS, references

PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
ROOTS = st.sampled_from(["", "/"])


@pytest.mark.parametrize(
    "name",
    [
        *["a", "/a", "b/c/d", "a&b=c%20 d", "naïve-鍵", "a$b", "$chunk", "a$header.csv", "x$headers", "...", "a\tb"],
        *["https://host:80/a", "file:///a", "a:/b"],  # the paths of some stores are URLs
    ],
)
def test_any_object_name_is_a_segment_name(name):
    assert names.check_segment_name(name) == name


REFUSED = {
    "is empty": [""],
    "ends in '/'": ["a/"],
    "empty, '.' or '..'": [".", "a//b", "a/./b", "/a/../b", "https://host//a", "https://host/../a", "a/b://c", "://a"],
    "reserved": [
        *["a$header", "a$chunks", "a$chunks/b", "a$chunksx/b", "a$removed/$removed"],
        # on a disk that folds case these name our files: capitals, a long s, Kelvin's K, a ligature, a joiner
        *["a$HEADER", "a$Header", "a$Chunks", "a$CHUNKS/lock", "$REMOVED", "b/$LISTING", "$Stream"],
        *["a$chunk\u017f/b", "a$chun\u212as", "$\ufb06ream", "a$he\u200dader", "a$header\ufe0f"],
    ],
    "line break": ["a\nb", "a\rb"],
    "NUL": ["a\0b"],
    "Unicode": ["a\ud800"],
}


@pytest.mark.parametrize(("name", "why"), [(name, why) for why, found in REFUSED.items() for name in found])
def test_a_reserved_or_impossible_name_is_refused(name, why):
    with pytest.raises(ValueError, match=why):
        names.check_segment_name(name)


def test_listings_hide_headers_and_chunk_folders_and_nothing_else():
    shown = ["a", "a$x", "issue4591$x", "$stream", "$listing", "$listing2", "HEADER", "a$heade\u0301r"]
    hidden = ["a$header", "a$chunks", "$header", "a$HEADER", "A$Chunks", "$Removed", "$LISTING"]
    assert [name for name in shown + hidden if names.is_hidden(name)] == hidden


@given(ROOTS, PATHS, PATHS, st.sampled_from(["f", "stage-1", "index-1"]))
def test_every_segment_can_refer_to_every_chunk_file(root, segment, other, file):
    segment, path = root + segment, f"{names.chunks_folder(root + other)}/{file}"
    reference = names.relate(segment, path)
    names.check_reference(reference)
    assert names.resolve(segment, reference) == path
    assert ("/" in reference) == (segment != root + other)


@given(ROOTS, PATHS, PATHS, PATHS, references())
def test_a_tree_that_is_moved_whole_keeps_its_references(root, old, new, segment, reference):
    if reference.startswith("../"):
        return  # such a reference may leave the tree
    before = names.resolve(f"{root}{old}/{segment}", reference)
    after = names.resolve(f"{root}{new}/{segment}", reference)
    assert before.removeprefix(root + old) == after.removeprefix(root + new)


@given(ROOTS, PATHS, PATHS)
def test_a_relative_path_leads_back_to_its_folder(root, here, there):
    folder = names.parent(root + here)
    assert names.climb(folder, names.relative(folder, root + there)) == root + there


@given(ROOTS, PATHS, references())
def test_a_reference_resolves_into_a_chunk_folder_only(root, segment, reference):
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
def test_a_reference_outside_of_chunk_folders_is_refused(reference):
    with pytest.raises(ValueError, match=r"names|refers|plain"):
        names.check_reference(reference)


def test_a_disk_has_a_root_and_a_bucket_not():
    assert [names.parent(path) for path in ("/a/b", "/a", "a/b", "a")] == ["/a", "/", "a", ""]


def test_new_names_differ_and_say_what_they_are():
    made = {names.new_chunk_name(7) for _ in range(100)} | {names.new_staged_name() for _ in range(100)}
    made |= {names.new_index_name(2**40) for _ in range(100)}
    assert len(made) == 300
    assert all(len(name) < 40 for name in made)
    assert sum(names.is_staged(f"../x$chunks/{name}") for name in made) == 100
    assert names.new_chunk_name(67_108_864).startswith("00000000000067108864-")
    assert names.index_start(f"/a/x$chunks/{names.new_index_name(77)}") == 77
    assert names.index_start("index-5f3a9c21e0b4") is None


def test_header_folder_and_lock_belong_to_their_segment():
    header = names.header_path("d/s")
    assert (header, names.chunks_folder("d/s")) == ("d/s$header", "d/s$chunks")
    assert names.segment_of_header(header) == names.segment_of_folder("d/s$chunks") == "d/s"
    assert names.lock_path(header) == "d/s$chunks/lock"


@pytest.mark.parametrize("path", ["x://y", "../x://y", "a/../b", "../.", ""])
def test_a_relative_path_climbs_at_its_front_only(path):
    with pytest.raises(ValueError, match="is no"):
        names.check_relative_name(path)
