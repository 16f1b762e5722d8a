"""What is resolved without botocore's client is what the client says; and the client is made only when it is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.support.servers import new_bucket, require_module

require_module("s3fs")
require_module("obstore")

import aiobotocore.session
import botocore.session
from aiobotocore.session import AioSession
from botocore.exceptions import PartialCredentialsError
from fsspec.asyn import sync
from s3fs import S3FileSystem

from rollingfs.backend.s3 import S3Backend
from rollingfs.backend.s3.client import S3Client
from rollingfs.backend.s3.obstore_options import Connection, InexpressibleError, obstore_options
from rollingfs.backend.s3.resolved import of_client, without_client
from tests.support.examples import examples

LOADER = AioSession().get_component("data_loader")
"""Shared, because each new one reads botocore's models again."""
OTHER_REGIONS = ["us-gov-west-1", "cn-north-1", "aws-global", "fips-us-west-2", "x_y", ""]
REGIONS = [None, "us-east-1", "eu-west-1", "auto", *OTHER_REGIONS]
PLAIN_URLS = [None, "http://127.0.0.1:9000", "https://store.example/below/", "https://s3.us-west-2.amazonaws.com"]
URLS = [*PLAIN_URLS, "no url", ""]
STYLES = ["auto", "path", "virtual", "other"]


def maybe(**names: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=names)


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


PLAIN_REGIONS = st.sampled_from(REGIONS[:4])
PLAIN_OPTIONS = maybe(
    endpoint_url=st.sampled_from(PLAIN_URLS),
    anon=st.booleans(),
    use_ssl=st.booleans(),
    requester_pays=st.booleans(),
    profile=one_of("default", "other"),
    client_kwargs=maybe(region_name=PLAIN_REGIONS, verify=st.booleans()),
    config_kwargs=maybe(
        read_timeout=one_of(7),
        user_agent=one_of("mine"),
        s3=maybe(addressing_style=st.sampled_from(STYLES[:3]), payload_signing_enabled=st.booleans()),
    ),
)
OPTIONS = PLAIN_OPTIONS | maybe(
    endpoint_url=st.sampled_from(URLS),
    key=one_of(None, "id"),
    secret=one_of(None, "secret"),
    token=one_of(None, "token"),
    anon=st.booleans(),
    use_ssl=st.booleans(),
    requester_pays=st.booleans(),
    cache_regions=st.booleans(),
    profile=one_of("default", "other", "missing"),
    s3_additional_kwargs=one_of({}, {"StorageClass": "STANDARD_IA"}),
    client_kwargs=maybe(
        region_name=st.sampled_from(REGIONS),
        endpoint_url=st.sampled_from(URLS),
        aws_access_key_id=one_of("id"),
        aws_secret_access_key=one_of("secret"),
        use_ssl=st.booleans(),
        verify=st.booleans(),
    ),
    config_kwargs=maybe(
        region_name=st.sampled_from(REGIONS),
        connect_timeout=one_of(1, 2.5),
        read_timeout=one_of(7),
        max_pool_connections=one_of(3),
        user_agent=one_of("mine"),
        signature_version=one_of("s3", "s3v4"),
        request_checksum_calculation=one_of("when_required", "when_supported", "WHEN_REQUIRED"),
        response_checksum_validation=one_of("when_required", "when_supported"),
        retries=one_of({"mode": "standard"}, {"mode": "unknown"}),
        s3=maybe(addressing_style=st.sampled_from(STYLES), payload_signing_enabled=st.booleans()),
        use_dualstack_endpoint=st.booleans(),
        use_fips_endpoint=st.booleans(),
        ignore_configured_endpoint_urls=st.booleans(),
        proxies=one_of({"http": "http://p:1"}),
        tcp_keepalive=st.booleans(),
    ),
)
PLAIN_VARIABLES = maybe(
    AWS_REGION=one_of("ca-central-1"),
    AWS_DEFAULT_REGION=one_of("eu-north-1", ""),
    AWS_ENDPOINT_URL=one_of("http://global:1", ""),
    AWS_ENDPOINT_URL_S3=one_of("http://of-s3:1", ""),
    AWS_PROFILE=one_of("default"),
    HTTPS_PROXY=one_of("http://proxy:1"),
)
VARIABLES = PLAIN_VARIABLES | maybe(
    AWS_ACCESS_KEY_ID=one_of("of-environment"),
    AWS_SECRET_ACCESS_KEY=one_of("secret-of-environment"),
    AWS_REGION=one_of("ca-central-1"),
    AWS_DEFAULT_REGION=one_of("eu-north-1", ""),
    AWS_ENDPOINT_URL=one_of("http://global:1", ""),
    AWS_ENDPOINT_URL_S3=one_of("http://of-s3:1", ""),
    AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=one_of("true"),
    AWS_PROFILE=one_of("other", "missing"),
    AWS_DEFAULT_PROFILE=one_of("other"),
    AWS_USE_FIPS_ENDPOINT=one_of("true"),
    AWS_USE_DUALSTACK_ENDPOINT=one_of("true"),
    AWS_DEFAULTS_MODE=one_of("standard", "unknown"),
    AWS_MAX_ATTEMPTS=one_of("2", "two"),
    AWS_S3_US_EAST_1_REGIONAL_ENDPOINT=one_of("regional"),
    AWS_REQUEST_CHECKSUM_CALCULATION=one_of("when_required", "when_supported"),
    AWS_AUTH_SCHEME_PREFERENCE=one_of("sigv4a"),
    AWS_CA_BUNDLE=one_of("/no/such/file"),
    HTTPS_PROXY=one_of("http://proxy:1"),
)
LINES = st.lists(
    one_of(
        "region = sa-east-1",
        "endpoint_url = http://of-file:1",
        "services = mine",
        "services = missing",
        "s3 =\n  addressing_style = path",
        "s3 =\n  addressing_style = virtual\n  payload_signing_enabled = false",
        "s3 =\n  addressing_style = other",
        "s3 =\n  signature_version = s3",
        "s3 =\n  use_accelerate_endpoint = true",
        "s3 = nonsense",
        "defaults_mode = in-region",
        "use_fips_endpoint = true",
        "ignore_configured_endpoint_urls = true",
        "request_checksum_calculation = when_supported",
        "aws_access_key_id = of-file\naws_secret_access_key = secret-of-file",
        "output = json",
    ),
    max_size=3,
    unique_by=lambda line: line.partition(" ")[0],
)
FILES = (
    st.none()
    | st.just("[default]\n[profile other]\nregion = sa-east-1")
    | st.builds(
        lambda default, other: "\n".join(
            [
                "[default]",
                *default,
                "[profile other]",
                *other,
                "[services mine]",
                "s3 =",
                "  endpoint_url = http://of-section:1",
            ]
        ),
        LINES,
        LINES,
    )
)
BUCKETS = one_of("bucket", "with.dots", "logs--usw2-az1--x-s3")


