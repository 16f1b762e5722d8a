"""The options and credentials of obstore for a bucket, from s3fs's options and botocore's settings.

This module refuses what obstore cannot express. Such a bucket goes through s3fs, so that no option is ever dropped.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiobotocore.config import AioConfig
from botocore import UNSIGNED
from botocore.exceptions import NoCredentialsError
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies, is_valid_endpoint_url
from s3fs import S3FileSystem

from rollingfs.backend.objects.request_errors import NotByObstoreError
from rollingfs.backend.objects.s3.botocore import asked_config, errors_of_botocore
from rollingfs.runtime.values import value_class

if TYPE_CHECKING:
    from obstore.store import S3Credential

CREDENTIALS_S = 360.0
"""Validity for obstore of credentials that botocore may renew; obstore asks again 300 s earlier: after a minute."""

CONFIG_PLAIN = frozenset(
    {"connect_timeout", "max_pool_connections", "read_timeout", "request_checksum_calculation", "retries", "user_agent"}
)
"""Options of botocore's `Config` that mean the same without a client."""
CONFIG_KNOWN = CONFIG_PLAIN | {
    "parameter_validation",
    "proxies",
    "region_name",
    "response_checksum_validation",
    "s3",
    "signature_version",
    "tcp_keepalive",
    "use_dualstack_endpoint",
    "use_fips_endpoint",
    "user_agent_appid",
    "user_agent_extra",
}
"""Options of `Config` that this module obeys, or that concern only botocore."""
CA_VARIABLE = "AWS_CA_BUNDLE"
FILES_OF_BOTOCORE = ("~/.aws", "~/.boto", "/etc/boto.cfg")
CLIENT_KNOWN = frozenset(
    {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "endpoint_url",
        "region_name",
        "use_ssl",
        "verify",
    }
)
S3_KNOWN = frozenset(
    {"addressing_style", "payload_signing_enabled", "us_east_1_regional_endpoint", "use_dualstack_endpoint"}
)
OBSTORE_VARIABLES = frozenset(
    {
        "AWS_CHECKSUM_ALGORITHM",
        "AWS_SERVER_SIDE_ENCRYPTION",
        "AWS_SSE_BUCKET_KEY_ENABLED",
        "AWS_SSE_CUSTOMER_KEY_BASE64",
        "AWS_SSE_KMS_KEY_ID",
    }
)
"""Environment variables that obstore obeys, that botocore does not know, and that no option overrules."""
ENCRYPTION = {
    "ServerSideEncryption": "server_side_encryption",
    "SSEKMSKeyId": "sse_kms_key_id",
    "BucketKeyEnabled": "sse_bucket_key_enabled",
}
CUSTOMER_KEY = "SSECustomerKey"
CUSTOMER_ALGORITHM = {"SSECustomerAlgorithm": "AES256"}
ATTRIBUTES = {
    "CacheControl": "Cache-Control",
    "ContentDisposition": "Content-Disposition",
    "ContentEncoding": "Content-Encoding",
    "ContentLanguage": "Content-Language",
    "ContentType": "Content-Type",
    "StorageClass": "Storage-Class",
}
IDLE_S_MAX = 10
"""obstore uses no connection again that was idle for longer: the store is about to close it."""
NO_PROXY_URL = "http://127.0.0.1:9"
"""Stands for no proxy: obstore takes the environment's unless it gets a proxy. This proxy excludes the store."""
GLOBAL_REGION = "aws-global"
_AWS_HOST = re.compile(
    r"s3(?P<kind>-fips|\.dualstack|-fips\.dualstack)?(?:\.[a-z0-9-]+)?(?P<domain>\.amazonaws\.com(?:\.cn)?)"
)
_REGION = re.compile(r"[a-z]{2}-[a-z]+-\d")
_OF_BOTOCORE = re.compile("AWS_|BOTO", re.IGNORECASE)
_HOST_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_EXPRESS_BUCKET = re.compile(r".+--(?P<zone>[a-z0-9-]+)--x-s3")


