"""Readers go by the header that is known and look again beside the data; what cannot have changed is not read twice.

Rules of the protocol: P7.13, P7.14.
"""

import threading

import pytest

from rollingfs import RollingPolicy, SegmentTruncatedError
from rollingfs.fs import binding
from rollingfs.segment.read.revalidate import Current, Trust, read_current
from rollingfs.segment.verbs.create import create
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.verbs.truncate import truncate
from tests.support.backends import Scripted, private_memory
from tests.support.schedules import beside
from tests.support.segment_verbs import append
from tests.support.site import Site

POLICY = RollingPolicy(max_bytes=10, inline_bytes=0)


@pytest.fixture
def site() -> Site:
    """A segment of two chunks over an async backend; no header is believed without a look."""
    site = Site(Scripted(private_memory(), suspends=True), "", POLICY, header_cache_s=0)
    site.create()
    site.append(b"0123456789")
    site.append(b"abcdefghij")
    return site


def test_a_handle_looks_again_beside_the_data(site: Site) -> None:
    segment, begun = site.segment(), []
    site.backend.calls.clear()
    site.backend.plan("read_if_changed", after=lambda: begun.append(site.backend.count("read_range")))
    assert segment.read(2, 8) == b"234567"
    assert begun == [1]
    assert (len(site.backend.calls), site.backend.count("read_range")) == (2, 1)


def test_grown_incarnations_bytes_are_not_read_twice(site: Site) -> None:
    segment = site.segment()
    site.run(append(site.other(), site.path, b"more"))
    site.backend.calls.clear()
    assert segment.read(2, 8) == b"234567"
    assert site.client.headers.seen(site.path).header.length == 24  # so it looked
    assert (segment.length, site.backend.count("read_range")) == (20, 1)
    assert segment.read(20, 24) == b"more"


def test_what_was_truncated_away_meanwhile_is_not_given(site: Site) -> None:
    segment = site.segment()
    site.run(truncate(site.other(), site.path, 10))
    with pytest.raises(SegmentTruncatedError, match="it holds bytes 10 to 20"):
        segment.read(2, 8)


def test_of_several_paths_only_what_changed_is_read_again(site: Site) -> None:
    same = f"{site.path}-same"
    site.run(create(site.client, same))
    site.run(append(site.client, same, b"same"))
    currents = [Current(site.client.headers, path) for path in (site.path, same)]
    site.run(append(site.other(), site.path, b"more"))

    for current in currents:
        current.believe()
        assert current.trust is Trust.OLD
    site.backend.calls.clear()
    reads = read_current(site.client.fetcher, [(one, lambda now: (now.length - 4, now.length)) for one in currents])
    assert site.run(reads) == [b"more", b"same"]
    read = [path.split("$")[0] for verb, path in site.backend.calls if verb == "read_range"]
    assert read.count(same) == 1
    assert read.count(site.path) == 2


def test_handle_on_plain_file_reads_what_was_written_meanwhile() -> None:
    site = Site(Scripted(private_memory()), "")
    site.run(site.backend.write(site.path, [b"old bytes"]))
    segment = site.segment()

    def write_anew() -> None:
        site.run(site.backend.inner.delete([site.path]))
        site.run(site.backend.inner.write(site.path, [b"new bytes!"]))

    site.backend.plan("read_range", before=write_anew)
    assert segment.read(0, 9) == b"new bytes"


def test_handle_on_plain_file_beside_tombstone_reads_it() -> None:
    site = Site(private_memory(), "", header_cache_s=60)
    site.create()
    site.run(delete(site.client, site.path))
    site.run(site.backend.write(site.path, [b"plain"]))
    assert site.segment().read(0, 5) == b"plain"


def test_other_threads_old_look_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(Scripted(private_memory()), "", POLICY, header_cache_s=0)
    site.create()
    site.append(b"0123456789")
    segment, asked, go = site.segment(), threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        go.wait(10)

    site.backend.plan("read_if_changed", after=hold)
    other = threading.Thread(target=segment.read, args=(0, 3))
    other.start()
    assert asked.wait(10)
    site.run(append(site.other(), site.path, b"more"))
    beside(monkeypatch, binding, "read_current", lambda *_, **__: (go.set(), other.join(10)))
    assert segment.read(10, 14) == b"more"
