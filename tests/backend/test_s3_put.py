"""Replacements by template: the same requests as botocore's; botocore itself sends wherever they could differ."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.servers import new_bucket, require_module

require_module("s3fs")

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fsspec.asyn import sync
from s3fs import S3FileSystem

from rollingfs.backend.s3 import template as s3_template
from rollingfs.backend.s3.backend import S3Backend
from rollingfs.backend.s3.receive import host_of
from rollingfs.errors import ConflictError
from tests.support.proxy import proxy_to

KEYS = [
    "a b/c$header",
    "ü/日本/e\u0301",
    "plus+and%41&=~'()!*;:@,",
    "question?mark#hash",
    "dot./..dots/._-~",
    "back\\slash [x] {y} |^`<>",
    '"quotes"',
]


def _backend(options: dict[str, Any], **more: Any) -> tuple[S3Backend, Counter[str]]:
    """A backend, and the numbers of requests that botocore signs and that are sent."""
    backend = S3Backend(S3FileSystem(**(options | more), skip_instance_cache=True))
    client = sync(backend.loop, backend._client.session)
    counts: Counter[str] = Counter()
    for hook in ("before-sign", "before-send"):
        client.meta.events.register(f"{hook}.s3.PutObject", lambda hook=hook, **_: counts.update([hook]))
    return backend, counts


def _replaced(backend: S3Backend, path: str, times: int) -> str:
    token = sync(backend.loop, backend.create, path, b"0")
    for number in range(1, times + 1):
        token = sync(backend.loop, backend.replace, path, b"%d" % number, token)
    return token


@pytest.mark.parametrize("method", ["PUT", "GET"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/b/a%20b/c%24header", "https://b.s3.amazonaws.com:443/key"])
@pytest.mark.parametrize("token", [None, "session token"])
def test_the_signature_is_the_one_that_botocore_makes(url: str, token: str | None, method: str) -> None:
    credentials = Credentials("id", "secret", token).get_frozen_credentials()
    request = AWSRequest(method, url, {"User-Agent": "x", "If-Match": '"e"', "x-amz-acl": " two  words "}, b"body")
    S3SigV4Auth(credentials, "s3", "eu-central-1").add_auth(request)
    found = s3_template._AUTHORIZATION.fullmatch(request.headers["Authorization"])
    assert found is not None
    signed = {**{name.lower(): value for name, value in request.headers.items()}, "host": host_of(urlsplit(url))}
    to_sign = {name: signed[name] for name in found["headers"].split(";")}
    payload = signed["x-amz-content-sha256"]
    made = s3_template.signature(method, url, to_sign, payload, credentials, "eu-central-1", "s3")
    assert made == (found["signature"], found["headers"])


def test_only_the_first_put_to_a_bucket_goes_through_botocore_and_all_pass_the_hooks(moto: dict[str, Any]) -> None:
    backend, counts = _backend(moto)
    path = f"{new_bucket(moto)}/a b/c$header"
    token = _replaced(backend, path, 5)
    assert counts == {"before-sign": 1, "before-send": 6}
    assert sync(backend.loop, backend.read, path).data == b"5"
    with pytest.raises(ConflictError):
        sync(backend.loop, backend.replace, path, b"late", '"0123"')
    with pytest.raises(FileExistsError):
        sync(backend.loop, backend.create, path, b"late")
    sync(backend.loop, backend.replace, path, b"6", token)
    assert counts["before-sign"] == 1, "a lost race says nothing against the template"


@pytest.mark.s3
def test_keys_of_all_kinds_are_written_and_read_as_by_botocore(minio: dict[str, Any]) -> None:
    backend, counts = _backend(minio)
    bucket = new_bucket(minio)
    plain = S3FileSystem(**minio, skip_instance_cache=True)
    for key in KEYS:
        token = sync(backend.loop, backend.create, f"{bucket}/{key}", key.encode())
        assert plain.call_s3("get_object", Bucket=bucket, Key=key)["ETag"] == token
        assert sync(backend.loop, backend.read, f"{bucket}/{key}").data == key.encode()
        sync(backend.loop, backend.replace, f"{bucket}/{key}", b"again", token)
    assert counts["before-sign"] == 1
    listed = plain.call_s3("list_objects_v2", Bucket=bucket)["Contents"]
    assert sorted(entry["Key"] for entry in listed) == sorted(KEYS)


def test_buckets_have_templates_of_their_own_and_only_so_many_are_kept(
    moto: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_template, "TEMPLATES_MAX", 2)
    backend, counts = _backend(moto)
    buckets = [new_bucket(moto) for _ in range(3)]
    for bucket in (*buckets, *buckets[1:], buckets[0]):
        _replaced(backend, f"{bucket}/c$header", 0)
        sync(backend.loop, backend.delete, [f"{bucket}/c$header"])
    assert counts["before-sign"] == 4, "one for each bucket, and one for that which was forgotten"


@pytest.mark.parametrize(
    "more",
    [
        {"config_kwargs": {"request_checksum_calculation": "when_supported"}},
        {"config_kwargs": {"signature_version": "s3"}},
    ],
)
def test_requests_that_no_template_can_repeat_stay_with_botocore(moto: dict[str, Any], more: dict[str, Any]) -> None:
    backend, counts = _backend(moto, **more)
    path = f"{new_bucket(moto)}/c$header"
    _replaced(backend, path, 3)
    assert counts == {"before-sign": 4, "before-send": 4}
    assert sync(backend.loop, backend.read, path).data == b"3"


def test_what_the_user_asks_for_is_in_every_repetition(moto: dict[str, Any]) -> None:
    bucket = new_bucket(moto)
    with proxy_to(moto["endpoint_url"]) as proxy:
        additional = {"ServerSideEncryption": "AES256", "ACL": "bucket-owner-full-control"}
        options = {"endpoint_url": proxy.url, "s3_additional_kwargs": additional, "token": "session"}
        backend, counts = _backend(moto, **options)
        _replaced(backend, f"{bucket}/c$header", 2)
        puts = proxy.of("PUT")
    assert counts["before-sign"] == 1
    for name in ("x-amz-server-side-encryption", "x-amz-acl", "x-amz-security-token", "host", "user-agent"):
        assert len({put.headers.get(name) for put in puts}) == 1, name
        assert puts[0].headers.get(name)
    assert [put.headers.get("if-none-match") for put in puts] == ["*", None, None]
    assert len({put.headers.get("if-match") for put in puts}) == 3


@pytest.mark.parametrize("fault", [(503, "SlowDown"), (400, "ExpiredToken")])
def test_after_a_refusal_botocore_is_asked_again(moto: dict[str, Any], fault: tuple[int, str]) -> None:
    bucket = new_bucket(moto)
    with proxy_to(moto["endpoint_url"]) as proxy:
        backend, counts = _backend(moto, endpoint_url=proxy.url)
        path = f"{bucket}/c$header"
        token = _replaced(backend, path, 1)
        before = len(proxy.of("PUT"))
        proxy.fail(fault, method="PUT")
        with pytest.raises(OSError, match=fault[1]):
            sync(backend.loop, backend.replace, path, b"two", token)
        assert len(proxy.of("PUT")) == before + 1, "a conditional request is sent once"
        sync(backend.loop, backend.replace, path, b"two", token)
    assert counts["before-sign"] == 2


def test_credentials_are_asked_for_with_every_request(moto: dict[str, Any]) -> None:
    backend, _ = _backend(moto)
    path = f"{new_bucket(moto)}/c$header"
    token = _replaced(backend, path, 1)
    (ours,) = backend._client._ours.values()
    template = ours.puts._templates.of(path.split("/")[0])
    fresh = Credentials("other", "secret", "token").get_frozen_credentials()

    async def get_auth(**_: Any) -> Any:
        return SimpleNamespace(credentials=fresh)

    template.signer.get_auth = get_auth
    prepared = sync(backend.loop, template.prepared, "a key", {"If-Match": token}, b"body")
    assert prepared.headers["X-Amz-Security-Token"] == "token"
    assert "Credential=other/" in prepared.headers["Authorization"]
