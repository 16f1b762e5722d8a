"""What obstore is told of a bucket: where botocore would go, what the user asked for, or why it cannot be told."""

import base64
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.s3 import driven_s3
from tests.support.servers import new_bucket, require_module

require_module("s3fs")
require_module("obstore")

from aiobotocore.session import AioSession
from botocore.awsrequest import AWSResponse
from fsspec.asyn import sync
from s3fs import S3FileSystem

from rollingfs.backend.objects.request_errors import NotByObstoreError
from rollingfs.backend.objects.s3.backend import S3Backend
from rollingfs.backend.objects.s3.obstore_options import Settings, obstore_options, plain_settings, settings_of

pytestmark = pytest.mark.usefixtures("no_outside_network")

KEYS = {"key": "id", "secret": "secret"}
SESSION = AioSession()
"""Shared, because each new one reads botocore's rules again."""
CUSTOM = "http://127.0.0.1:9000"
USUAL = (True, dict[str, str](), __file__)
"""Certificates and proxies."""


@pytest.fixture(autouse=True)
def nothing_of_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "BOTO"))]:
        monkeypatch.delenv(name)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))


class Options(NamedTuple):
    """The options of obstore for a bucket."""

    bucket: str
    config: dict[str, Any]
    client: dict[str, Any]
    attributes: dict[str, str]


class Seen(Exception):
    """Ends a request of botocore's before it is sent."""


def connected(**given: Any) -> S3Backend:
    client = S3Backend(S3FileSystem(**(KEYS | {"session": SESSION} | given), skip_instance_cache=True))
    sync(client.fs.loop, client.session)
    return client


def told(
    client: S3Backend,
    bucket: str = "bucket",
    *,
    region: str | None = None,
    environment: Any = None,
    connection: Any = USUAL,
    settings: Settings | None = None,
) -> Options:
    settings = settings or settings_of(sync(client.fs.loop, client.session), *connection)
    return Options(bucket, *obstore_options(bucket, client.fs, settings, environment or {}, region))


def made(bucket: str = "bucket", *, region: str | None = None, environment: Any = None, **given: Any) -> Options:
    return told(connected(**given), bucket, region=region, environment=environment)


def url_of_botocore(client: S3Backend, bucket: str) -> str:
    """Where botocore would send a GetObject of ``key``, without its query."""
    urls = []

    def seen(request: Any, **_: object) -> AWSResponse:
        urls.append(request.url)
        raise Seen

    session = sync(client.fs.loop, client.session)
    session.meta.events.register_first("before-send.s3", seen)
    with pytest.raises(Seen):
        sync(client.fs.loop, client.call, "get_object", Bucket=bucket, Key="key")
    session.meta.events.unregister("before-send.s3", seen)
    return str(urls[0]).partition("?")[0]


def url_of(options: Options) -> str:
    endpoint = options.config["endpoint"]
    return f"{endpoint}/key" if options.config["virtual_hosted_style_request"] else f"{endpoint}/{options.bucket}/key"


VIRTUAL = {"config_kwargs": {"s3": {"addressing_style": "virtual"}}}
PATH = {"config_kwargs": {"s3": {"addressing_style": "path"}}}


@pytest.mark.parametrize(
    "given",
    [
        {"endpoint_url": CUSTOM},
        {"endpoint_url": CUSTOM} | PATH,
        {"endpoint_url": "https://store.example"} | VIRTUAL,
        {"client_kwargs": {"endpoint_url": "https://store.example/below/"}},
        {"client_kwargs": {"region_name": "eu-central-1"}},
        {"client_kwargs": {"region_name": "cn-north-1"}},
        {"client_kwargs": {"region_name": "eu-central-1", "use_ssl": False}},
        {"client_kwargs": {"region_name": "eu-central-1"}} | PATH,
        {"client_kwargs": {"region_name": "eu-central-1"}, "config_kwargs": {"use_dualstack_endpoint": True}},
        {"client_kwargs": {"region_name": "us-west-2"}, "config_kwargs": {"use_fips_endpoint": True}},
        {"config_kwargs": {"region_name": "us-east-1", "s3": {"us_east_1_regional_endpoint": "regional"}}},
    ],
    ids=str,
)
def test_requests_go_where_botocore_sends_them(given):
    client = connected(**given)
    for bucket in ("bucket", "with.dots", "Upper_case"):
        assert url_of(told(client, bucket)) == url_of_botocore(client, bucket)


