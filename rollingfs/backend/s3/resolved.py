"""The settings that botocore makes of the options of s3fs, the environment and the configuration file.

`of_client` asks a botocore client. Making a client takes some 0.1 s of CPU, for models of all operations of S3.
`without_client` finds the same for common settings with botocore's session alone. If it meets anything that it does not
know (each list here is a white list), it returns None, and the caller must make the client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore import UNSIGNED
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader
from botocore.utils import is_valid_endpoint_url, validate_region_name
from s3fs import S3FileSystem

from rollingfs.backend.s3.s3fs_objects import asked_config

CONFIG_PLAIN = frozenset(
    {
        "connect_timeout",
        "max_pool_connections",
        "read_timeout",
        "request_checksum_calculation",
        "response_checksum_validation",
        "retries",
        "s3",
        "user_agent",
    }
)
"""Options of botocore's `Config`. Not `region_name`, which sometimes outdoes that of the client."""
CLIENT_PLAIN = frozenset(
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
SESSION_PLAIN = frozenset({"profile"})
S3_PLAIN = frozenset({"addressing_style", "payload_signing_enabled"})
STYLES = frozenset({"auto", "path", "virtual"})
_CREDENTIALS = frozenset(
    {
        "credential_process",
        "credential_source",
        "duration_seconds",
        "external_id",
        "mfa_serial",
        "role_arn",
        "role_session_name",
        "source_profile",
        "sso_account_id",
        "sso_region",
        "sso_role_name",
        "sso_session",
        "sso_start_url",
        "web_identity_token_file",
    }
)
PROFILE_PLAIN = _CREDENTIALS | {
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "ca_bundle",
    "cli_pager",
    "endpoint_url",
    "output",
    "region",
    "s3",
}
"""Lines of a profile in the configuration file."""
VARIABLES_PLAIN = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_CA_BUNDLE",
        "AWS_CONFIG_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CREDENTIAL_EXPIRATION",
        "AWS_DEFAULT_OUTPUT",
        "AWS_DEFAULT_PROFILE",
        "AWS_DEFAULT_REGION",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_EXECUTION_ENV",
        "AWS_PAGER",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SECURITY_TOKEN",
        "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_STS_REGIONAL_ENDPOINTS",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    }
)
_CONCERNS_BOTOCORE = re.compile(r"AWS_(?!LAMBDA_)|BOTO", re.IGNORECASE)
_CHECKSUMS = ("request_checksum_calculation", "response_checksum_validation")
_WHEN_REQUIRED = "when_required"
_AWS_REGION = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-\d+")
"""A region of AWS's main partition, where the hosts of all regions have names of one form."""
_US_EAST_1 = "us-east-1"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings for one bucket."""

    endpoint_url: str
    region_name: str | None
    signature_version: Any
    connect_timeout: Any
    read_timeout: Any
    max_pool_connections: int
    user_agent: str
    request_checksum_calculation: str
    s3: Mapping[str, Any] = field(default_factory=dict)
    arguments: frozenset[str] = frozenset()
    """Names of the arguments that GetObject or PutObject knows; without a client, of those that are asked for."""


def of_client(client: Any) -> Resolved:
    """The settings of a botocore client."""
    meta = client.meta
    config = meta.config
    arguments: set[str] = set()
    for operation in ("GetObject", "PutObject"):
        arguments |= meta.service_model.operation_model(operation).input_shape.members.keys()
    return Resolved(
        meta.endpoint_url,
        meta.region_name,
        config.signature_version,
        config.connect_timeout,
        config.read_timeout,
        config.max_pool_connections,
        config.user_agent,
        config.request_checksum_calculation,
        config.s3 or {},
        frozenset(arguments),
    )


def without_client(fs: S3FileSystem, session: AioSession, environment: Mapping[str, str]) -> Resolved | None:
    """What the client of `fs` would say; None where that is not certain, or where making the client would fail.

    Parameters
    ----------
    session
        Made for `fs`, with its options and nothing else.
    environment
        The variables of this process.
    """
    try:
        return _resolved(fs, session, environment) if is_plain(fs, environment) else None
    except (BotoCoreError, AttributeError, OSError, TypeError, ValueError):
        return None  # the client says what is wrong


def is_plain(fs: S3FileSystem, environment: Mapping[str, str]) -> bool:
    """Whether this module knows all options and variables that are given."""
    has_key, has_secret = (_is_given(fs, *names) for names in (("key", "aws_access_key_id"), _SECRET))
    return (
        not (fs.cache_regions or fs.s3_additional_kwargs)
        and fs.kwargs.keys() <= SESSION_PLAIN
        and fs.client_kwargs.keys() <= CLIENT_PLAIN
        and asked_config(fs.config_kwargs) <= CONFIG_PLAIN
        and has_key == has_secret
        and not any(_is_twice(fs, *names) for names in _TWO_PLACES)
        and {name for name in environment if _CONCERNS_BOTOCORE.match(name)} <= VARIABLES_PLAIN
        and not Path(Loader.CUSTOMER_DATA_PATH).exists()
    )


_SECRET = "secret", "aws_secret_access_key"
_TWO_PLACES = (
    ("key", "aws_access_key_id"),
    _SECRET,
    ("token", "aws_session_token"),
    ("endpoint_url", "endpoint_url"),
)
"""Options of s3fs, and what they are called in `client_kwargs`."""


def _is_given(fs: S3FileSystem, name: str, client_name: str) -> bool:
    return bool(getattr(fs, name) or fs.client_kwargs.get(client_name))


def _is_twice(fs: S3FileSystem, name: str, client_name: str) -> bool:
    return getattr(fs, name) is not None and client_name in fs.client_kwargs


def _resolved(fs: S3FileSystem, session: AioSession, environment: Mapping[str, str]) -> Resolved | None:
    profile = session.get_scoped_config()
    s3 = session.get_config_variable("s3") or {}
    if not (profile.keys() <= PROFILE_PLAIN and profile.get("s3", {}).keys() <= S3_PLAIN and s3.keys() <= S3_PLAIN):
        return None
    given = {"connect_timeout": fs.connect_timeout, "read_timeout": fs.read_timeout} | fs.config_kwargs
    config = AioConfig(**given)
    s3 = {**s3, **(config.s3 or {})}
    is_known = s3.keys() <= S3_PLAIN and s3.get("addressing_style", "auto") in STYLES
    is_known = is_known and all(given.get(name, _WHEN_REQUIRED) == _WHEN_REQUIRED for name in _CHECKSUMS)
    if not is_known or "request_checksum_calculation" not in given or "user_agent" not in given:
        return None
    region = fs.client_kwargs.get("region_name")
    if region is None:
        region = session.get_config_variable("region")
    endpoint_url = _endpoint_url(fs, profile, environment)
    endpoint_url = _of_aws(fs, region) if endpoint_url is None else endpoint_url
    if endpoint_url is None or not _is_fit(endpoint_url, region):
        return None
    return Resolved(
        endpoint_url,
        _US_EAST_1 if region is None else region,
        UNSIGNED if fs.anon else "s3v4",
        config.connect_timeout,
        config.read_timeout,
        config.max_pool_connections,
        config.user_agent,
        _WHEN_REQUIRED,
        s3,
        frozenset({"RequestPayer"}),
    )


def _endpoint_url(fs: S3FileSystem, profile: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """The store that the user names, in botocore's order; None for AWS."""
    given = fs.endpoint_url if fs.endpoint_url is not None else fs.client_kwargs.get("endpoint_url")
    if given is not None:
        return str(given)
    return (
        environment.get("AWS_ENDPOINT_URL_S3")
        or environment.get("AWS_ENDPOINT_URL")
        or profile.get("endpoint_url")
        or None
    )


def _of_aws(fs: S3FileSystem, region: str | None) -> str | None:
    """The host of AWS for a region, where it is named like that of all others."""
    if region is not None and not _AWS_REGION.fullmatch(region):
        return None
    scheme = "https" if fs.client_kwargs.get("use_ssl", fs.use_ssl) else "http"
    is_global = region in (None, _US_EAST_1)
    return f"{scheme}://s3.amazonaws.com" if is_global else f"{scheme}://s3.{region}.amazonaws.com"


def _is_fit(endpoint_url: str, region: str | None) -> bool:
    """Whether botocore takes endpoint and region as they are; it puts another for a pseudo-region of FIPS."""
    validate_region_name(region)
    is_other = region is not None and ("fips" in region or region.startswith("aws-") or not region)
    return not is_other and bool(is_valid_endpoint_url(endpoint_url))
