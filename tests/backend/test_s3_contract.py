"""The backend contract on S3: on SeaweedFS and on MinIO; through obstore, and through s3fs alone."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.servers import require_module

require_module("s3fs")

from s3fs import S3FileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.s3.backend import S3Backend
from rollingfs.testing import BackendContract, Factory
from tests.support.servers import new_bucket, shared_backend


def make_backend(options: dict[str, Any], use_obstore: bool) -> S3Backend:
    """The backend of a racing process."""
    return S3Backend(S3FileSystem(**options), use_obstore=use_obstore)


@functools.cache
def through_s3fs(**options: str) -> S3Backend:
    """A backend that never uses obstore, for all tests of a store."""
    return make_backend(options, False)


@functools.cache
def raw(**options: str) -> S3FileSystem:
    """A filesystem that reads and writes around the backend."""
    return S3FileSystem(**options, use_listings_cache=False, skip_instance_cache=True)


@functools.cache
def bucket_of(**options: str) -> str:
    """One bucket for all tests of a store."""
    return new_bucket(options)


RACERS = ["threads", pytest.param("processes", marks=pytest.mark.slow)]  # four processes take 4 s to start


class OnS3(BackendContract):
    tokens_tell_equal_bytes = False  # an ETag is a hash of the bytes
    use_obstore = True

    @pytest.fixture(autouse=True)
    def options(self, store: dict[str, Any]) -> None:
        self.store = store

    @pytest.fixture
    def backend(self, store: dict[str, Any]) -> S3Backend:
        backend: S3Backend = (shared_backend if self.use_obstore else through_s3fs)(**store)
        return backend

    @pytest.fixture
    def folder(self, store: dict[str, Any]) -> str:
        return f"{bucket_of(**store)}/{uuid.uuid4().hex}"

    def raw_read(self, path: str) -> bytes:
        data: bytes = raw(**self.store).cat_file(path)
        return data

    def raw_write(self, path: str, data: bytes) -> None:
        raw(**self.store).pipe_file(path, data)

    def raw_write_many(self, paths: Sequence[str], data: bytes) -> None:
        raw(**self.store).pipe(dict.fromkeys(paths, data), batch_size=8)

    def spawn_arguments(self) -> Factory:
        return make_backend, (self.store, self.use_obstore)


class TestOnSeaweed(OnS3):
    @pytest.fixture
    def store(self, seaweed: dict[str, Any]) -> dict[str, Any]:
        return seaweed

    @pytest.mark.slow  # a probe on SeaweedFS, in tests/backend/test_race.py, has such races
    @pytest.mark.parametrize("kind", ["threads", "processes"])
    def test_every_race_of_creates_and_of_replaces_has_one_winner(
        self, backend: Backend, folder: str, kind: str
    ) -> None:
        super().test_every_race_of_creates_and_of_replaces_has_one_winner(backend, folder, kind)

    @pytest.mark.parametrize("kind", RACERS)
    def test_no_acknowledged_increment_is_lost(self, backend: Backend, folder: str, kind: str) -> None:
        super().test_no_acknowledged_increment_is_lost(backend, folder, kind)

    @pytest.mark.slow
    def test_of_two_and_of_sixteen_writers_at_once_one_wins(self, backend: Backend, folder: str) -> None:
        super().test_of_two_and_of_sixteen_writers_at_once_one_wins(backend, folder)


@pytest.mark.slow
class TestOnSeaweedThroughS3fs(TestOnSeaweed):
    use_obstore = False


@pytest.mark.s3
@pytest.mark.slow
class TestOnMinio(OnS3):
    @pytest.fixture
    def store(self, minio: dict[str, Any]) -> dict[str, Any]:
        return minio

    @pytest.mark.xfail(strict=True, reason="MinIO ignores If-Match on DELETE; the probe finds that out")
    def test_delete_if_deletes_only_what_has_the_token(self, backend: Backend, folder: str) -> None:
        super().test_delete_if_deletes_only_what_has_the_token(backend, folder)

    @pytest.mark.xfail(strict=True, reason="MinIO ignores If-Match on DELETE; the probe finds that out")
    def test_delete_if_of_a_plain_file_leaves_what_was_written_since(self, backend: Backend, folder: str) -> None:
        super().test_delete_if_of_a_plain_file_leaves_what_was_written_since(backend, folder)

    @pytest.mark.xfail(strict=True, reason="MinIO lists uploads of one exact key only, and forgets them after 24 hours")
    def test_unfinished_uploads_are_listed_and_aborted(self, backend: Backend, folder: str) -> None:
        super().test_unfinished_uploads_are_listed_and_aborted(backend, folder)


class TestOnMinioThroughS3fs(TestOnMinio):
    use_obstore = False