@value_class
class Settings:
    """Result of all options, variables and configuration files."""

    endpoint_url: str
    region_name: str | None
    config: Any
    """Botocore's `Config`."""
    arguments: frozenset[str]
    """The arguments that GetObject or PutObject knows."""
    verify: bool | str = True
    """Whether the store's certificate is checked, or the file of the certificates to trust."""
    proxies: Mapping[str, str] = field(default_factory=dict)
    """The proxies that botocore uses, by the scheme of the store's URL."""
    default_certificates: str = ""
    """The file that `True` means."""


def connection_of(fs: S3FileSystem, endpoint_url: str) -> tuple[bool | str, Mapping[str, str], str]:
    """Return certificates and proxies of `Settings`, from where botocore takes them and when it does, in its order."""
    verify: bool | str | None = fs.client_kwargs.get("verify")
    if verify is None:
        verify = fs.session.get_config_variable("ca_bundle") if fs.session else os.environ.get(CA_VARIABLE)
    if verify is None:
        verify = os.environ.get("REQUESTS_CA_BUNDLE", True)
    proxies = fs.config_kwargs.get("proxies")
    if proxies is None:
        proxies = get_environ_proxies(endpoint_url)
    return verify, proxies, get_cert_path(True)


def settings_of(client: Any, verify: bool | str, proxies: Mapping[str, str], default_certificates: str) -> Settings:
    """Return the settings of a botocore client, with what `connection_of` found when it was made."""
    model = client.meta.service_model
    shapes = [model.operation_model(verb).input_shape for verb in ("GetObject", "PutObject")]
    arguments = frozenset(name for shape in shapes for name in shape.members)
    endpoint_url, region = client.meta.endpoint_url, client.meta.region_name
    return Settings(endpoint_url, region, client.meta.config, arguments, verify, proxies, default_certificates)


def plain_settings(fs: Any, environment: Mapping[str, str]) -> Settings | None:
    """Return the settings without a client of botocore, or None.

    The user gives the endpoint and the keys, and this machine has no settings of AWS.

    A client of botocore, with the same result, takes 0.1 s of processor time.
    """
    region = fs.client_kwargs.get("region_name", "us-east-1")
    is_plain = (
        fs.endpoint_url
        and is_valid_endpoint_url(fs.endpoint_url)
        and (fs.anon or (fs.key and fs.secret))
        and not (fs.session or fs.kwargs or fs.cache_regions or fs.s3_additional_kwargs)
        and fs.client_kwargs.keys() <= {"region_name"}
        and _REGION.fullmatch(region or "")
        and asked_config(fs.config_kwargs) <= CONFIG_PLAIN
        and fs.config_kwargs.get("request_checksum_calculation") == "when_required"
        and not any(_OF_BOTOCORE.match(name) for name in environment.keys() - {CA_VARIABLE})
        and not any(os.path.exists(os.path.expanduser(path)) for path in FILES_OF_BOTOCORE)
    )
    if not is_plain:
        return None
    given = {"connect_timeout": fs.connect_timeout, "read_timeout": fs.read_timeout} | fs.config_kwargs
    config = AioConfig(**given, signature_version=UNSIGNED if fs.anon else "s3v4")
    connection = connection_of(fs, fs.endpoint_url)
    return Settings(fs.endpoint_url, region, config, frozenset({"RequestPayer"}), *connection)


