"""Reads beside a write in place: what does not fit is read again, and what is at rest is damaged.

Rules of the protocol: P7.17.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend import patience
from rollingfs.backend.contract import Blob
from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.header import LOOSE_CHUNKS_MAX
from rollingfs.segment.at import At
from tests.ground.beside import live_beside
from tests.support.backends import LOOKS, Scripted, private_memory
from tests.support.disks import mounted
from tests.support.places import new_fs
from tests.support.segment_verbs import append
from tests.support.servers import new_bucket, rclone_server
from tests.support.site import Site
from tests.support.small import SMALL

APPENDS = 300
CHUNK = b"0123456789" * 2
"""An append that becomes a chunk."""
TORN = {
    "cut within its text": lambda data: data[:40],
    "cut within its tail": lambda data: data[:-2],
    "mixed with another": lambda data: data[:30] + bytes([data[30] ^ 1]) + data[31:],
    "empty": lambda _: b"",
}


def site_that_may_tear(patch: pytest.MonkeyPatch, policy: RollingPolicy | None = None) -> Site:
    """An empty segment on a store whose reads may be torn."""
    patch.setattr(patience, "LOOK_PAUSE_FIRST_S", 0.0)
    backend: Any = Scripted(private_memory())
    backend.may_tear = lambda _path: True
    site = Site(backend, "m", policy)
    site.create()
    return site


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    site = site_that_may_tear(monkeypatch)
    site.append(b"content")
    return site


def torn(how: str, times: list[int]) -> Any:
    """Answers that are torn, each in another way, as beside a writer."""

    def answer(blob: Blob) -> Blob:
        times.append(len(times))
        return replace(blob, data=TORN[how](blob.data), token=f"torn {len(times)}")

    return answer


@pytest.mark.parametrize("how", TORN)
@pytest.mark.parametrize("times", [1, 3])
def test_a_torn_header_is_read_again_until_it_fits(site, how, times):
    site.client.headers.forget()
    site.backend.plan(LOOKS, names.header_path(site.path), answers=torn(how, met := []), times=times)
    assert site.run(site.client.headers.view(site.path, fresh=True)).length == 7
    assert len(met) == times


@pytest.mark.parametrize("how", TORN)
def test_a_writer_judges_by_a_whole_header(site, how):
    other = At.of(Scripted(site.backend.inner))  # which replaces the header, as on a store that may tear
    site.run(append(other, site.path, b", others'"))
    site.backend.plan(LOOKS, names.header_path(site.path), answers=torn(how, met := []), times=2)
    assert site.append(b", ours") == 16
    assert site.content() == b"content, others', ours"
    assert len(met) == 2


def test_a_torn_page_is_read_again(monkeypatch):
    site = site_that_may_tear(monkeypatch, SMALL)
    for _ in range(LOOSE_CHUNKS_MAX + 2):
        site.append(CHUNK)
    site.client.pages.after_fork()  # nothing is cached
    site.backend.plan("read", lambda path: "/index-" in path, answers=torn("cut within its text", met := []))
    view = site.run(site.client.headers.view(site.path, fresh=True))
    assert site.run(site.client.fetcher.read(view, 0, view.length)) == (LOOSE_CHUNKS_MAX + 2) * CHUNK
    assert len(met) == 1


@pytest.mark.parametrize("how", [how for how in TORN if how != "empty"])
def test_header_that_is_damaged_at_rest_is_told_soon(site, how, monkeypatch):
    slept: list[float] = []
    site.client.headers.forget()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(patience, "LOOK_PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(site.client.runtime, "sleep", sleep)
    monkeypatch.setattr(patience.time, "monotonic", lambda: sum(slept))
    path = names.header_path(site.path)
    site.backend.plan(LOOKS, path, answers=lambda blob: replace(blob, data=TORN[how](blob.data)), times=None)
    with pytest.raises(CorruptHeaderError):
        site.run(site.client.headers.view(site.path, fresh=True))
    assert patience.SETTLED_S <= sum(slept) < 1


def test_a_header_that_fits_costs_one_read(site):
    site.client.headers.forget()
    site.backend.clear()
    site.run(site.client.headers.view(site.path, fresh=True))
    assert site.backend.verbs == ["read"]


@pytest.mark.slow
def test_nobody_fails_beside_a_server_that_writes_in_place():
    with rclone_server() as options:
        bucket = new_bucket(options)
        live_beside(
            partial(RollingFileSystem, "s3", skip_instance_cache=True, **options), f"{bucket}/data/log", APPENDS
        )


@pytest.mark.slow
def test_nobody_fails_on_a_disk_with_stale_pages(tmp_path):
    with mounted("gocryptfs", tmp_path) as disk:
        live_beside(partial(new_fs, sync=False), f"{disk}/data/log", APPENDS)
