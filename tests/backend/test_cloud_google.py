"""Google's storage over gcsfs: refusals, what is sent and how often, and options."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import fsspec
import pytest
from fsspec.asyn import sync

from tests.support.servers import require_module

require_module("gcsfs")

from gcsfs import GCSFileSystem

from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.google.requests import GoogleRequests
from rollingfs.backend.objects.opening import open_google
from rollingfs.errors import NoBucketError
from rollingfs.fs.target import adapt
from tests.support.clouds import PROJECT, new_google_bucket
from tests.support.proxy import Redirect, proxy_to
from tests.support.servers import free_port

pytestmark = pytest.mark.clouds


def do(backend: ObjectBackend, verb: str, *args: Any) -> Any:
    return sync(backend.loop, getattr(backend, verb), *args)


@pytest.fixture
def backend(fake_google: dict[str, Any]) -> ObjectBackend:
    return open_google(GCSFileSystem(**fake_google))


@pytest.fixture
def bucket(fake_google: dict[str, Any]) -> str:
    return new_google_bucket(fake_google)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests, by method."""
    counts: Counter[str] = Counter()
    real = GoogleRequests.send

    async def send(self: GoogleRequests, method: str, *args: Any, **options: Any) -> Any:
        counts[method] += 1
        return await real(self, method, *args, **options)

    monkeypatch.setattr(GoogleRequests, "send", send)
    return counts


def test_every_verb_is_as_few_requests_as_it_says(backend: ObjectBackend, bucket: str, sent: Counter[str]) -> None:
    path = f"{bucket}/file"
    token = do(backend, "create", path, b"old")
    token = do(backend, "replace", path, b"new", token)
    assert sent == {"POST": 2}
    sent.clear()
    do(backend, "read", path)
    do(backend, "read_if_changed", path, token)
    do(backend, "read_range", path, 0, 1)
    do(backend, "stat", path)
    do(backend, "now", path)
    assert sent == {"GET": 5}


def test_a_write_that_the_store_sends_elsewhere_is_not_taken_for_done(fake_google: dict[str, Any], bucket: str) -> None:
    """It sends a writer to the address of the file, as a gateway may that wants a login first."""
    with proxy_to(fake_google["endpoint_url"]) as proxy:
        backend = open_google(GCSFileSystem(**fake_google | {"endpoint_url": proxy.url}))
        token = do(backend, "create", f"{bucket}/file", b"old")
        there = Redirect(302, f"/storage/v1/b/{bucket}/o/file")
        proxy.fault = lambda seen: there if seen.method != "GET" else None
        for verb, args in (("replace", (b"new", token)), ("delete_if", (token,)), ("write", ([b"new"],))):
            with pytest.raises(OSError, match="302"):
                do(backend, verb, f"{bucket}/file", *args)
        assert do(backend, "read", f"{bucket}/file").data == b"old"


def test_files_are_copied_between_buckets_on_the_server(
    fake_google: dict[str, Any], backend: ObjectBackend, bucket: str, sent: Counter[str]
) -> None:
    other = new_google_bucket(fake_google)
    do(backend, "create", f"{bucket}/file", b"bytes")
    sent.clear()
    do(backend, "copy", f"{bucket}/file", f"{other}/copy")
    assert sent == {"POST": 1}
    assert do(backend, "read", f"{other}/copy").data == b"bytes"


def test_a_missing_bucket_is_an_error_of_every_write(backend: ObjectBackend) -> None:
    for verb, args, error in (
        ("create", (b"x",), NoBucketError),
        ("write", ([b"x"],), NoBucketError),
        ("read", (), FileNotFoundError),
        ("list", (), FileNotFoundError),
    ):
        with pytest.raises(error):
            do(backend, verb, "rollingfs-none/folder/file", *args)


def test_without_a_server_every_verb_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollingfs.backend.patience.PATIENCE_S", 0.2)
    url = f"http://127.0.0.1:{free_port()}"
    backend = open_google(GCSFileSystem(endpoint_url=url, token="anon", project=PROJECT))
    for verb, args in (("read", ()), ("create", (b"x",)), ("list", ()), ("now", ())):
        with pytest.raises(OSError, match="no whole answer came from http://127") as raised:
            do(backend, verb, "bucket/file", *args)
        assert raised.value.errno == errno.EIO


def test_a_filesystem_of_gcsfs_is_taken_over_unless_it_checks_what_it_wrote(fake_google: dict[str, Any]) -> None:
    assert isinstance(adapt(GCSFileSystem(**fake_google)), ObjectBackend)
    assert not adapt(GCSFileSystem(**fake_google, consistency="md5")).can_write


def test_segments_live_on_google_by_url(fake_google: dict[str, Any], bucket: str) -> None:
    fs, path = fsspec.url_to_fs(f"rolling::gs://{bucket}/folder/segment", gs=fake_google)
    fs.create(path)
    fs.append(path, b"data")
    other, path = fsspec.url_to_fs(f"rolling+gs://{bucket}/folder/segment", **fake_google)
    assert other.cat_file(path) == b"data"
    other.mkdir(f"{bucket}-made")
    assert other.isdir(f"{bucket}-made")
    other.rmdir(f"{bucket}-made")
    assert not other.isdir(f"{bucket}-made")