def test_variables_of_the_environment_count_as_botocore_reads_them(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://elsewhere:1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    options = made(session=AioSession())
    assert (options.config["endpoint"], options.config["region"]) == ("http://elsewhere:1", "eu-north-1")
    assert options.config["aws_endpoint_url_s3"] == options.config["endpoint"]
    assert made(endpoint_url=CUSTOM).config["aws_endpoint_url_s3"] == CUSTOM


def test_global_host_is_not_asked_because_it_may_redirect():
    assert url_of_botocore(connected(), "bucket") == "https://bucket.s3.amazonaws.com/key"
    assert url_of(made()) == "https://bucket.s3.us-east-1.amazonaws.com/key"
    assert url_of(made(region="eu-west-1")) == "https://bucket.s3.eu-west-1.amazonaws.com/key"
    assert made(region="eu-west-1").config["region"] == "eu-west-1"
    assert url_of(made(region="eu-west-1", endpoint_url=CUSTOM)) == f"{CUSTOM}/bucket/key"


def test_bucket_of_s3_express_is_asked_in_its_zone():
    options = made("logs--usw2-az1--x-s3", client_kwargs={"region_name": "us-west-2"})
    assert url_of(options) == "https://logs--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com/key"
    assert options.config["s3_express"]
    assert not made("logs--usw2-az1--x-s3", endpoint_url=CUSTOM).config["s3_express"]


def test_timeouts_connections_and_signatures():
    config = {"connect_timeout": 1, "read_timeout": 2.5, "max_pool_connections": 7, "user_agent": "mine"}
    client = connected(endpoint_url=CUSTOM, config_kwargs=config)
    options = told(client)
    assert options.client["connect_timeout"].total_seconds() == 1
    assert sync(client.fs.loop, client.objects, "bucket", None, None, "").read_timeout.total_seconds() == 2.5
    assert options.client["pool_max_idle_per_host"] == "7"
    assert options.client["user_agent"] == "mine"
    assert options.client["allow_http"]
    assert not options.config["skip_signature"]
    assert not options.config["unsigned_payload"]
    assert made(config_kwargs={"s3": {"payload_signing_enabled": False}}).config["unsigned_payload"]
    assert made(config_kwargs={"response_checksum_validation": "when_required"})
    anonymous = made(anon=True, key=None, secret=None)
    assert anonymous.config["skip_signature"]


def test_what_the_user_asks_for_with_every_request():
    asked = {
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "id",
        "BucketKeyEnabled": True,
        "StorageClass": "STANDARD_IA",
        "CacheControl": "no-cache",
        "Metadata": {"owner": "me"},
        "MetadataDirective": "COPY",  # of copies, which are not obstore's
        "ContentType": None,
    }
    options = made(s3_additional_kwargs=asked, requester_pays=True)
    assert options.config["server_side_encryption"] == "aws:kms"
    assert options.config["sse_kms_key_id"] == "id"
    assert options.config["sse_bucket_key_enabled"] is True
    assert options.config["request_payer"] is True
    assert options.attributes == {"Storage-Class": "STANDARD_IA", "Cache-Control": "no-cache", "owner": "me"}
    key = bytes(range(32))
    customers = made(s3_additional_kwargs={"SSECustomerKey": key, "SSECustomerAlgorithm": "AES256"})
    assert customers.config["server_side_encryption"] == "sse-c"
    assert base64.b64decode(customers.config["sse_customer_key_base64"]) == key
    assert customers.config["request_payer"] is False


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"s3_additional_kwargs": {"ACL": "private"}}, "ACL"),
        ({"s3_additional_kwargs": {"Tagging": "a=b"}}, "Tagging"),
        ({"s3_additional_kwargs": {"ExpectedBucketOwner": "1"}}, "ExpectedBucketOwner"),
        ({"s3_additional_kwargs": {"ChecksumAlgorithm": "CRC32"}}, "ChecksumAlgorithm"),
        ({"s3_additional_kwargs": {"Metadata": {"Content-Type": "x"}}}, "Metadata"),
        ({"s3_additional_kwargs": {"SSECustomerKey": b"k", "SSECustomerAlgorithm": "other"}}, "SSECustomerAlgorithm"),
        ({"config_kwargs": {"signature_version": "s3"}}, "signature version s3"),
        ({"config_kwargs": {"request_checksum_calculation": "when_supported"}}, "request_checksum_calculation"),
        ({"config_kwargs": {"response_checksum_validation": "when_supported"}}, "response_checksum_validation"),
        ({"config_kwargs": {"read_timeout": None}}, "timeouts"),
        ({"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, "use_accelerate_endpoint"),
        ({"endpoint_url": "https://s3-accelerate.amazonaws.com"}, "acceleration"),
        ({"config_kwargs": {"client_cert": "file"}}, "client_cert"),
        ({"config_kwargs": {"connector_args": {}}}, "connector_args"),
        ({"config_kwargs": {"proxies_config": {}}}, "proxies_config"),
        ({"client_kwargs": {"aws_account_id": "1"}}, "aws_account_id"),
        ({"bucket": "arn:aws:s3:eu-west-1:123456789012:accesspoint/x"}, "access points"),
        ({"environment": {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}}, "AWS_SERVER_SIDE_ENCRYPTION"),
    ],
    ids=str,
)
def test_what_obstore_cannot_be_told_is_refused_by_name(given, named):
    with pytest.raises(NotByObstoreError, match=named):
        made(**given)


