"""A commit that the store has acknowledged and lost: its writer is told, and nobody on a right store is.

Rules of the protocol: P14.14 to P14.19.
"""

import pickle
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest

from rollingfs.errors import LostCommitError, UnsafeBackendError
from rollingfs.format import names
from rollingfs.format.codec import parse_header
from rollingfs.format.header import AGE_S_MAX, COMMITS_MAX
from rollingfs.segment.at import At
from rollingfs.segment.commit.turns import Turns
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.change import seal
from rollingfs.segment.verbs.create import create, overwrite as overwrite_segment
from rollingfs.segment.verbs.rename import rename
from tests.support.backends import Scripted, forget_verdicts, private_memory
from tests.support.segment_verbs import VERBS, append
from tests.support.site import Site

pytestmark = pytest.mark.usefixtures("nothing_known")
NAME, PRODUCT = "http://store/bucket", "Liar/1.0"


class Lying(Scripted):
    """A store that lets two replaces win where a test says so; it is an object store to its clients."""

    def may_tear(self, path: str) -> bool:
        return True

    def product(self, path: str) -> str:
        return PRODUCT

    async def store_name(self, path: str) -> str:
        return NAME


@pytest.fixture
def site() -> Site:
    site = Site(Lying(private_memory()), "m")
    site.create()
    site.append(b"first ")
    return site


def raw(site: Site) -> bytes:
    return site.run(site.backend.inner.read(names.header_path(site.path))).data


def put(site: Site, data: bytes) -> None:
    """Put a file in the place of the header, as a store does that compares a token first and writes later."""
    site.run(site.backend.inner.put(names.header_path(site.path), data))


def others_after(site: Site, before: bytes, *appends: bytes) -> None:
    """What the header would be if another had appended to an older one; it takes the place of the header."""
    put(site, before)
    other = At.of(Scripted(site.backend.inner))
    for data in appends:
        site.run(append(other, site.path, data))


def lose(site: Site, *others: bytes) -> None:
    """Let an append be acknowledged that another writer's append, on the same header, has the place of."""
    before = raw(site)
    assert site.append(b"ours") == 6
    others_after(site, before, *(others or (b"theirs",)))


