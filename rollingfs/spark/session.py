"""A Spark session: the storage options that its settings ``fs.s3a.*`` mean, and what it lacks to read segments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from rollingfs.spark import jar
from rollingfs.spark.source.options import parse_url

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
    protocol, path = parse_url(url)
    if protocol != "s3":
        return {}
    bucket = path.removeprefix("s3://").partition("/")[0]
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


# -- what a session lacks ------------------------------------------------------------------------------------------

_SET_PYTHON = "set PYSPARK_PYTHON (or spark.pyspark.python) to a Python of the driver's version that every worker has"


def doctor(spark: Any) -> list[str]:
    """Examine a Spark session.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        It runs a small job, which looks at Python on a worker.

    Returns
    -------
    list of str
        A sentence for each missing thing, with the remedy.
    """
    if not is_classic(spark):
        return ["This is a Spark Connect session: configure the server that it is connected to, and examine it there."]
    return [*_jar(), *_classes(spark), *_s3a(spark), *_python(spark)]


def _jar() -> Iterator[str]:
    try:
        jar.own_jar()
    except FileNotFoundError as error:
        yield f"The jar is missing: {error}."


def _classes(spark: Any) -> Iterator[str]:
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    lacking = [scheme for scheme in jar.SCHEMES if conf.get(f"fs.{scheme}.impl") is None]
    if lacking:
        yield (
            f"The session does not know {', '.join(scheme + '://' for scheme in lacking)}: call "
            "rollingfs.spark.configure(builder) before the first session of this process is made."
        )
    if not _source(spark, jar.FILE_SYSTEM):
        yield (
            f"The session cannot load {jar.FILE_SYSTEM}: its spark.jars lack {jar.JAR.name}. They are read "
            "when the first session of a process is made, and --jars of spark-submit replaces them."
        )


def _s3a(spark: Any) -> Iterator[str]:
    version = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    source = _source(spark, "org.apache.hadoop.fs.s3a.S3AFileSystem")
    if not source:
        yield (
            "There is no S3 connector, so rolling+s3:// cannot be opened: call rollingfs.spark.configure(builder, "
            f"storage_options), or add org.apache.hadoop:hadoop-aws:{version}."
        )
    elif f"hadoop-aws-{version}" not in source and "hadoop-aws" in source:
        own = os.path.basename(source)
        yield f"The S3 connector is {own}, but Spark's Hadoop is {version}: they must be of one version."


def _source(spark: Any, name: str) -> str:
    """Return the jar of a class; empty if the class cannot be loaded."""
    from py4j.protocol import Py4JJavaError

    try:
        found = spark.sparkContext._jsc.hadoopConfiguration().getClassByName(name)
    except Py4JJavaError:
        return ""
    source = found.getProtectionDomain().getCodeSource()
    return str(source.getLocation()) if source is not None else "unknown"


def _finder() -> Callable[[int], dict[str, str]]:
    """Return a function that reports the Python and packages of its process.

    It is not a function of the module, because Spark would send that by its name, and a worker without rollingfs could
    not run it.
    """

    def find(_: int) -> dict[str, str]:
        import contextlib
        import importlib.metadata
        import sys

        found = {"Python": sys.version.split()[0], "executable": sys.executable, "rollingfs": "", "pyarrow": ""}
        for name in ("rollingfs", "pyarrow"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name)
        return found

    return find


def _python(spark: Any) -> Iterator[str]:
    from py4j.protocol import Py4JJavaError

    find = _finder()
    here = find(0)
    try:
        [there] = spark.sparkContext.parallelize([0], 1).map(find).collect()
    except Py4JJavaError as error:
        yield f"Python does not run on the workers ({_cause(str(error.java_exception))}): {_SET_PYTHON}."
        return
    if there["Python"].split(".")[:2] != here["Python"].split(".")[:2]:
        yield f"Python is {there['Python']} on the workers and {here['Python']} here: {_SET_PYTHON}."
    for name, version in here.items():
        if name in ("rollingfs", "pyarrow") and not there[name]:
            yield (
                f"{name} is not installed for {there['executable']} on the workers: install it there (pip install "
                f"'rollingfs[spark]'), or {_SET_PYTHON}, with {name}."
            )
        elif name == "rollingfs" and there[name] != version:
            yield f"rollingfs is {there[name]} on the workers and {version or 'not installed'} here: install the same."


def _cause(text: str) -> str:
    """Return the cause of a failed job.

    It is the error at the end of a Python traceback, else the first line.
    """
    error = re.search(r"Traceback \(most recent call last\).*\n(?:\s.*\n|\n)*(\S.*)", text)
    return error[1] if error else text.strip().partition("\n")[0]
