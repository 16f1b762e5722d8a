"""The backend contract on every object store: one suite, one class for each store and way to it.

SeaweedFS and MinIO through obstore and through s3fs alone, azurite, and fake-gcs-server.
"""

import errno
import functools
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from rollingfs.backend.contract import Backend
from rollingfs.backend.objects import backend as backend_of_objects, open_azure, open_google, open_s3
from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.testing import BackendContract, Factory
from tests.support.clouds import ARGUMENTS, PROJECT, blob_service, new_container, new_google_bucket
from tests.support.driven import Driven
from tests.support.servers import count_requests, free_port, new_bucket, require_module

THREADS = 8
RACE, INCREMENTS = "test_every_race_of_creates_and_replaces_has_one_winner", "test_no_acknowledged_increment_is_lost"
SLOW = {
    f"{RACE}[processes]": pytest.mark.slow,  # four processes take 4 s to start
    f"{INCREMENTS}[processes]": pytest.mark.slow,
    "test_among_racing_writers_exactly_one_wins": pytest.mark.slow,
}
PAGES = "test_listing_and_deleting_are_complete_past_a_page"
DELETE_IF = ("test_delete_if_deletes_only_what_has_the_token", "test_plain_file_delete_if_leaves_later_writes")


def fails(reason: str) -> pytest.MarkDecorator:
    """What a store has not."""
    return pytest.mark.xfail(strict=True, reason=reason)


def make_s3(options: dict[str, Any], use_obstore: bool = True) -> ObjectBackend:
    """The backend of a racing process."""
    from s3fs import S3FileSystem

    return open_s3(S3FileSystem(**options), use_obstore=use_obstore)


make_s3fs = functools.partial(make_s3, use_obstore=False)


def make_azure(options: dict[str, Any]) -> ObjectBackend:
    """The same, on Azure."""
    require_module("obstore")
    return open_azure("az", options)


def make_google(options: dict[str, Any]) -> ObjectBackend:
    """The same, on Google."""
    require_module("gcsfs")
    from gcsfs import GCSFileSystem

    return open_google(GCSFileSystem(**options))


@functools.cache
def shared(make: Callable[[dict[str, Any]], ObjectBackend], **options: str) -> ObjectBackend:
    """A backend for all tests of a store."""
    return make(options)


@functools.cache
def bucket_of(new: Callable[[dict[str, Any]], str], **options: str) -> str:
    """One bucket for all tests of a store."""
    return new(options)


class OnObjects(BackendContract):
    """The contract on one store. What is below is what a store has of its own."""

    MARKS = SLOW
    fixture: str
    make: Callable[[dict[str, Any]], ObjectBackend]
    new_bucket: Callable[[dict[str, Any]], str]

    @pytest.fixture(autouse=True)
    def options(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store: dict[str, Any] = request.getfixturevalue(self.fixture)
        monkeypatch.setattr(backend_of_objects, "FIRST_PAGE_KEYS_MAX", 2)  # so that a folder has several pages

    @pytest.fixture
    def backend(self, options: None) -> Backend:
        return shared(type(self).make, **self.store)

    @pytest.fixture
    def folder(self, options: None) -> str:
        return f"{bucket_of(type(self).new_bucket, **self.store)}/{uuid.uuid4().hex}"

    def spawn_arguments(self) -> Factory | None:
        return type(self).make, (self.store,)


class OnS3(OnObjects):
    tokens_tell_equal_bytes = False  # an ETag is a hash of the bytes
    make = staticmethod(make_s3)
    new_bucket = staticmethod(new_bucket)

    @property
    def raw(self) -> Any:
        """The filesystem, which reads and writes around the backend's verbs."""
        return shared(type(self).make, **self.store).fs

    def raw_read(self, path: str) -> bytes:
        data: bytes = self.raw.cat_file(path)
        return data

    def raw_write(self, path: str, data: bytes) -> None:
        self.raw.pipe_file(path, data)

    def raw_write_many(self, paths: Sequence[str], data: bytes) -> None:
        self.raw.pipe(dict.fromkeys(paths, data), batch_size=8)


class TestOnSeaweed(OnS3):
    MARKS = SLOW | {RACE: pytest.mark.slow, PAGES: pytest.mark.slow}  # SeaweedFS answers a race after seconds
    fixture = "seaweed"


@pytest.mark.slow
class TestOnSeaweedThroughS3fs(TestOnSeaweed):
    make = staticmethod(make_s3fs)


@pytest.mark.s3
@pytest.mark.slow
class TestOnMinio(OnS3):
    MARKS = SLOW | {
        **dict.fromkeys(DELETE_IF, fails("MinIO ignores If-Match on DELETE; the probe finds that out")),
        "test_unfinished_uploads_are_listed_and_aborted": fails(
            "MinIO lists uploads of one exact key only, and forgets them after 24 hours"
        ),
    }
    fixture = "minio"


@pytest.mark.nightly
class TestOnMinioThroughS3fs(TestOnMinio):
    make = staticmethod(make_s3fs)


class OnCloud(OnObjects):
    MARKS = SLOW | {PAGES: pytest.mark.slow}


@pytest.mark.clouds
class TestOnAzurite(OnCloud):
    fixture = "azurite"
    make = staticmethod(make_azure)
    new_bucket = staticmethod(new_container)

    def raw_read(self, path: str) -> bytes:
        data: bytes = blob_service(**self.store).get_blob_client(*path.split("/", 1)).download_blob().readall()
        return data

    def raw_write(self, path: str, data: bytes) -> None:
        blob_service(**self.store).get_blob_client(*path.split("/", 1)).upload_blob(data, overwrite=True)

    def raw_write_many(self, paths: Sequence[str], data: bytes) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda path: self.raw_write(path, data), paths))


