"""The plan of a rebuild: one content or none, whatever files there are.

Rules of the protocol: P9.24 to P9.32.
"""

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings, strategies as st

from rollingfs.format import names
from rollingfs.format.crc import crc32c
from rollingfs.format.header import Chunk
from rollingfs.format.side_files import Label, Last, parse_label
from rollingfs.segment.files import rebuild_plan as known
from rollingfs.segment.files.rebuild_plan import (
    BEFORE,
    BEYOND,
    INSIDE,
    SAME,
    AmbiguousRebuildError,
    By,
    ChunkFile,
    Evidence,
    FileRange,
    Gap,
    Left,
    plan,
)
from tests.support.examples import examples

S = "/stream/a"
X, Y = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27", "c0ffee00-0000-4000-8000-000000000001"


def piece(start: int, data: bytes, name: str = "", by: By = By.NAME) -> FileRange:
    return FileRange(start, len(data), ChunkFile(name or f"{start}-{data.hex()}", len(data), crc32c(data), 0), by)


# -- one chain or none, compared with all chains of small worlds -------------------------------------------------

World = Sequence[tuple[int, bytes]]


def chains(world: World, start: int) -> Iterator[list[int]]:
    """All chains from an offset on, each until nothing goes on."""
    following = [index for index, (at, _) in enumerate(world) if at == start]
    if not following:
        yield []
    for index in following:
        for rest in chains(world, start + len(world[index][1])):
            yield [index, *rest]


def check(world: World) -> bool:
    """Compare the plan of a world with all of its chains; returns whether there is a plan."""
    pieces = [piece(at, data, f"f{index}") for index, (at, data) in enumerate(world)]
    contents = {b"".join(world[index][1] for index in chain) for chain in chains(world, 0)}
    try:
        found, _, left = plan((pieces, [], {}), 0)
    except AmbiguousRebuildError:
        assert len(list(chains(world, 0))) > 1, "one chain alone is never refused"
        return False
    by_name = {f"f{index}": data for index, (_, data) in enumerate(world)}
    assert contents == {b"".join(by_name[piece.file.path] for piece, _ in found)}
    ends = [0, *(piece.end for piece, _ in found)]
    assert ends[:-1] == [piece.start for piece, _ in found]
    named = {piece.file.path for piece, _ in found} | {one.file for one in left}
    assert named == set(by_name), "each file is part of the plan or listed"
    return True


FILES = [(at, data) for at in range(4) for data in (b"a", b"b", b"ab", b"aa", b"aab")]


@pytest.mark.parametrize(("counts", "some"), [(range(4), 100), pytest.param([4], 2000, marks=pytest.mark.slow)])
def test_small_file_sets_plan_all_their_chains_or_none(counts, some):
    worlds = (world for count in counts for world in itertools.combinations_with_replacement(FILES, count))
    outcomes = [check(world) for world in worlds]
    assert min(outcomes.count(True), outcomes.count(False)) > some


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_pieces_of_one_content_join_despite_overlaps(data):
    content = data.draw(st.binary(min_size=1, max_size=12))
    cuts = [sorted(data.draw(st.sets(st.integers(1, len(content)), max_size=4)) | {len(content)}) for _ in range(2)]
    world = []
    for ends in cuts:
        for first, last in itertools.pairwise([0, *ends]):
            world.append((first, content[first:last]))
    check(world)
    assert check(data.draw(st.permutations(world[: len(cuts[0])])))


# -- doubles, gaps, and what is left ----------------------------------------------------------------------------


def test_consolidated_chunk_equals_its_old_parts():
    parts = [piece(0, b"one"), piece(3, b"two"), piece(6, b"three")]
    whole, last = piece(0, b"onetwo", "whole"), piece(6, b"three", "again", By.PAGE)
    found, _, left = plan(([*parts, whole, last], [], {}), 0)
    assert [one.file.path for one, _ in found] == ["whole", "again"]
    assert {one.file: one.reason for one in left} == dict.fromkeys([p.file.path for p in parts], SAME)


@pytest.mark.parametrize("other", [b"onetwO", b"onetw", b"on"])
def test_doubles_with_other_bytes_are_refused_with_both_names(other):
    pieces = [piece(0, b"one", "left"), piece(3, b"two"), piece(0, other, "right")]
    with pytest.raises(AmbiguousRebuildError, match=r"offset 0.*right.*left|offset 0.*left.*right"):
        plan((pieces, [], {}), 0)


def test_same_bytes_as_only_part_of_file_prove_nothing():
    whole = piece(0, b"onetwo", "whole")
    part = FileRange(0, 3, ChunkFile("part", 10, 1, 0), By.PAGE, 2)
    with pytest.raises(AmbiguousRebuildError):
        plan(([whole, part], [], {}), 0)