LOOKS = {
    "commits": lambda site: site.append(b"more"),
    "reads": lambda site: site.run(site.client.headers.view(site.path, fresh=True)),
    "seals": lambda site: site.run(seal(site.client, site.path)),
    "lists": lambda site: site.run(site.client.headers.load(site.path)),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("others", [[b"theirs"], [b"theirs", b"theirs too", b"and more"]], ids=["one", "several"])
def test_a_writer_with_a_lost_commit_writes_no_more(site, look, others):
    lose(site, *others)
    with pytest.raises(LostCommitError, match="acknowledged a commit of the bytes from 6 to 10") as told:
        LOOKS[look](site)
    assert (told.value.start, told.value.end, told.value.data) == (6, 10, b"ours")
    told.match("they are gone, the error has these bytes as `data`")
    told.match(rf"This process writes nothing more to {NAME} \({PRODUCT}\): use a store whose conditional writes")
    assert vars(pickle.loads(pickle.dumps(told.value))) == vars(told.value)
    again = At.of(site.backend)
    for client in (site.client, again):
        with pytest.raises(UnsafeBackendError, match="let another writer take its place"):
            site.run(append(client, site.path, b"more"))
    assert site.content() == b"first " + b"".join(others)
    forget_verdicts()
    assert site.run(VERBS["append"](At.of(Scripted(site.backend.inner)), site.path, told.value.data)) > 6


@pytest.mark.parametrize("shown", ["its own commit", "the other's"])
def test_a_writer_is_told_after_a_faster_load(site, shown):
    before, headers, keep = raw(site), site.client.headers, site.client.headers.keep

    def keep_late(segment: str, loaded: Segment, began: int, **own: Any) -> None:
        if own.get("is_own"):
            others_after(site, before, *[b"theirs"] * (shown == "the other's"))
            site.run(headers.load(segment)) if shown == "the other's" else keep(segment, loaded, headers.begin())
        keep(segment, loaded, began, **own)

    with mock.patch.object(headers, "keep", keep_late):
        assert site.append(b"ours") == 6
    if shown == "its own commit":
        others_after(site, before, b"theirs")
    with pytest.raises(LostCommitError, match="of the bytes from 6 to 10") as told:
        site.append(b"more")
    assert told.value.data == (b"ours" if shown == "its own commit" else None)


def test_a_writer_is_told_after_an_error(site):
    with mock.patch.object(Turns, "took", side_effect=[MemoryError, None]):
        lose(site)
    with pytest.raises(LostCommitError, match="of the bytes from 6 to 10"):
        site.append(b"more")


@pytest.mark.parametrize("segment", ["m/other", None], ids=["another", "all"])
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_writer_is_told_after_a_forget(site, segment, when):
    """A call of `invalidate_cache` forgets headers, but not commits."""
    forget = partial(site.client.headers.forget, segment and site.path if when == "after" else segment)
    if when == "during":
        site.backend.plan("replace", before=forget)
    lose(site)
    if when == "after":
        forget()
    with pytest.raises(LostCommitError, match="of the bytes from 6 to 10"):
        site.append(b"more")


@pytest.mark.parametrize("other", ["append", "overwrite"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_writer_is_told_of_its_lost_overwrite(site, look, other):
    """Another's commit on the header that it replaced takes its place: of the old incarnation, or of a third."""
    before = raw(site)
    site.run(overwrite_segment(site.client, site.path, [b"ours"]))
    put(site, before)
    other_client = At.of(Scripted(site.backend.inner))
    data = b"theirs" if other == "append" else [b"theirs"]
    site.run(VERBS[other](other_client, site.path, data))
    with pytest.raises(LostCommitError, match="acknowledged a commit of the bytes from 0 to 4") as told:
        LOOKS[look](site)
    assert told.value.data == b"ours"


def test_a_lost_commit_is_reported_once(site):
    lose(site)
    with pytest.raises(LostCommitError):
        LOOKS["reads"](site)
    assert LOOKS["reads"](site).length == 12


@pytest.mark.parametrize("others", [[], [b"theirs"], [b"theirs", b"and more"]], ids=["none", "one", "several"])
def test_a_reader_warns_of_two_headers_of_a_version(site, others, caplog):
    reader = At.of(Scripted(site.backend))
    before = raw(site)
    site.append(b"ours")
    site.run(reader.headers.load(site.path))
    others_after(site, before, *others)
    assert site.run(reader.headers.view(site.path, fresh=True)).length == len(site.content())
    assert caplog.text.count("the store let two commits win as version 3") == bool(others)


def restore_older(site: Site) -> None:
    before = raw(site)
    site.append(b"one")
    site.append(b"two")
    others_after(site, before, b"theirs", b"and theirs")


def restore_alone(site: Site) -> None:
    before = raw(site)
    site.append(b"one")
    put(site, before)


def overwrite(site: Site) -> None:
    site.append(b"one")
    site.by_another("overwrite", b"new")


def overwrite_twice(site: Site) -> None:
    site.append(b"one")
    site.run(overwrite_segment(site.client, site.path, [b"ours"]))
    site.by_another("overwrite", b"new")


def rename_onto(site: Site) -> None:
    site.run(overwrite_segment(site.client, site.path, [b"ours"]))
    other = At.of(Scripted(site.backend.inner))
    site.run(overwrite_segment(other, f"{site.path}2", [b"new"]))
    site.run(rename(other, f"{site.path}2", site.path))


def make_anew(site: Site, after_s: float = AGE_S_MAX + 1) -> None:
    site.append(b"one")
    ages(site, after_s)
    site.run(site.backend.inner.delete([names.header_path(site.path)]))
    other = At.of(Scripted(site.backend.inner))
    site.run(create(other, site.path, None))
    for _ in range(5):
        site.run(append(other, site.path, b"x"))


def make_anew_at_once(site: Site) -> None:
    make_anew(site, 0)


def ages(site: Site, seconds: float) -> None:
    """Let the client have committed so long ago."""
    entry = site.client.headers._entries[site.path]
    entry.mine = replace(entry.mine, at_s=entry.mine.at_s - seconds)


def create_twice(site: Site) -> None:
    """Two creates of one header win, and the second is there."""
    site.path += "2"
    site.create()
    site.append(b"one")
    site.run(site.backend.inner.delete([names.header_path(site.path)]))
    other = At.of(Scripted(site.backend.inner))
    site.run(create(other, site.path, None))


def evict(site: Site) -> None:
    site.append(b"one")
    for _ in range(COMMITS_MAX + 2):
        site.by_another("append", b"x")


def truncate(site: Site) -> None:
    end = site.append(b"one") + 3
    site.by_another("truncate", end)


def delete(site: Site) -> None:
    site.append(b"one")
    site.by_another("delete")
    site.by_another("create", None)


def beside(site: Site) -> None:
    """A look that began before the commit was acknowledged brings an older header."""
    old = site.run(site.backend.inner.read(names.header_path(site.path)))
    began = site.client.headers.begin()
    site.append(b"one")
    site.client.headers.listed(site.path, old.token, old.data, began)


WARNED = [restore_older, restore_alone, make_anew_at_once, create_twice]
CHANGES = [*WARNED, overwrite, overwrite_twice, rename_onto, make_anew, evict, truncate, delete, beside]


@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
def test_nothing_else_counts_as_a_lost_commit(site, change, caplog):
    change(site)
    length = site.run(site.client.headers.load(site.path)).header.length
    assert site.append(b"more") == length
    assert parse_header(raw(site), site.path).length == length + 4
    assert change in WARNED or caplog.text == ""


@pytest.mark.parametrize("change", WARNED, ids=[change.__name__ for change in WARNED])
def test_a_commit_gone_otherwise_is_logged(site, change, caplog):
    change(site)
    LOOKS["reads"](site)
    site.append(b"more")
    assert caplog.text.count("an older header was put in its place") == 1


def test_where_the_kernel_decides_no_commit_counts_as_lost(caplog):
    site = Site(Scripted(private_memory()), "m")
    site.create()
    site.append(b"first ")
    lose(site)
    LOOKS["reads"](site)
    assert site.append(b"more") == 12
    assert caplog.text == ""