def fs_of(options: dict[str, Any]) -> S3FileSystem:
    return S3Client(S3FileSystem(**options, skip_instance_cache=True)).fs


def new_session(**options: Any) -> AioSession:
    session = AioSession(**options)
    session.register_component("data_loader", LOADER)
    return session


def is_certain(options: dict[str, Any], variables: dict[str, str], file: str | None, bucket: str, folder: Path) -> bool:
    """Whether something was resolved without a client; then it is compared with what the client says."""
    config = folder / "config"
    config.write_text(file or "")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
            patch.delenv(name)
        variables = variables | {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none")}
        variables |= {"AWS_EC2_METADATA_DISABLED": "true"}
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(aiobotocore.session, "AioSession", new_session)  # what s3fs makes its own of
        fs = fs_of(options)
        found = without_client(fs, new_session(**fs.kwargs), os.environ)
        if found is None:
            return False
        try:
            client = sync(fs.loop, fs.set_session)
        except PartialCredentialsError:  # nothing else may fail; the same error comes with the first request
            assert len({*variables} & {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) == 1
            return True
        assert fs.cache_regions is False
        said = of_client(client)
        sync(fs.loop, client.close)
        both = []
        for one in (found, said):
            try:
                both.append(obstore_options(bucket, fs, one, Connection(default_certificates=__file__), os.environ))
            except InexpressibleError as error:
                both.append(str(error))
        assert both[0] == both[1]
        assert (found.endpoint_url, found.region_name, found.s3) == (said.endpoint_url, said.region_name, said.s3)
        assert found.signature_version == said.signature_version
        return True


@pytest.mark.slow
@given(OPTIONS, VARIABLES, FILES, BUCKETS)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_resolved_without_a_client_is_what_the_client_says(
    tmp_path: Path, options: dict[str, Any], variables: dict[str, str], file: str | None, bucket: str
) -> None:
    event(f"certain: {is_certain(options, variables, file, bucket, tmp_path)}")


KEYS = {"key": "id", "secret": "secret"}
CUSTOM = {"endpoint_url": "http://127.0.0.1:9000"}


@pytest.mark.parametrize(
    ("options", "variables", "file"),
    [
        (KEYS | CUSTOM, {}, None),
        (KEYS | CUSTOM | {"client_kwargs": {"region_name": "auto"}}, {}, None),
        (KEYS | {"client_kwargs": {"region_name": "eu-west-1"}, "requester_pays": True}, {}, None),
        ({"anon": True}, {}, None),
        ({}, {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "eu-north-1"}, None),
        ({}, {"AWS_ENDPOINT_URL_S3": "http://of-s3:1", "AWS_ENDPOINT_URL": "http://global:1"}, None),
        ({}, {"AWS_ENDPOINT_URL": "http://global:1"}, "[default]\nendpoint_url = http://of-file:1"),
        ({"profile": "other"}, {}, "[profile other]\nregion = sa-east-1\ns3 =\n  addressing_style = path"),
        ({}, {"AWS_PROFILE": "other"}, "[profile other]\nendpoint_url = http://of-file:1"),
        (KEYS | {"config_kwargs": {"s3": {"addressing_style": "virtual"}, "read_timeout": 1}}, {}, None),
    ],
    ids=str,
)
def test_common_settings_are_resolved_without_a_client(
    tmp_path: Path, options: dict[str, Any], variables: dict[str, str], file: str | None
) -> None:
    assert is_certain(options, variables, file, "bucket", tmp_path)


@pytest.mark.parametrize(
    ("options", "variables", "file"),
    [
        (KEYS | {"config_kwargs": {"use_dualstack_endpoint": True}}, {}, None),
        (KEYS | {"client_kwargs": {"region_name": "fips-us-west-2"}}, {}, None),
        (KEYS | {"client_kwargs": {"region_name": "cn-north-1"}}, {}, None),
        ({"key": "id"}, {}, None),
        (KEYS | {"cache_regions": True}, {}, None),
        (KEYS | {"s3_additional_kwargs": {"ACL": "private"}}, {}, None),
        (KEYS, {"AWS_A_NEW_VARIABLE": "x"}, None),
        (KEYS, {}, "[default]\na_new_line = x"),
        (KEYS, {}, "[default]\nservices = mine"),
        (KEYS | {"profile": "missing"}, {}, None),
        (KEYS | CUSTOM | {"client_kwargs": {"endpoint_url": "http://other:1"}}, {}, None),
        (KEYS | {"endpoint_url": "no url"}, {}, None),
    ],
    ids=str,
)
def test_what_is_not_certain_is_left_to_the_client(
    tmp_path: Path, options: dict[str, Any], variables: dict[str, str], file: str | None
) -> None:
    assert not is_certain(options, variables, file, "bucket", tmp_path)


def test_each_region_of_aws_is_at_the_host_that_botocore_knows(tmp_path: Path) -> None:
    regions = botocore.session.get_session().get_available_regions("s3")
    assert len(regions) > 20
    for region in regions:
        assert is_certain(KEYS | {"client_kwargs": {"region_name": region}}, {}, None, "bucket", tmp_path), region


def test_reads_writes_and_names_make_no_client_of_botocore_and_what_needs_one_makes_it(moto: dict[str, Any]) -> None:
    bucket = new_bucket(moto)
    backend = S3Backend(S3FileSystem(**moto, skip_instance_cache=True))

    async def write_and_read() -> bytes:
        token = await backend.create(f"{bucket}/file", b"content")
        assert await backend.read_if_changed(f"{bucket}/file", token) is None
        return bytes((await backend.read(f"{bucket}/file")).data)

    assert sync(backend.loop, write_and_read) == b"content"
    assert len(sync(backend.loop, backend.list_prefix, bucket, "fi").entries) == 1
    assert sync(backend.loop, backend.store_name, f"{bucket}/file") == f"{moto['endpoint_url']}/{bucket}"
    assert backend.fs._s3 is None
    session = backend.fs.session
    assert [entry.path for entry in sync(backend.loop, backend.list, bucket).entries] == [f"{bucket}/file"]
    assert backend.fs._s3 is not None
    assert backend.fs.session is session, "s3fs uses the session that was made for it"


def test_a_session_that_the_user_gives_is_asked_through_its_client(moto: dict[str, Any]) -> None:
    bucket, session = new_bucket(moto), AioSession()
    session.set_config_variable("region", "eu-central-1")
    backend = S3Backend(S3FileSystem(**moto, session=session, skip_instance_cache=True))
    sync(backend.loop, backend.create, f"{bucket}/file", b"content")
    assert backend.fs.session is session
    assert backend.fs._s3 is not None


def test_credentials_that_are_incomplete_are_refused_alike_with_and_without_a_client(
    moto: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    refusals = []
    for use_obstore in (True, False):
        fs = S3FileSystem(endpoint_url=moto["endpoint_url"], skip_instance_cache=True)
        backend = S3Backend(fs, use_obstore=use_obstore)
        with pytest.raises(Exception, match="AWS_SECRET_ACCESS_KEY") as caught:
            sync(backend.loop, backend.read, "bucket/file")
        refusals.append((caught.type, str(caught.value)))
    assert refusals[0] == refusals[1]
