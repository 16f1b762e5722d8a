"""Appends that create the segment or adopt a plain file, and what they do to attributes."""

import pytest

from rollingfs import AttributeMismatchError
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import drive
from tests.support.site import by_other

HEADER = "$header"


def test_every_verb_that_takes_attributes_removes_those_that_are_none_on_condition_of_what_they_were(site):
    """So that a segment that is full of them takes another."""
    segments = site.client.segments
    site.run(segments.append(site.path, [b"a"], attrs={f"k{index}": "old" for index in range(64)}))
    with pytest.raises(ValueError, match=r"65 attributes.*attrs=\{key: None\}"):
        site.run(segments.append(site.path, [b"no"], attrs={"new": "1"}))
    site.run(segments.append(site.path, [], attrs={"new": "1", "k0": None}, guard=Guard(expected_attrs={"k0": "old"})))
    with pytest.raises(AttributeMismatchError, match="'k0' is None, expected 'old'"):
        site.run(segments.append(site.path, [], attrs={"k0": None}, guard=Guard(expected_attrs={"k0": "old"})))
    assert site.segment().attrs == {**{f"k{index}": "old" for index in range(1, 64)}, "new": "1"}
    version = site.segment().version
    site.run(segments.append(site.path, [], attrs={"k0": None}))
    assert site.segment().version == version
    other = f"{site.path}-source"
    site.run(segments.create(other))
    site.run(segments.seal(other))
    site.run(site.client.concats.concat(site.path, [other], attrs={"k1": None}))
    assert set(site.segment().attrs) == {*(f"k{index}" for index in range(2, 64)), "new"}
    site.run(segments.overwrite(site.path, [b"b"], attrs={"k2": None, "k3": "kept"}))
    assert site.segment().attrs == {"k3": "kept"}


def test_an_append_that_may_create_does_and_gives_the_bytes_and_attributes_at_once(site, data):
    site.path += "-new"
    written = site.run(site.client.segments.extend(site.path, data, attrs={"k": "v"}, create=True))
    assert (written.offset, written.header.version) == (0, 1)
    assert (site.content(), site.segment().attrs) == (data, {"k": "v"})


def test_an_append_that_loses_the_race_to_create_comes_after_the_winner(site, data):
    site.path += "-new"
    site.backend.plan("create", HEADER, before=by_other(site, "overwrite", [b"first"]))
    written = site.run(site.client.segments.extend(site.path, data, create=True))
    assert written.offset == 5
    assert site.content() == b"first" + data
    assert len(site.chunk_files()) == len(site.segment().chunks)


@pytest.fixture
def plain(site):
    site.path += "-plain"
    drive(site.backend.inner.write(site.path, [b"plain"]))
    return site


def test_a_plain_file_takes_a_large_append(plain, data):
    assert plain.append(data) == 5
    assert plain.content() == b"plain" + data


def test_create_over_a_plain_file_leaves_no_header(plain):
    with pytest.raises(FileExistsError):
        plain.create()
    with pytest.raises(FileNotFoundError):
        drive(plain.backend.inner.read(plain.path + HEADER))


def test_a_plain_file_that_is_replaced_while_it_is_deleted_is_deleted_as_it_is_then(plain):
    def write_again():
        drive(plain.backend.inner.delete([plain.path]))
        drive(plain.backend.inner.write(plain.path, [b"another, longer"]))

    plain.backend.plan("delete_if", plain.path, before=write_again)
    plain.run(plain.client.segments.delete(plain.path))
    assert plain.backend.count("delete_if") >= 2
    with pytest.raises(FileNotFoundError):
        plain.content()


def test_a_plain_file_that_is_adopted_while_it_is_deleted_is_deleted_as_a_segment(plain):
    plain.backend.plan("delete_if", plain.path, before=by_other(plain, "append", [b"+"]))
    plain.run(plain.client.segments.delete(plain.path))
    with pytest.raises(FileNotFoundError):
        plain.content()
    assert plain.chunk_files() == []