def test_gap_ends_the_plan_and_other_files_are_listed():
    pieces = [piece(0, b"old"), piece(3, b"one"), piece(4, b"n", "inside"), piece(9, b"far"), piece(20, b"end")]
    found, gaps, left = plan((pieces, [], {}), 3)
    assert [(piece.start, piece.end) for piece, _ in found] == [(3, 6)]
    assert gaps == [Gap(6, 9), Gap(12, 20)]
    assert [(one.reason, one.start) for one in left] == [(BEFORE, 0), (INSIDE, 4), (BEYOND, 9), (BEYOND, 20)]


# -- evidence ----------------------------------------------------------------------------------------------------


Listed = tuple[str, Sequence[Chunk]]


def chunk_file(data: bytes, start: int | None, label: Label | None = None) -> ChunkFile:
    name = f"{start:020d}-{'a' * 12}" if start is not None else f"stage-{'a' * 12}"
    return ChunkFile(f"{S}$chunks/{name}", len(data), crc32c(data), 0, label)


def evidence(*files: ChunkFile, pages: Sequence[Listed] = (), **how: object) -> Evidence:
    return known.gather(S, {file.path: file for file in files}, dict(pages), **how)  # type: ignore[arg-type]


def listed(*files: ChunkFile, name: str = "index-0-a") -> Listed:
    chunks, start = [], 0
    for file in files:
        chunks.append(Chunk(start, file.size, names.relate(S, file.path), file.crc32c, 0))
        start += file.size
    return f"{S}$chunks/{name}", chunks


def test_page_places_chunks_without_their_own_offset():
    first, staged, raced = chunk_file(b"one", 7), chunk_file(b"two", None), chunk_file(b"x", 3)
    pieces, _, _ = evidence(first, staged, raced, pages=[listed(first, staged, raced, name="index-50-a")])
    assert [(p.start, p.by) for p in pieces] == [(50, By.PAGE), (53, By.PAGE), (56, By.PAGE)]


@pytest.mark.parametrize("name", ["index-7-a", "index-5f3a9c21e0b4"])
def test_page_without_offset_or_with_later_chunk_places_nothing(name):
    first, second = chunk_file(b"one", 7), chunk_file(b"two", 99)
    pieces, left, _ = evidence(first, second, pages=[listed(first, second, name=name)])
    assert [(p.start, p.by) for p in pieces] == [(7, By.NAME), (99, By.NAME)]
    assert left == [Left(f"{S}$chunks/{name}", known.DISAGREES)]


def test_conflicting_pages_are_refused_until_one_is_left():
    moved, after = chunk_file(b"two", 3), chunk_file(b"three", 6)
    lost, won = listed(moved, after, name="index-3-lost"), listed(moved, name="index-5-won")
    found, _, _ = plan(evidence(moved, after, pages=[lost, won]), 3)
    assert found[0][1] == (lost[0], won[0])
    with pytest.raises(AmbiguousRebuildError, match=r"index-3-lost and .*index-5-won put .* at different offsets"):
        known.check(found)
    rest, _, left = plan(evidence(moved, after, pages=[lost, won], leave_out=["index-3-lost"]), 5)
    assert [(one.start, one.file) for one, _ in rest] == [(5, moved)]
    known.check(rest)
    assert Left(lost[0], known.LEFT_OUT) in left


def test_damaged_missing_and_excluded_files_have_reasons():
    good, bad, out = chunk_file(b"one", 0), chunk_file(b"two", 3), chunk_file(b"three", 6)
    gone = chunk_file(b"four", 11)
    page = listed(good, bad, out, gone)
    spoiled = ChunkFile(bad.path, 3, 5, 0)
    pieces, left, _ = evidence(good, spoiled, out, pages=[page], leave_out=[out.path.rpartition("/")[2]])
    assert [piece.file for piece in pieces] == [good]
    reasons = {one.file: one.reason for one in left}
    assert reasons == {bad.path: known.DAMAGED, out.path: known.LEFT_OUT, gone.path: known.MISSING}
    torn = chunk_file(b"one", 0, Label(X, 0, 5))
    assert evidence(torn)[1] == [Left(torn.path, known.DAMAGED, 0)]


@pytest.mark.parametrize(
    "label",
    [Label(X, 0, 0), Label(X, last=Last(7, 3, "0-a", "cold")), Label(None, 2**62), Label(X), Label(crc32c=2**32 - 1)],
)
def test_labels_survive_metadata_of_any_case(label):
    assert parse_label(label.metadata()) == label
    assert parse_label({key.upper(): value for key, value in label.metadata().items()}) == label


@pytest.mark.parametrize("sign", ["-", "_"])
def test_labels_of_earlier_writers_are_read(sign):
    label = Label(X, 5, 7, Last(7, 3, "0-a"))
    given = label.metadata()
    assert all(key.isalnum() for key in given)  # Azure refuses a hyphen, some proxies an underscore
    assert parse_label({key.replace("rollingfs", f"rollingfs{sign}"): value for key, value in given.items()}) == label