def obstore_options(
    bucket: str, fs: Any, settings: Settings, environment: Mapping[str, str], region: str | None = None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the options of obstore for a bucket and for its client, and the attributes of each new object.

    Parameters
    ----------
    fs : s3fs.S3FileSystem
        Has the user's options.
    settings
        The result of the options.
    environment
        Its variables.
    region
        The region of the bucket, if it turned out to be another.

    Raises
    ------
    NotByObstoreError
        obstore cannot do what is asked for.
    """
    made = settings.config
    s3 = made.s3 or {}
    _check(fs, made, environment)
    region = region or settings.region_name
    region = "us-east-1" if region is None or region == GLOBAL_REGION else region
    config = _address(bucket, settings.endpoint_url, s3.get("addressing_style"), region)
    asked = dict(fs.s3_additional_kwargs)
    if fs.requester_pays:
        asked.setdefault("RequestPayer", "requester")
    encryption, attributes = _asked(asked, settings.arguments)
    config |= {
        "region": region,
        "skip_signature": made.signature_version is UNSIGNED,
        "unsigned_payload": s3.get("payload_signing_enabled") is False,
        "conditional_put": "etag",
        **encryption,
    }
    timeouts = made.connect_timeout, made.read_timeout
    if not all(isinstance(seconds, int | float) and seconds > 0 for seconds in timeouts):
        raise NotByObstoreError("timeouts that are not a number of seconds")
    options = {
        "connect_timeout": timedelta(seconds=timeouts[0]),
        "user_agent": fs.config_kwargs.get("user_agent") or made.user_agent,
        "pool_idle_timeout": timedelta(seconds=IDLE_S_MAX),
        "pool_max_idle_per_host": str(made.max_pool_connections),
        **_transport(config["endpoint"], settings, environment),
    }
    return config, options, attributes


def _check(fs: Any, config: Any, environment: Mapping[str, str]) -> None:
    """Refuse options that this module does not know, and options without a counterpart."""
    s3 = {name for name, value in (config.s3 or {}).items() if value}
    for given, known, where in (
        (asked_config(fs.config_kwargs), CONFIG_KNOWN, "config_kwargs"),
        (fs.client_kwargs.keys(), CLIENT_KNOWN, "client_kwargs"),
        (s3, S3_KNOWN, "the s3 section of config_kwargs or of the configuration file"),
    ):
        if unknown := sorted(given - known):
            raise NotByObstoreError(f"{', '.join(unknown)} in {where}")
    if config.signature_version not in ("s3v4", UNSIGNED):
        raise NotByObstoreError(f"the signature version {config.signature_version}")
    if config.request_checksum_calculation != "when_required":
        raise NotByObstoreError("request_checksum_calculation other than when_required")
    if fs.config_kwargs.get("response_checksum_validation", "when_required") != "when_required":
        raise NotByObstoreError("response_checksum_validation other than when_required")
    if variables := sorted(OBSTORE_VARIABLES & environment.keys()):
        raise NotByObstoreError(f"the environment variable {variables[0]}, which means nothing to s3fs")


def _address(bucket: str, endpoint_url: str, style: str | None, region: str) -> dict[str, Any]:
    """Return the address of the bucket by botocore's rules for endpoints."""
    if ":" in bucket:
        raise NotByObstoreError("access points")
    url = urlsplit(endpoint_url)
    host, is_virtual = url.netloc, style == "virtual"
    if host.startswith("s3-accelerate."):
        raise NotByObstoreError("transfer acceleration")
    aws = _AWS_HOST.fullmatch(host)
    express = _EXPRESS_BUCKET.fullmatch(bucket) if aws is not None else None
    if express is not None:
        host, is_virtual = f"s3express-{express['zone']}.{region}.amazonaws.com", True
    elif aws is not None:
        is_virtual = style != "path"
        # never the global host, which may send a request on to another one, where its signature is not believed
        host = f"s3{aws['kind'] or ''}.{region}{aws['domain']}"
    is_virtual = is_virtual and _HOST_LABEL.fullmatch(bucket) is not None
    endpoint = f"{url.scheme}://{bucket}.{host}{url.path}" if is_virtual else f"{url.scheme}://{host}{url.path}"
    return {
        "endpoint": endpoint.rstrip("/"),
        "aws_endpoint_url_s3": endpoint.rstrip("/"),  # before the environment's
        "virtual_hosted_style_request": is_virtual,
        "s3_express": express is not None,
    }


def _asked(asked: Mapping[str, Any], members: frozenset[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the user's arguments for every request, as options of the store and as attributes of new objects."""
    # s3fs leaves out what an operation does not know
    asked = {name: value for name, value in asked.items() if name in members and value is not None}
    options: dict[str, Any] = {"request_payer": asked.pop("RequestPayer", None) == "requester"}
    attributes: dict[str, str] = {}
    if CUSTOMER_KEY in asked:
        key = asked.pop(CUSTOMER_KEY)
        asked.pop("SSECustomerKeyMD5", None)  # it follows from the key
        if {name: asked.pop(name, None) for name in CUSTOMER_ALGORITHM} != CUSTOMER_ALGORITHM:
            raise NotByObstoreError("an SSECustomerAlgorithm other than AES256")
        options["server_side_encryption"] = "sse-c"
        options["sse_customer_key_base64"] = base64.b64encode(key.encode() if isinstance(key, str) else key).decode()
    for name, value in asked.items():
        if name in ENCRYPTION and ENCRYPTION[name] not in options:
            options[ENCRYPTION[name]] = value
        elif name in ATTRIBUTES:
            attributes[ATTRIBUTES[name]] = value
        elif name == "Metadata" and _is_plain_metadata(value):
            attributes |= value
        else:
            raise NotByObstoreError(f"{name} in s3_additional_kwargs")
    return options, attributes


def _is_plain_metadata(metadata: Mapping[str, str]) -> bool:
    """Return whether obstore sends metadata as such; some names are headers to it."""
    headers = {name.lower() for name in ATTRIBUTES}
    return all(
        name.replace("-", "").lower() not in headers and f"{name}{value}".isascii() and f"{name}{value}".isprintable()
        for name, value in metadata.items()
    )


def _transport(endpoint: str, settings: Settings, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return certificates, and the proxy of botocore, if any."""
    url = urlsplit(endpoint)
    proxy = settings.proxies.get(url.scheme)
    options: dict[str, Any] = {"allow_http": url.scheme == "http"}
    if proxy is not None:
        options["proxy_url"] = proxy if "//" in proxy else f"http://{proxy}"
    elif any(name.lower().endswith("_proxy") for name in environment):
        options |= {"proxy_url": NO_PROXY_URL, "proxy_excludes": url.hostname}
    if url.scheme == "https":
        if settings.verify is False:
            options["allow_invalid_certificates"] = True
        elif settings.verify is True:
            options["root_certificate"] = Path(settings.default_certificates).read_bytes()
        else:  # obstore would trust the system's CAs as well, which the user may want to exclude
            raise NotByObstoreError("a file of trusted CAs (verify, AWS_CA_BUNDLE)")
    return options


def credentials_of(fs: S3FileSystem) -> tuple[Callable[[], Awaitable[S3Credential]], Callable[[], Exception | None]]:
    """Return the credential provider that obstore asks, and the reason why it has no credentials, if any.

    obstore holds the provider, and Python's garbage collection cannot look into obstore: the provider must not hold the
    client, which holds obstore's stores.
    """
    refused: list[Exception] = []

    async def provide() -> S3Credential:
        try:
            with errors_of_botocore():
                found = await _credentials(fs)
        except Exception as error:
            refused[:] = [error]  # obstore would only show its text
            raise
        refused.clear()  # not before: another request may not have read its own yet
        return found

    return provide, lambda: refused[0] if refused else None


async def _credentials(fs: S3FileSystem) -> S3Credential:
    """Return the credentials as they are now, as botocore's client has them."""
    given = fs.key or fs.client_kwargs.get("aws_access_key_id")
    secret = fs.secret or fs.client_kwargs.get("aws_secret_access_key")
    if given and secret:
        token = fs.token or fs.client_kwargs.get("aws_session_token")
        return {"access_key_id": given, "secret_access_key": secret, "token": token, "expires_at": None}
    found = await fs.session.get_credentials()
    if found is None:
        raise NoCredentialsError
    frozen = await found.get_frozen_credentials()
    return {
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
        "token": frozen.token,
        "expires_at": datetime.now(UTC) + timedelta(seconds=CREDENTIALS_S),
    }
