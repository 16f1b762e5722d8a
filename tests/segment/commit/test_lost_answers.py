"""What a commit returns when its answer is lost and others go on from what it made; commits beside many writers.

Rules of the protocol: P5.6 to P5.17.
"""

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rollingfs import AppendInterrupted, AppendOutcomeUnknown, ConflictError, RollingPolicy
from rollingfs.backend import shared_errors
from rollingfs.format.header import COMMITS_MAX, GRACE_S
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.commit import attempt
from rollingfs.segment.verbs.collect import collect
from rollingfs.segment.verbs.create import overwrite
from rollingfs.segment.verbs.delete import delete
from tests.support.backends import Scripted, fail, private_memory, raises
from tests.support.faults import Store
from tests.support.site import Site
from tests.support.small import client

# -- results come from the header that the commit wrote --------------------------------------------------------


@pytest.mark.parametrize(("mode", "verb"), [("xb", "create"), ("wb", "replace"), ("ab", "replace")])
def test_a_file_goes_on_into_its_own_incarnation_alone(mode: str, verb: str) -> None:
    site = Site(Scripted(private_memory()), "")
    if mode != "xb":
        site.create()
    file = site.open(mode)
    file.write(b"mine")
    site.backend.plan(verb, "clicks$header", after=lambda: (site.by_another("overwrite", b"another's"), fail()))
    file.commit()
    file.write(b" goes on")
    with pytest.raises(FileNotFoundError):
        file.commit()
    file.discard()
    assert site.content() == b"another's"


def test_an_overwrite_does_not_make_a_lost_incarnation(site: Site) -> None:
    bound = site.segment()
    site.run(delete(site.client, site.path))
    with pytest.raises(FileNotFoundError):
        site.run(overwrite(site.client, site.path, b"x", guard=bound._binding.guard()))
    assert not site.is_there()


# -- so many writers that no trace is left ---------------------------------------------------------------------


def others_append(site: Site) -> None:
    """As many others commit once each."""
    for _ in range(COMMITS_MAX + 6):
        site.by_another("append", b".")


def meet_others(site: Site) -> None:
    """They do, and this client sees it."""
    others_append(site)
    site.run(site.client.headers.load(site.path))


def test_a_lost_race_is_judged_before_the_pause(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    meet_others(site)
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        others_append(site)

    monkeypatch.setattr(site.client.runtime, "sleep", sleep)
    site.backend.plan("replace", "clicks$header", before=partial(site.by_another, "append", b"."))
    offset = site.append(b"mine")
    assert len(pauses) == 1
    assert (site.content()[offset:], site.content().count(b"mine")) == (b"mine", 1)


@pytest.mark.parametrize("is_crowded", [True, False])
def test_an_old_header_of_many_is_not_used(site: Site, monkeypatch: Any, is_crowded: bool) -> None:
    meet_others(site)
    if not is_crowded:
        for _ in range(COMMITS_MAX):
            site.append(b"-")
        monkeypatch.setattr(attempt, "BELIEVED_S_MAX", 0.0)
    others_append(site)
    site.backend.calls.clear()
    assert site.append(b"mine") == len(site.content()) - 4
    assert [verb for verb, _ in site.backend.calls] == ["read_if_changed", "replace"]


@pytest.mark.parametrize("answer", [fail, raises(ConflictError("it has changed"))], ids=["lost", "conflict"])
def test_an_own_request_without_a_trace_is_unknown(site: Site, answer: Callable[[], Any]) -> None:
    """A conflict may answer a request that the store received twice, and took the first time."""

    def many_after_it() -> None:
        others_append(site)
        answer()

    site.backend.plan("replace", "clicks$header", after=many_after_it)
    with pytest.raises(AppendOutcomeUnknown):
        site.append(b"mine")
    assert site.content().startswith(b"mine")


@pytest.mark.usefixtures("hurried")
def test_an_idle_writer_knows_its_outcome_after_collection() -> None:
    store = Store()
    idle, other = client(store), client(store)
    idle.create("/a", [b"1", b"2"])
    drive(delete(other.client, "/a"))
    store.lapse(GRACE_S + 1)
    drive(collect(other.client, "/a"))
    other.create("/a")
    assert idle.append("/a", b"new") == 0


# -- a store that fails after a lost race --------------------------------------------------------------------------


def test_full_store_names_segment_after_lost_race() -> None:
    site = Site(Scripted(private_memory()), "", RollingPolicy(max_bytes=1000, inline_bytes=100))
    site.create()
    site.backend.plan("replace", "clicks$header", before=partial(site.by_another, "append", b"x" * 60))
    site.backend.plan("write", instead=raises(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="nothing was committed: No space left on device") as caught:
        site.append(b"y" * 60, attrs={"key": "value"})
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, site.path)
    assert not site.backend.plans
    assert site.content() == b"x" * 60


def test_unknown_outcome_names_the_error_of_looks() -> None:
    site = Site(Scripted(private_memory()), "", commit_timeout_s=0.1)
    site.create()
    site.backend.plan("replace", "clicks$header", after=fail)
    broken = raises(OSError(errno.EIO, "Input/output error"))
    site.backend.plan(("read", "read_if_changed"), "clicks$header", before=broken, times=None)
    with pytest.raises(AppendOutcomeUnknown, match=r"could not be read in time: .*Input/output error"):
        site.append(b"mine", attrs={"key": "value"})


# -- a bucket that is gone ---------------------------------------------------------------------------------------


def lose_bucket(site: Site) -> None:
    """The bucket and all that is in it are gone, and stay so."""
    site.backend.inner.fs.store.clear()  # type: ignore[attr-defined]
    gone = raises(shared_errors.no_bucket("bucket/clicks", "bucket", "make it first"))
    site.backend.plan("create", before=gone, times=None)
    site.backend.plan("replace", before=gone, times=None)


def test_without_a_bucket_writes_fail_at_once(site: Site) -> None:
    site.append(b"kept until then")
    lose_bucket(site)
    for write in (lambda: site.append(b"more"), site.create):
        site.backend.clear()
        with pytest.raises(FileNotFoundError, match="the bucket 'bucket' does not exist, so nothing was"):
            write()
        assert site.backend.count("create") + site.backend.count("replace") == 1


@pytest.mark.parametrize("error", [TimeoutError("no answer"), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_a_read_after_an_unknown_outcome_is_fresh(site: Site, error: BaseException) -> None:
    """Within the time for which headers are believed, too: the caller is to read before it repeats."""
    site.client = At.of(site.backend, header_cache_s=600, commit_timeout_s=0.05)
    site.append(b"seen ")
    site.backend.plan("replace", "clicks$header", after=raises(error))
    site.backend.plan(("read", "read_if_changed"), "clicks$header", times=None, before=fail)
    with pytest.raises((AppendOutcomeUnknown, AppendInterrupted)):
        site.append(b"unknown")
    site.backend.plans.clear()
    view = site.run(site.client.headers.view(site.path))
    assert site.run(site.client.fetcher.read(view, 0, view.length)) == site.content()


def test_without_a_bucket_an_earlier_request_stays_unknown(site: Site) -> None:
    def lose_answer_and_bucket() -> None:
        lose_bucket(site)
        fail()

    site.path += "-new"
    site.backend.plan("create", "clicks-new$header", before=lose_answer_and_bucket)
    with pytest.raises(AppendOutcomeUnknown, match="its bucket is gone, but an earlier request may still arrive"):
        site.create()
