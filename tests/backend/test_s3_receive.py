"""Large ranges received in place: right bytes, few connections; botocore handles everything else."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers import require_module

require_module("s3fs")

from aiobotocore.httpsession import AIOHTTPSession
from fsspec.asyn import sync
from s3fs import S3FileSystem

from rollingfs.backend.s3 import client
from rollingfs.backend.s3.backend import S3Backend
from tests.support.proxy import CUT, DROP_BEFORE, HOLD, Proxy, proxy_to
from tests.support.servers import new_bucket

MIB = 2**20
DATA = os.urandom(3 * MIB)


@pytest.fixture(scope="module")
def proxy(moto: dict[str, Any]) -> Iterator[Proxy]:
    with proxy_to(moto["endpoint_url"]) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def path(moto: dict[str, Any]) -> str:
    path = f"{new_bucket(moto)}/object"
    S3FileSystem(**moto).pipe_file(path, DATA)
    return path


@pytest.fixture
def backend(moto: dict[str, Any], proxy: Proxy) -> Iterator[S3Backend]:
    proxy.seen.clear()
    backend = S3Backend(S3FileSystem(**moto | {"endpoint_url": proxy.url, "config_kwargs": {"read_timeout": 1}}))
    yield backend
    proxy.fault = lambda _: None
    sync(backend.loop, backend.close)


def read(backend: S3Backend, path: str, start: int, end: int) -> bytes:
    return sync(backend.loop, backend.read_range, path, start, end)


def test_a_large_range_is_received_in_place(backend, proxy, path, received):
    assert read(backend, path, 5, 2 * MIB + 5) == DATA[5 : 2 * MIB + 5]
    target = bytearray(MIB)
    assert sync(backend.loop, backend.read_into, path, 7, memoryview(target)) == MIB
    assert target == DATA[7 : MIB + 7]
    assert received == [2 * MIB, MIB]
    assert len(proxy.of("GET")) == 2
    assert {seen.headers["accept-encoding"] for seen in proxy.of("GET")} == {"identity"}


def test_a_small_range_is_left_to_botocore(backend, path, received):
    assert read(backend, path, 5, 500) == DATA[5:500]
    assert received == []


def test_a_range_beyond_the_end_is_what_there_is(backend, path, received):
    assert read(backend, path, 2 * MIB, 9 * MIB) == DATA[2 * MIB :]
    assert read(backend, path, 3 * MIB, 9 * MIB) == b""
    assert received == [MIB]


def test_what_is_not_there_is_said_by_botocore(backend, path):
    with pytest.raises(FileNotFoundError):
        read(backend, f"{path}-not", 0, 2 * MIB)


@pytest.mark.parametrize("fault", [CUT, DROP_BEFORE, (503, "SlowDown"), HOLD])
def test_an_answer_that_fails_is_asked_for_again(backend, proxy, path, fault, monkeypatch):
    monkeypatch.setattr(client, "RETRY_DELAY_FIRST_S", 0.001)
    proxy.fail(fault, method="GET")
    assert read(backend, path, 0, 2 * MIB) == DATA[: 2 * MIB]
    assert len(proxy.of("GET")) >= 2


def test_a_store_that_ignores_ranges_is_not_asked_straight_again(backend, proxy, path, received):
    proxy.fault = lambda seen: (200, DATA)
    assert read(backend, path, 5, 2 * MIB) == DATA[5 : 2 * MIB]
    asked = len(proxy.of("GET"))
    assert read(backend, path, 5, 2 * MIB) == DATA[5 : 2 * MIB]
    assert len(proxy.of("GET")) - asked == 2  # for the range, and for the whole
    assert received == []


def test_reads_at_once_use_no_more_connections_than_they_may(moto, proxy, path, received):
    options = moto | {"endpoint_url": proxy.url, "config_kwargs": {"max_pool_connections": 2}}
    backend = S3Backend(S3FileSystem(**options))

    async def all_at_once() -> list[bytes]:
        return await asyncio.gather(*(backend.read_range(path, at, at + MIB) for at in range(12)))

    assert sync(backend.loop, all_at_once) == [DATA[at : at + MIB] for at in range(12)]
    (ours,) = backend._client._ours.values()
    (idle,) = ours.receiver._idle.values()
    assert (len(received), len(idle)) == (12, 2)
    sync(backend.loop, backend.close)
    assert not ours.receiver._idle


def test_a_read_that_is_cancelled_closes_its_connection(backend, proxy, path, received):
    async def cancelled() -> None:
        proxy.fault = lambda seen: HOLD
        task = asyncio.ensure_future(backend.read_range(path, 0, 2 * MIB))
        while not proxy.of("GET"):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    sync(backend.loop, cancelled)
    (ours,) = backend._client._ours.values()
    assert not any(ours.receiver._idle.values())
    proxy.fault = lambda _: None
    assert read(backend, path, 0, 2 * MIB) == DATA[: 2 * MIB]
    assert received == [2 * MIB]


class Session(AIOHTTPSession):
    """Settings of a user that change how botocore sends."""


def _socket(address: Any) -> socket.socket:
    return socket.socket(*address[:3])


@pytest.mark.parametrize(
    "options",
    [
        {"client_kwargs": {"verify": False}},
        {"config_kwargs": {"connector_args": {"socket_factory": _socket}}},
        {"config_kwargs": {"http_session_cls": Session}},
    ],
    ids=["certificates unchecked", "own sockets", "own sessions"],
)
def test_what_the_user_asks_of_connections_is_botocores_business(moto, path, received, options):
    backend = S3Backend(S3FileSystem(**moto | options))
    assert read(backend, path, 0, 2 * MIB) == DATA[: 2 * MIB]
    assert received == []


def test_the_pool_has_room_for_the_concurrency() -> None:
    backend = S3Backend(S3FileSystem(anon=True), 100)
    assert (backend.requests_max, backend.fs.config_kwargs["max_pool_connections"]) == (100, 200)
    few = S3FileSystem(anon=True, config_kwargs={"max_pool_connections": 50})
    with pytest.raises(ValueError, match="max_concurrency is 100, but config_kwargs gives max_pool_connections=50"):
        S3Backend(few, 100)
