"""Https and proxies: obstore trusts the certificates and uses the proxies that botocore uses."""

import errno
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import require_module

require_module("s3fs")

import botocore.httpsession

from rollingfs import RollingPolicy
from tests.backend.conftest import BUNDLES
from tests.support.certificates import make_certificate
from tests.support.examples import slowly
from tests.support.s3 import driven_s3, rolling_s3, ways_of
from tests.support.servers import minio_server, new_bucket

MIB = 2**20
DATA = os.urandom(13 * MIB)
CHUNKS = RollingPolicy(max_bytes=6 * MIB, inline_bytes=100)

pytestmark = pytest.mark.usefixtures("no_outside_network")


@pytest.fixture(scope="module")
def tls_bucket(minio_tls: tuple[dict[str, Any], Path]) -> str:
    options, certificate = minio_tls
    backend = driven_s3(options, client_kwargs={"verify": str(certificate)})
    backend.make_folder(bucket := f"rollingfs-{uuid.uuid4().hex[:12]}")
    return bucket


@pytest.fixture
def tls_path(tls_bucket: str) -> str:
    return f"{tls_bucket}/{uuid.uuid4().hex}/log"


@pytest.fixture(params=["default", "verify", *slowly("AWS_CA_BUNDLE"), "REQUESTS_CA_BUNDLE", "unverified"])
def trust(
    request: pytest.FixtureRequest, minio_tls: tuple[dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The options of one way to make a client trust the store."""
    certificate = str(minio_tls[1])
    if request.param == "default":
        monkeypatch.setattr(botocore.httpsession, "where", lambda: certificate)
        return {}
    if request.param in BUNDLES:
        monkeypatch.setenv(request.param, certificate)
        return {}
    return {"client_kwargs": {"verify": certificate if request.param == "verify" else False}}


# -- https ---------------------------------------------------------------------------------------------------


@pytest.mark.s3
def test_everything_works_over_https(minio_tls, trust, tls_path, told, request):
    fs = rolling_s3(minio_tls[0], **trust)
    fs.create(tls_path, policy=CHUNKS)
    for number in range(10):
        fs.append(tls_path, b"%02d" % number)
    assert fs.cat_file(tls_path) == b"".join(b"%02d" % number for number in range(10))
    with fs.open(f"{tls_path}-large", "wb") as file:
        file.write(DATA)
    assert fs.cat_file(f"{tls_path}-large") == DATA
    is_named = request.node.callspec.params["trust"] in ("verify", *BUNDLES)
    assert ways_of(fs._backend) == {"BotocoreObjects" if is_named else "ObstoreObjects"}
    assert [text.count("a file of trusted CAs") for text in told()] == [1] * is_named


@pytest.mark.s3
@pytest.mark.parametrize("wrong", ["no CA", "another CA", "another name"])
def test_a_store_that_cannot_be_trusted_is_sent_nothing(minio_tls, wrong, tls_bucket, tmp_path):
    options, certificate = minio_tls
    path = f"{tls_bucket}/{uuid.uuid4().hex}/log"
    trusting = rolling_s3(options, client_kwargs={"verify": str(certificate)})
    trusting.pipe_file(path, DATA)
    more: dict[str, Any] = {}
    if wrong == "another CA":
        more = {"client_kwargs": {"verify": str(make_certificate(tmp_path))}}
    elif wrong == "another name":
        more = {"client_kwargs": {"verify": str(certificate)}}
        options = options | {"endpoint_url": options["endpoint_url"].replace("127.0.0.1", "localhost")}
    fs, backend = rolling_s3(options, **more), driven_s3(options, **more)
    (chunk,) = trusting._backend.fs.find(f"{path}$chunks")[:1]
    for attempt in (
        lambda: fs.append(path, b"data"),
        lambda: fs.cat_file(path),
        lambda: fs.pipe_file(f"{path}-new", b"data"),
        lambda: backend.read_range(chunk, 0, 2 * MIB),
        lambda: backend.create(f"{path}-raw", b"data"),
    ):
        with pytest.raises(OSError, match=r"CERTIFICATE_VERIFY_FAILED.*client_kwargs=.*AWS_CA_BUNDLE") as raised:
            attempt()
        assert raised.value.errno != errno.EIO, "callers ride out what may be an outage"
    assert trusting.find(path.rpartition("/")[0]) == [path]
    assert trusting.info(path)["size"] == len(DATA)


@pytest.mark.s3
def test_certificate_that_only_s3fs_trusts_is_left_to_s3fs(minio, tmp_path, told, monkeypatch):
    certificate = make_certificate(tmp_path, is_own_ca=True)
    monkeypatch.setattr(botocore.httpsession, "where", lambda: str(certificate))
    with minio_server(certificate) as options:
        backend = driven_s3(options)
        backend.make_folder(bucket := f"rollingfs-{uuid.uuid4().hex[:12]}")
        backend.replace(f"{bucket}/file", b"two", backend.create(f"{bucket}/file", b"one"))
        assert backend.read(f"{bucket}/file").data == b"two"
    assert ways_of(backend) == {"BotocoreObjects"}
    (text,) = told()
    assert "certificate cannot be trusted" in text


@pytest.mark.s3
def test_a_key_of_the_customers_encrypts_either_way(minio_tls, tls_path):
    options, _ = minio_tls
    asked = {"SSECustomerKey": os.urandom(32), "SSECustomerAlgorithm": "AES256"}
    more = {"client_kwargs": {"verify": False}}
    backend = driven_s3(options, **more, s3_additional_kwargs=asked)
    backend.replace(tls_path, b"two", backend.create(tls_path, b"one"))
    assert ways_of(backend) == {"ObstoreObjects"}
    through_s3fs = driven_s3(options, **more, s3_additional_kwargs=asked, use_obstore=False)
    for reader in (backend, through_s3fs):
        assert reader.read(tls_path).data == b"two"
        assert reader.read_range(tls_path, 1, 3) == b"wo"
        assert reader.stat(tls_path).size == 3
    keyless = driven_s3(options, **more)
    with pytest.raises(OSError, match="reading"):
        keyless.read(tls_path)


# -- proxies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["config", "environment", "environment, changed later"])
def test_all_requests_go_through_the_proxy_that_botocore_uses(seaweed, proxy, where, monkeypatch):
    bucket = new_bucket(seaweed)
    more: dict[str, Any] = {"config_kwargs": {"proxies": {"http": proxy.url}}} if where == "config" else {}
    if where != "config":
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
    backend = driven_s3(seaweed, **more)
    if where == "environment, changed later":  # botocore looks when it makes a client
        backend.session()
        monkeypatch.delenv("HTTP_PROXY")
    token = backend.create(f"{bucket}/header", b"0")
    for number in range(1, 4):
        token = backend.replace(f"{bucket}/header", b"%d" % number, token)
    backend.write(f"{bucket}/chunk", [DATA[: 3 * MIB]])
    assert backend.read_range(f"{bucket}/chunk", 0, 2 * MIB) == DATA[: 2 * MIB]
    assert (len(proxy.of("PUT")), len(proxy.of("GET"))) == (5, 1)
    assert {seen.path.partition("//")[0] for seen in proxy.seen} == {"http:"}, "a proxy is sent whole URLs"
    assert ways_of(backend) == {"ObstoreObjects"}
