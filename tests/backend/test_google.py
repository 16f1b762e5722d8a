"""Google through gcsfs: what is sent, copies, missing buckets, and targets."""

from collections import Counter
from typing import Any

import fsspec
import pytest

from tests.support.servers import require_module

require_module("gcsfs")

from gcsfs import GCSFileSystem

from rollingfs.backend.objects import open_google
from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.google import GoogleBackend
from rollingfs.errors import NoBucketError
from rollingfs.fs.target import adapt
from tests.support.clouds import new_google_bucket
from tests.support.driven import Driven
from tests.support.proxy import Redirect, proxy_to
from tests.support.schedules import beside

pytestmark = pytest.mark.clouds


@pytest.fixture
def google(fake_google: dict[str, Any]) -> Driven:
    return Driven(open_google(GCSFileSystem(**fake_google)))


@pytest.fixture
def bucket(fake_google: dict[str, Any]) -> str:
    return new_google_bucket(fake_google)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests, by method."""
    counts: Counter[str] = Counter()
    beside(monkeypatch, GoogleBackend, "send", lambda _, method, *__, **___: counts.update([method]))
    return counts


def test_each_verb_on_google_makes_the_stated_requests(sent, fake_google, google, bucket):
    path = f"{bucket}/file"
    token = google.create(path, b"old")
    token = google.replace(path, b"new", token)
    assert sent == {"POST": 2}
    sent.clear()
    google.read(path)
    google.read_if_changed(path, token)
    google.read_range(path, 0, 1)
    google.stat(path)
    google.now(path)
    assert sent == {"GET": 5}
    copy = f"{new_google_bucket(fake_google)}/copy"
    sent.clear()
    google.copy(path, copy)
    assert sent == {"POST": 1}, "between buckets, too"
    assert google.read(copy).data == b"new"


def test_redirected_write_is_not_taken_for_done(fake_google, bucket):
    """It sends a writer to the address of the file, as a gateway may that wants a login first."""
    with proxy_to(fake_google["endpoint_url"]) as proxy:
        google = Driven(open_google(GCSFileSystem(**fake_google | {"endpoint_url": proxy.url})))
        token = google.create(f"{bucket}/file", b"old")
        there = Redirect(302, f"/storage/v1/b/{bucket}/o/file")
        proxy.fault = lambda seen: there if seen.method != "GET" else None
        for verb, args in (("replace", (b"new", token)), ("delete_if", (token,)), ("write", ([b"new"],))):
            with pytest.raises(OSError, match="302"):
                getattr(google, verb)(f"{bucket}/file", *args)
        assert google.read(f"{bucket}/file").data == b"old"


def test_missing_bucket_of_google_is_error_of_every_write(google):
    for verb, args, error in (
        ("create", (b"x",), NoBucketError),
        ("write", ([b"x"],), NoBucketError),
        ("read", (), FileNotFoundError),
        ("list", (), FileNotFoundError),
    ):
        with pytest.raises(error):
            getattr(google, verb)("rollingfs-none/folder/file", *args)


def test_gcsfs_filesystem_is_taken_over_unless_it_checks_writes(fake_google):
    assert isinstance(adapt(GCSFileSystem(**fake_google)), ObjectBackend)
    assert not adapt(GCSFileSystem(**fake_google, consistency="md5")).capability.can_write


def test_segments_live_on_google_by_url(fake_google, bucket):
    fs, path = fsspec.url_to_fs(f"rolling::gs://{bucket}/folder/segment", gs=fake_google)
    fs.create(path)
    fs.append(path, b"data")
    other, path = fsspec.url_to_fs(f"rolling+gs://{bucket}/folder/segment", **fake_google)
    assert other.cat_file(path) == b"data"
    other.mkdir(f"{bucket}-made")
    assert other.isdir(f"{bucket}-made")
    other.rmdir(f"{bucket}-made")
    assert not other.isdir(f"{bucket}-made")
