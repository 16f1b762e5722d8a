"""What an attack on the data path of S3 found: many requests at once, odd answers, odd metadata, odd credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers import new_bucket, require_module

require_module("s3fs")
require_module("obstore")

from fsspec.asyn import sync
from s3fs import S3FileSystem

from rollingfs.backend.obstores.answers import UntrustedStoreError
from rollingfs.backend.s3 import obstore_objects
from rollingfs.backend.s3.backend import S3Backend
from tests.support.proxy import Proxy, Seen, proxy_to

DATA = bytes(range(100))
MODIFIED = ("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")


@pytest.fixture
def proxy(moto: dict[str, Any]) -> Iterator[Proxy]:
    with proxy_to(moto["endpoint_url"]) as proxy:
        yield proxy


def _backend(moto: dict[str, Any], proxy: Proxy, **more: Any) -> S3Backend:
    return S3Backend(S3FileSystem(**moto | {"endpoint_url": proxy.url} | more, skip_instance_cache=True))


def _do(backend: S3Backend, verb: str, *arguments: Any) -> Any:
    return sync(backend.loop, getattr(backend, verb), *arguments)


def _ways(backend: S3Backend) -> list[str]:
    return [type(objects).__name__ for objects in backend._client.routes.open]


async def _at_once(backend: S3Backend, paths: list[str]) -> list[Any]:
    return await asyncio.gather(*(backend.read(path) for path in paths), return_exceptions=True)


# -- many first requests at once -----------------------------------------------------------------------------


def test_many_first_requests_to_a_bucket_elsewhere_all_find_it(moto, proxy):
    backend, region = _backend(moto, proxy), "eu-west-1"
    bucket = f"{new_bucket(moto)}-there"
    place = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    sync(backend.loop, backend._client.call, "create_bucket", Bucket=bucket, **place)
    paths = [f"{bucket}/file-{number}" for number in range(16)]
    for path in paths:
        _do(backend, "write", path, [DATA])

    def fault(seen: Seen) -> Any:
        is_wrong = f"/{region}/" not in seen.headers["authorization"]
        return (301, "PermanentRedirect") if "/file-" in seen.path and is_wrong else None

    proxy.fault = fault
    newcomer = _backend(moto, proxy)
    found = sync(newcomer.loop, _at_once, newcomer, paths)
    assert [getattr(blob, "data", blob) for blob in found] == [DATA] * 16
    assert _ways(newcomer) == ["ObstoreObjects"]


def test_many_first_requests_to_a_store_that_only_s3fs_trusts_all_succeed(moto, proxy, monkeypatch):
    backend = _backend(moto, proxy)
    bucket = new_bucket(moto)
    paths = [f"{bucket}/file-{number}" for number in range(16)]
    for path in paths:
        _do(backend, "write", path, [DATA])

    async def refused(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(0.01)
        raise UntrustedStoreError("the store's certificate cannot be trusted")

    monkeypatch.setattr(obstore_objects.ObstoreObjects, "get", refused)
    newcomer = _backend(moto, proxy)
    found = sync(newcomer.loop, _at_once, newcomer, paths)
    assert [getattr(blob, "data", blob) for blob in found] == [DATA] * 16
    assert _ways(newcomer) == ["S3fsObjects"]