@pytest.mark.clouds
class TestOnFakeGoogle(OnCloud):
    MARKS = OnCloud.MARKS | {
        **dict.fromkeys(DELETE_IF, fails("fake-gcs-server ignores the condition of a DELETE: probed")),
        "test_a_copy_with_a_stale_token_leaves_nothing": fails("fake-gcs-server ignores the condition of a rewrite"),
    }
    fixture = "fake_google"
    make = staticmethod(make_google)
    new_bucket = staticmethod(new_google_bucket)

    def raw_read(self, path: str) -> bytes:
        return self._sent("storage/v1/b/{}/o/{}?alt=media", path)

    def raw_write(self, path: str, data: bytes) -> None:
        self._sent("upload/storage/v1/b/{}/o?uploadType=media&name={}", path, data)

    def _sent(self, place: str, path: str, data: bytes | None = None) -> bytes:
        bucket, _, key = path.partition("/")
        url = f"{self.store['endpoint_url']}/{place.format(bucket, quote(key, safe=''))}"
        with urllib.request.urlopen(url, data) as answer:
            return bytes(answer.read())


# -- beyond the contract, and alike on every store -------------------------------------------------------------


@pytest.fixture
def backend(seaweed: dict[str, Any]) -> Driven:
    return Driven(shared(make_s3, **seaweed))


@pytest.fixture
def path(seaweed: dict[str, Any]) -> str:
    return f"{bucket_of(new_bucket, **seaweed)}/{uuid.uuid4().hex}"


def test_missing_file_is_not_a_file_with_another_token(backend, path):
    assert backend.delete_if(path, '"token"') is True
    with pytest.raises(FileNotFoundError):
        backend.read_range(path, 0, 1, '"token"')
    token = backend.create(path, b"one")
    assert backend.read_range(path, 3, 9, token) == backend.read_range(path, 3, 9) == b""


def test_files_of_several_buckets_are_deleted_in_batches(seaweed, backend, path, monkeypatch):
    monkeypatch.setattr("rollingfs.backend.objects.s3.bucket.S3Bucket.deletes_max", 10)
    bucket, other = path.partition("/")[0], new_bucket(seaweed)
    paths = [f"{path}/{number}" for number in range(25)] + [f"{other}/f"]
    for one in paths:
        backend.write(one, [b"x"])
    with count_requests(backend) as counts:
        backend.delete([*paths, bucket])  # a bucket is no file
    assert counts == {"DeleteObjects": 4}
    assert not backend.is_folder(path)
    assert not backend.list(other).entries


@pytest.mark.clouds
@pytest.mark.parametrize("make", [make_s3, make_s3fs, make_azure, make_google])
@pytest.mark.parametrize("verb", ARGUMENTS)
def test_without_a_server_every_verb_says_so(verb, make, monkeypatch):
    monkeypatch.setattr("rollingfs.backend.patience.PATIENCE_S", 0.0)
    url = f"http://127.0.0.1:{free_port()}"
    of_azure = {"connection_string": f"AccountName=a;AccountKey=a2V5;BlobEndpoint={url}/a"}
    of_google = {"endpoint_url": url, "token": "anon", "project": PROJECT}
    of_s3 = {"endpoint_url": url, "key": "k", "secret": "s"}
    backend = Driven(make({make_azure: of_azure, make_google: of_google}.get(make, of_s3)))
    with pytest.raises(OSError, match=r"[cC]ould not connect|no answer|no whole answer came from http://127") as raised:
        getattr(backend, verb)("container/file", *ARGUMENTS[verb])
    assert raised.value.errno == errno.EIO
