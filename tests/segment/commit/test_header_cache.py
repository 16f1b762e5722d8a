"""The cache of headers: answers that come late never hide what this client has committed, nor what is newer."""

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rollingfs.backend.contract import Blob
from rollingfs.format.codec import format_header
from rollingfs.format.header import Header
from rollingfs.runtime.concurrency import SyncRuntime, drive
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.segment import Segment
from tests.support.backends import LOOKS, Scripted, private_memory
from tests.support.site import Site

PATH = "/folder/clicks"
CACHE_S = 1000.0


class SteppedLock:
    """A lock after whose release number `at` somebody else gets his turn."""

    def __init__(self, inner: Any, at: int, action: Callable[[], object]) -> None:
        self.inner = inner
        self.at = at
        self.action = action

    def __enter__(self) -> None:
        self.inner.__enter__()

    def __exit__(self, *error: object) -> None:
        self.inner.__exit__(*error)
        self.at -= 1
        if self.at == -1:
            self.action()


@pytest.fixture
def site() -> Site:
    site = Site(Scripted(private_memory()), "", header_cache_s=CACHE_S)
    site.create()
    site.append(b"one")
    return site


def seen_length(site: Site) -> int:
    """The length by the cache, or else by the store."""
    return int(site.run(site.client.headers.view(site.path)).length)


def load(site: Site) -> None:
    site.run(site.client.headers.load(site.path))


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("look", ["listing", "load", "changed load"])
def test_an_own_append_during_a_look_is_seen(site: Site, look: str, at: int) -> None:
    headers = site.client.headers
    before = headers.seen(site.path)
    assert before is not None
    if look == "changed load":
        site.by_another("append", b"!")
    lock, was_there = headers._lock, site.content()

    def append() -> None:
        headers._lock = lock
        site.append(b" two")

    headers._lock = SteppedLock(lock, at, append)  # type: ignore[assignment]
    if look == "listing":
        headers.by_token(site.path, before.token)
    else:
        load(site)
    if headers._lock is not lock:
        append()  # after the last step
    assert seen_length(site) == len(was_there) + 4


def test_an_answer_from_before_forgetting_is_not_remembered(site: Site) -> None:
    def change_and_forget() -> None:
        site.by_another("append", b" two")
        site.client.headers.forget()

    site.backend.plan(LOOKS, "$header", after=change_and_forget)  # before the answer is there
    load(site)
    assert seen_length(site) == 7


def test_changes_of_others_before_an_own_answer_stay(site: Site) -> None:
    def others_append_and_another_thread_looks() -> None:
        site.by_another("append", b" three")
        load(site)

    site.backend.plan("replace", "clicks$header", after=others_append_and_another_thread_looks)
    assert site.append(b" two") == 3
    assert seen_length(site) == 13


# -- another incarnation ---------------------------------------------------------------------------------------


def header(version: int, segment: str) -> Header:
    return Header(segment, version, tail=b"x" * version)


OLD, NEW = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.mark.parametrize(
    ("own_is_known", "own", "late", "stays"),
    [
        ("before the answer", header(5, NEW), header(4, NEW), "own"),
        ("before the answer", header(5, NEW), header(6, NEW), "late"),
        ("before the answer", header(5, NEW), header(4, OLD), "own"),
        # another has overwritten it, or it is the one before, whose tombstone was collected: nobody can tell
        ("before the answer", header(1, NEW), header(6, OLD), None),
        ("after the answer", header(5, NEW), header(4, OLD), "own"),
        ("after the answer", header(5, NEW), header(6, NEW), "late"),
        ("after the answer", header(5, NEW), header(6, OLD), None),
    ],
)
def test_a_late_answer_does_not_hide_newer_headers(
    own_is_known: str, own: Header, late: Header, stays: str | None
) -> None:
    backend, answer = Scripted(private_memory()), Blob(format_header(late), "late", 0.0)
    headers = Headers(backend, SyncRuntime(), CACHE_S)
    keep = partial(headers.keep, PATH, Segment(PATH, own, "own"), headers.begin(), is_own=True)
    backend.plan(LOOKS, instead=lambda *_: answer, after=keep if own_is_known == "before the answer" else None)
    backend.plan(LOOKS, instead=lambda *_: answer)

    def seen_after_a_look() -> str | None:
        assert drive(headers.load(PATH)).token == "late"
        if own_is_known == "after the answer":
            keep()
        seen = headers.seen(PATH)
        return seen.token if seen else None

    assert seen_after_a_look() == stays
    if (own_is_known, stays) == ("before the answer", "own"):
        assert seen_after_a_look() == "late", "this one began after the commit, so whatever it says is newer"
