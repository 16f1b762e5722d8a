"""Reads by template: the same answers as botocore's; botocore itself reads wherever they could differ."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers import new_bucket, require_module

require_module("s3fs")

from aiobotocore.awsrequest import AioAWSResponse
from fsspec.asyn import sync
from s3fs import S3FileSystem

from rollingfs.backend.s3.backend import S3Backend
from rollingfs.backend.s3.receive import STRAIGHT_BYTES_MIN
from tests.support.proxy import CUT, Proxy, proxy_to

DATA = os.urandom(3 * STRAIGHT_BYTES_MIN)


class Store:
    """A backend behind a proxy, and the number of GetObjects that botocore signs."""

    def __init__(self, options: dict[str, Any], proxy: Proxy) -> None:
        self.proxy = proxy
        self.backend = S3Backend(S3FileSystem(**(options | {"endpoint_url": proxy.url}), skip_instance_cache=True))
        self.bucket = new_bucket(options)
        self.path = f"{self.bucket}/a b/log$header"
        self.token = self.do("create", self.path, DATA)
        client = sync(self.backend.loop, self.backend._client.session)
        self.counts: Counter[str] = Counter()
        for hook in ("before-sign", "before-send"):
            client.meta.events.register(f"{hook}.s3.GetObject", lambda hook=hook, **_: self.counts.update([hook]))
        self.events = client.meta.events

    def do(self, verb: str, *args: Any) -> Any:
        return sync(self.backend.loop, getattr(self.backend, verb), *args)


@pytest.fixture
def store(moto: dict[str, Any]) -> Iterator[Store]:
    with proxy_to(moto["endpoint_url"]) as proxy:
        yield Store(moto, proxy)


def test_only_the_first_get_from_a_bucket_goes_through_botocore_and_all_pass_the_hooks(store):
    first = store.do("read", store.path)
    again = store.do("read", store.path)
    assert (first.data, first.token, first.modified) == (again.data, again.token, again.modified)
    assert (again.data, again.token) == (DATA, store.token)
    assert store.do("read_range", store.path, 10, 30) == DATA[10:30]
    assert store.do("read_range", store.path, 5, 5 + 2 * STRAIGHT_BYTES_MIN) == DATA[5 : 5 + 2 * STRAIGHT_BYTES_MIN]
    assert store.do("read_if_changed", store.path, store.token) is None
    assert store.do("read_if_changed", store.path, '"other"').data == DATA
    assert store.counts == {"before-sign": 1, "before-send": 6}
    assert len({seen.headers["host"] for seen in store.proxy.of("GET")}) == 1


def test_what_is_not_there_is_said_as_by_botocore_and_says_nothing_against_the_template(store):
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            store.do("read", f"{store.bucket}/nothing")
        assert store.do("read_range", store.path, len(DATA) + 5, len(DATA) + 9) == b""
        assert store.do("read_range", store.path, len(DATA) - 5, len(DATA) + 9) == DATA[-5:]
    assert store.counts["before-sign"] == 1, "the refusal of the first was a template, too"


@pytest.mark.parametrize("fault", [(503, "SlowDown"), (500, "InternalError")])
def test_a_get_that_failed_for_the_moment_is_repeated_by_botocore(store, fault):
    store.do("read", store.path)
    store.proxy.fail(fault, method="GET")
    assert store.do("read_range", store.path, 10, 30) == DATA[10:30]
    assert store.counts["before-sign"] == 2
    assert store.do("read", store.path).data == DATA
    assert store.counts["before-sign"] == 2


def test_an_answer_that_breaks_off_is_asked_for_again_and_never_short(store):
    store.do("read", store.path)
    for read in (("read", store.path), ("read_range", store.path, 0, len(DATA)), ("read_range", store.path, 0, 100)):
        store.proxy.fail(CUT, method="GET")
        found = store.do(*read)
        assert (found if isinstance(found, bytes) else found.data) == DATA[: 100 if read[-1] == 100 else None]


def test_a_refusal_is_what_botocore_raises_and_the_next_goes_through_botocore(store):
    store.do("read", store.path)
    for _ in range(2):
        store.proxy.fail((403, "AccessDenied"), method="GET")
        with pytest.raises(PermissionError, match="AccessDenied"):
            store.do("read", store.path)
    assert store.counts["before-sign"] == 2
    assert store.do("read", store.path).data == DATA


def test_an_answer_without_the_headers_that_are_needed_is_left_to_botocore(store):
    store.do("read", store.path)

    class Raw:
        closed = False

        def close(self) -> None:
            self.closed = True

    raw, given = Raw(), []

    def answer(request: Any, **_: Any) -> AioAWSResponse | None:
        if given:
            return None
        given.append(request)
        return AioAWSResponse(request.url, 200, {"content-length": "3"}, raw)

    store.events.register_first("before-send.s3.GetObject", answer)
    asked = len(store.proxy.of("GET"))
    for _ in range(3):
        assert store.do("read", store.path).data == DATA
    assert given
    assert raw.closed
    assert len(store.proxy.of("GET")) == asked + 3, "a store that says so little is asked once each time"


def test_what_the_user_asks_for_is_in_every_repetition(moto):
    with proxy_to(moto["endpoint_url"]) as proxy:
        options = moto | {"requester_pays": True, "token": "session"}
        store = Store(options, proxy)
        for _ in range(3):
            store.do("read", store.path)
        gets = [seen.headers for seen in proxy.of("GET")]
    assert store.counts["before-sign"] == 1
    for name in ("x-amz-request-payer", "x-amz-security-token", "user-agent", "host"):
        assert len({headers.get(name) for headers in gets}) == 1, name
        assert gets[0].get(name)


def test_anonymous_readers_stay_with_botocore(moto):
    with proxy_to(moto["endpoint_url"]) as proxy:
        store = Store(moto, proxy)
        options = {key: value for key, value in moto.items() if key not in ("key", "secret")}
        nobody = S3Backend(S3FileSystem(**options, anon=True, skip_instance_cache=True))
        for _ in range(2):
            with contextlib.suppress(PermissionError):  # as the store wants it
                assert sync(nobody.loop, nobody.read, store.path).data == DATA
        (ours,) = nobody._client._ours.values()
        assert ours.gets._templates.of(store.bucket) is None
