"""The storage options that the settings ``fs.s3a.*`` of a Spark session mean, so that a role or key is given once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rollingfs.spark.source.options import parse_url

__all__ = ["storage_options"]

Get = Callable[[str], str | None]
"""Gives the value of a setting by its name without ``fs.s3a.``; or None."""

DEFAULT_PROVIDERS = (
    "TemporaryAWSCredentialsProvider",
    "SimpleAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
)
"""Providers that Hadoop asks for credentials, in this order, without a setting."""
OF_THE_MACHINE = re.compile("Default|Environment|WebIdentity|(Container|Instance).*Provider")
"""Providers that use what the machine offers: variables, a web identity, the role of a container or an instance."""
NO_COUNTERPART = (
    "accesspoint.arn",
    "acl.default",
    "auth.profile.file",
    "custom.signers",
    "delegation.token.binding",
    "encryption.context",
    "endpoint.fips",
    "proxy.host",
    "security.credential.provider.path",
)
"""Settings that the data source needs to do the same."""
ENCRYPTIONS = {"AES256": "AES256", "SSE-S3": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}
ARCHIVES = frozenset({"DEEP_ARCHIVE", "GLACIER"})
"""Classes whose objects cannot be read at once, as headers must be."""
PASSWORDS = frozenset({"access.key", "secret.key", "session.token", "encryption.key"})
"""Settings that Hadoop may keep in a credential file."""


def storage_options(spark: Any, url: str) -> dict[str, Any]:
    """Return the storage options of s3fs that a session's settings ``fs.s3a.*`` mean for a bucket.

    Give them to the data source as ``option("storage_options", json.dumps(…))``, to `maintain` and to
    `RollingFileSystem`. Credentials, endpoint, region, encryption and requester pays are taken; settings of speed of
    Hadoop's connector are not.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Of Spark itself or of Spark Connect, which does not see Hadoop's own files (``core-site.xml``).
    url
        The URL of the data: settings of its bucket (``fs.s3a.bucket.NAME.…``) come before the others. Of another
        store than S3, the options are empty.

    Raises
    ------
    ValueError
        A setting has no counterpart; the message names it, and no secret.
    """
    place = parse_url(url)
    if place.protocol != "s3":
        return {}
    bucket = place.path.removeprefix("s3://").partition("/")[0]
    setting = _hadoop(spark) if is_classic(spark) else _connect(spark)

    def get(name: str) -> str | None:
        return setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}") or None

    return from_settings(get)


def from_settings(get: Get) -> dict[str, Any]:
    """Return the storage options that settings mean.

    Raises
    ------
    ValueError
        A setting has no counterpart.
    """
    for name in NO_COUNTERPART:
        if (get(name) or "false").strip().lower() != "false":
            raise _refused(f"setting fs.s3a.{name} has no counterpart in the data source")
    found = _credentials(get) | _endpoint(get)
    if written := _encryption(get) | _storage_class(get):
        found["s3_additional_kwargs"] = written
    if _is_true(get("requester.pays.enabled")):
        found["requester_pays"] = True
    return found


def _credentials(get: Get) -> dict[str, Any]:
    """Return the credentials, of the first provider that has some."""
    text = get("aws.credentials.provider") or ",".join(DEFAULT_PROVIDERS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    passed: list[str] = []
    for name in names:
        kind = name.rpartition(".")[2]
        if OF_THE_MACHINE.search(kind) or (kind in _PROFILES and not get("auth.profile.name")):
            passed.append(kind)  # a profile that no setting names is that of AWS_PROFILE
            continue
        sure = _sure(kind, get)
        if sure is None:
            continue
        if passed:
            raise _refused(
                f"setting fs.s3a.aws.credentials.provider names {passed[0]} before {kind}, and only Hadoop can tell "
                "which of them has credentials"
            )
        return sure
    if not passed:
        shown = ", ".join(name.rpartition(".")[2] for name in names)
        raise _refused(f"setting fs.s3a.aws.credentials.provider is {shown}, which has no key in fs.s3a.*")
    return {}


_PROFILES = ("ProfileAWSCredentialsProvider", "ProfileCredentialsProvider")


def _sure(kind: str, get: Get) -> dict[str, Any] | None:
    """Return the options of a provider that does not depend on the machine; None if it has no credentials."""
    keys = {"key": get("access.key"), "secret": get("secret.key")}
    if kind == "TemporaryAWSCredentialsProvider":
        keys["token"] = get("session.token")
    if kind in ("TemporaryAWSCredentialsProvider", "SimpleAWSCredentialsProvider"):
        return keys if all(keys.values()) else None
    if kind in ("AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"):
        return {"anon": True}
    if kind in _PROFILES:
        return {"profile": get("auth.profile.name")}
    if kind == "AssumedRoleCredentialProvider":
        raise _refused(
            "setting fs.s3a.assumed.role.arn has no counterpart in the data source: write a profile with role_arn and "
            "source_profile into the AWS credentials file, and name it on both sides (fs.s3a.auth.profile.name)"
        )
    raise _refused(f"setting fs.s3a.aws.credentials.provider names {kind}, which the data source does not know")


def _endpoint(get: Get) -> dict[str, Any]:
    found: dict[str, Any] = {}
    endpoint, region = get("endpoint"), get("endpoint.region")
    is_plain = (get("connection.ssl.enabled") or "true").strip().lower() == "false"
    if endpoint:
        found["endpoint_url"] = endpoint if "://" in endpoint else f"http{'' if is_plain else 's'}://{endpoint}"
    elif is_plain:
        found["use_ssl"] = False
    if region and region != "sdk":  # the word means: as the SDK finds it
        found["client_kwargs"] = {"region_name": region}
    if _is_true(get("path.style.access")):
        found["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return found


def _encryption(get: Get) -> dict[str, str]:
    algorithm = get("encryption.algorithm") or get("server-side-encryption-algorithm")
    if not algorithm:
        return {}
    if algorithm not in ENCRYPTIONS:
        raise _refused(f"setting fs.s3a.encryption.algorithm is {algorithm}, which the data source cannot do")
    found = {"ServerSideEncryption": ENCRYPTIONS[algorithm]}
    key = get("encryption.key") or get("server-side-encryption.key")
    if key and algorithm.endswith("KMS"):
        found["SSEKMSKeyId"] = key
    return found


def _storage_class(get: Get) -> dict[str, str]:
    name = (get("create.storage.class") or "").strip().upper()
    if name in ARCHIVES:
        raise _refused(
            f"setting fs.s3a.create.storage.class is {name.lower()}, whose objects the data source could not read again"
        )
    return {"StorageClass": name} if name else {}


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"


def _refused(why: str) -> ValueError:
    return ValueError(f"{why}; no storage options were made: write them yourself, as s3fs takes them")


# -- the settings of a session -------------------------------------------------------------------------------------


def _hadoop(spark: Any) -> Get:
    """Return settings as Hadoop sees them, with its files."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()

    def get(key: str) -> str | None:
        if any(key.endswith(f".{name}") for name in PASSWORDS):
            return "".join(conf.getPassword(key) or ()) or None
        return conf.getTrimmed(key) or None

    return get


def _connect(spark: Any) -> Get:
    def get(key: str) -> str | None:
        value: str | None = spark.conf.get(key, None)
        return value or spark.conf.get(f"spark.hadoop.{key}", None) or None

    return get


def is_classic(spark: Any) -> bool:
    """Return whether the driver runs in this process.

    A session of Spark Connect has no `sparkContext`.
    """
    return hasattr(spark, "_jvm")