def test_certificates_and_proxies(tmp_path):
    def of(connection: Any, environment: dict[str, str]) -> Any:
        client = connected(endpoint_url="https://store.example")
        return told(client, connection=connection, environment=environment).client

    (tmp_path / "default.pem").write_bytes(b"default")
    default = str(tmp_path / "default.pem")
    assert of((True, {}, default), {})["root_certificate"] == b"default"
    unchecked = of((False, {}, default), {})
    assert unchecked["allow_invalid_certificates"]
    assert "root_certificate" not in unchecked
    with pytest.raises(NotByObstoreError, match="a file of trusted CAs"):
        of((default, {}, default), {})
    assert "proxy_url" not in of((True, {"http": "http://p"}, default), {})
    assert of((True, {"https": "p:1"}, default), {})["proxy_url"] == "http://p:1"
    not_asked = of((True, {}, default), {"https_proxy": "http://p"})
    assert not_asked["proxy_excludes"] == "store.example", "obstore would take it from the environment"


PLAIN = {"key": "id", "secret": "secret", "endpoint_url": CUSTOM}


def settings_without_client(**given: Any) -> Settings | None:
    return plain_settings(S3Backend(S3FileSystem(**given, skip_instance_cache=True)).fs, os.environ)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"client_kwargs": {"region_name": "eu-west-1"}},
        {"anon": True, "key": None, "secret": None},
        {"requester_pays": True, "token": "token", "config_kwargs": {"read_timeout": 7, "user_agent": "mine"}},
    ],
    ids=str,
)
def test_what_is_plain_without_client_is_what_client_says(given):
    plain = settings_without_client(**PLAIN | given)
    client = connected(**PLAIN | given)
    assert plain is not None
    assert told(client, settings=plain) == told(client)
    settings = settings_of(sync(client.fs.loop, client.session), *USUAL)
    assert plain.config.read_timeout == settings.config.read_timeout


@pytest.mark.parametrize(
    "given",
    [
        {"endpoint_url": None},
        {"endpoint_url": "no url"},
        {"secret": None},
        {"profile": "other"},
        pytest.param({"session": SESSION}, id="session"),
        {"cache_regions": True},
        {"s3_additional_kwargs": {"StorageClass": "STANDARD_IA"}},
        {"client_kwargs": {"region_name": "fips-us-west-2"}},
        {"client_kwargs": {"verify": False}},
        {"config_kwargs": {"s3": {"addressing_style": "virtual"}}},
        {"config_kwargs": {"request_checksum_calculation": "when_supported"}},
    ],
    ids=str,
)
def test_what_is_not_plain_is_left_to_the_client(given):
    assert settings_without_client(**PLAIN) is not None
    assert settings_without_client(**PLAIN | given) is None


def test_machine_settings_for_aws_are_left_to_the_client(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setenv("AWS_A_NEW_VARIABLE", "x")
        assert settings_without_client(**PLAIN) is None
    (tmp_path / ".aws").mkdir()
    assert settings_without_client(**PLAIN) is None


def test_plain_settings_make_no_botocore_client(moto):
    bucket = new_bucket(moto)
    backend = driven_s3(moto)
    backend.create(f"{bucket}/file", b"content")
    assert backend.read(f"{bucket}/file").data == b"content"
    assert backend.store_name(f"{bucket}/file") == f"{moto['endpoint_url']}/{bucket}"
    assert backend.fs._s3 is None
    assert len(backend.list(bucket).entries) == 1
    assert backend.fs._s3 is not None
