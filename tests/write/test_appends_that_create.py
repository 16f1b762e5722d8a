"""Appends that create the segment or adopt a plain file, and what they do to attributes."""

import pytest

from rollingfs.runtime.concurrency import drive
from tests.support.site import by_other

HEADER = "$header"


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


def test_a_plain_file_that_is_replaced_while_it_is_deleted_is_deleted_as_it_is_then(plain):
    def write_again():
        drive(plain.backend.inner.delete([plain.path]))
        drive(plain.backend.inner.write(plain.path, [b"another, longer"]))

    plain.backend.plan("delete_if", plain.path, before=write_again)
    plain.run(plain.client.segments.delete(plain.path))
    assert plain.backend.count("delete_if") >= 2
    with pytest.raises(FileNotFoundError):
        plain.content()
