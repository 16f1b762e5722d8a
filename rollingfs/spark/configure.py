"""The settings of a new Spark session for segments, or the jars that a cluster needs for them, gathered in a folder."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rollingfs.policy import check_alias
from rollingfs.spark import jar

STOP_S_MAX = 60
_OPTION = "ROLLINGFS_OPTION_"
_running: dict[str, tuple[subprocess.Popen[str], str]] = {}
"""The gateways of this process, and where they listen, by their arguments."""


def gateway_url(root: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return the URL, like ``webhdfs://127.0.0.1:40123``, of a gateway to a root; it is started, unless it runs.

    It ends with this process, however that ends.

    Raises
    ------
    RuntimeError
        It did not start; it has written its error to standard error.
    """
    options = dict(storage_options or {})
    asked = json.dumps([root, options], sort_keys=True, default=str)
    if asked in _running and _running[asked][0].poll() is None:
        return _running[asked][1]
    # by the environment: a command line can be seen by every user of the machine
    known = {f"{_OPTION}{name.upper()}": json.dumps(value) for name, value in options.items()}
    command = [sys.executable, "-m", "rollingfs.cli", "serve", root, "--port", "0", "--json", "--until-eof"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **known})
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        process.communicate()
        raise RuntimeError(f"the gateway to {root} did not start; its message stands above")
    where = json.loads(line)["url"].rstrip("/").replace("http://", "webhdfs://")
    _running[asked] = process, where
    atexit.register(_stop, process)
    return str(where)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=STOP_S_MAX)


Builder = TypeVar("Builder")


def _s3a_set(hadoop: str, sdk: str, *accelerator: str) -> tuple[str, ...]:
    parts = [f"software.amazon.awssdk:{part}:{sdk}" for part in _SDK_PARTS]
    more = [f"software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:{one}" for one in accelerator]
    return (f"org.apache.hadoop:hadoop-aws:{hadoop}", *parts, *more)


_SDK_PARTS = ("s3-transfer-manager", "sts", "netty-nio-client", "apache-client")
S3A_SETS = {
    "3.4.1": _s3a_set("3.4.1", "2.25.0"),  # Maven has not all parts of 2.24.6, with which it was built
    "3.4.2": _s3a_set("3.4.2", "2.29.52", "1.2.1"),
    "3.5.0": _s3a_set("3.5.0", "2.35.4", "1.3.1"),
}
"""By version of Hadoop: its S3 connector, with only those parts of the AWS SDK that it uses (18 MB instead of 686)."""
WITHOUT_PROFILES = ("3.4.1",)
"""Versions of Hadoop whose connector takes no name of a profile."""
S3A_EXCLUDES = ("software.amazon.awssdk:bundle",)

VECTORED = "spark.hadoop.parquet.hadoop.vectored.io.enabled"
"""Parquet's reads of many ranges; Hadoop's client of WebHDFS opens the file again for each part that has come."""

_S3A = "spark.hadoop.fs.s3a."
_CREDENTIALS = "org.apache.hadoop.fs.s3a."
_NAMES = {
    "key": "access.key",
    "username": "access.key",
    "secret": "secret.key",
    "password": "secret.key",
    "token": "session.token",
    "endpoint_url": "endpoint",
    "profile": "auth.profile.name",
    "requester_pays": "requester.pays.enabled",
    "use_ssl": "connection.ssl.enabled",
    "client_kwargs.endpoint_url": "endpoint",
    "client_kwargs.region_name": "endpoint.region",
    "config_kwargs.max_pool_connections": "connection.maximum",
    "config_kwargs.s3.addressing_style": "path.style.access",
    "s3_additional_kwargs.ServerSideEncryption": "encryption.algorithm",
    "s3_additional_kwargs.SSEKMSKeyId": "encryption.key",
    "s3_additional_kwargs.StorageClass": "create.storage.class",
}
"""By option of s3fs, with a dot where it is nested."""
_VALUES: Mapping[str, Mapping[Any, Any]] = {
    "path.style.access": {"path": True, "virtual": False, "auto": None},
    "encryption.algorithm": {"aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS", "AES256": "SSE-S3"},
}


def configure(
    builder: Builder,
    storage_options: Mapping[str, Any] | None = None,
    tiers: Mapping[str, str | Mapping[str, Any]] | None = None,
    gateway: bool | str = False,
) -> Builder:
    """Prepare the builder of a new Spark session for ``rolling+file://``, ``rolling+s3://`` and others of Hadoop.

    Parameters
    ----------
    builder : pyspark.sql.SparkSession.Builder
        It keeps its own ``spark.jars``, ``spark.jars.packages`` and ``spark.jars.excludes``, and the settings of
        ``spark-defaults.conf``.
    storage_options
        Options of s3fs, flat or nested under ``"s3"``; they become options of Hadoop's S3 connector. If they are given,
        the connector is added, unless it is there already; ``{}`` means the credentials of the environment.
    tiers
        As of `RollingFileSystem`: URLs of roots by alias, or mappings with `root`, which is a URL here. Hadoop
        opens them by its own settings.
    gateway
        The URL of a root, like ``s3://bucket/logs``: start `rollingfs serve` for it on this host, and make it the
        filesystem of paths without a scheme, by Hadoop's own client; no jar is added. True for the whole local disk.
        Parquet is read without vectored reads, unless the builder chooses them: they are slow in that client.
        All processes of this host reach it. For a local master; on a cluster, run a server on each host.

    Returns
    -------
    pyspark.sql.SparkSession.Builder
        The same builder. For a local master, ``PYSPARK_PYTHON`` becomes this Python, unless another is chosen.

    Raises
    ------
    FileNotFoundError
        rollingfs is installed without its jar, or there is no Spark.
    ValueError
        A storage option has no counterpart in the S3 connector, the connector for this Hadoop is not known, or the
        root of a tier is not a URL.
    """
    known: dict[str, str] = {**_defaults(), **getattr(builder, "_options", {})}
    is_local = known.get("spark.master", os.environ.get("MASTER", "local")).startswith("local")
    if is_local and "spark.pyspark.python" not in known:  # that on the PATH may lack rollingfs
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if gateway:
        where = gateway_url(gateway if isinstance(gateway, str) else "/", storage_options)
        settings = {"spark.hadoop.fs.defaultFS": where, VECTORED: known.get(VECTORED, "false")}
    else:
        settings = _of_jar(known, storage_options) | tier_options(tiers or {})
    for key, value in settings.items():
        builder.config(key, value)  # type: ignore[attr-defined]
    return builder


def _of_jar(known: Mapping[str, str], storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the settings for our jar, and for the S3 connector if there are options for it."""
    settings = {"spark.jars": _joined(known.get("spark.jars"), [str(jar.own_jar())])}
    for scheme in (*jar.SCHEMES, *jar.MORE_SCHEMES):
        settings[f"spark.hadoop.fs.{scheme}.impl"] = jar.FILE_SYSTEM
        settings[f"spark.hadoop.fs.AbstractFileSystem.{scheme}.impl"] = jar.ABSTRACT_FILE_SYSTEM
    if storage_options is not None:
        settings |= s3a_options(storage_options)
        packages, excludes = known.get("spark.jars.packages"), known.get("spark.jars.excludes")
        named = f"{known.get('spark.jars')},{packages}"
        if "hadoop-aws" not in named and not any(jar.spark_jars().glob("hadoop-aws-*.jar")):
            settings["spark.jars.packages"] = _joined(packages, s3a_packages())
            settings["spark.jars.excludes"] = _joined(excludes, S3A_EXCLUDES)
    return settings


def tier_options(tiers: Mapping[str, str | Mapping[str, Any]]) -> dict[str, str]:
    """Return the roots of tiers as options of a Spark session for the Hadoop filesystem.

    Raises
    ------
    ValueError
        An alias is malformed, or a root is not a URL.
    """
    found: dict[str, str] = {}
    for alias, given in tiers.items():
        root = given if isinstance(given, str) else str(given.get("root", ""))
        if "://" not in root:
            raise ValueError(f"tier {alias!r}: root {root!r} is not a URL, like s3://bucket/folder or file:///folder")
        found[f"spark.hadoop.fs.rolling.tier.{check_alias(alias)}.root"] = root
    return found


def s3a_packages() -> tuple[str, ...]:
    """Return the Maven coordinates of the S3 connector for the Hadoop of Spark; they need `S3A_EXCLUDES`.

    Raises
    ------
    ValueError
        They are not known for that Hadoop.
    """
    version = jar.hadoop_version()
    if version not in S3A_SETS:
        raise ValueError(
            f"the S3 connector for Hadoop {version} is not known: put org.apache.hadoop:hadoop-aws:{version} "
            "into spark.jars.packages yourself"
        )
    return S3A_SETS[version]


def s3a_options(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Return options of s3fs as options of a Spark session for Hadoop's S3 connector.

    Raises
    ------
    ValueError
        An option has no counterpart.
    """
    options = dict(storage_options.get("s3", storage_options))
    found: dict[str, str] = {}
    if options.pop("anon", False):
        found[_S3A + "aws.credentials.provider"] = _CREDENTIALS + "AnonymousAWSCredentialsProvider"
    for key, value in _flat(options):
        if key not in _NAMES:
            raise ValueError(f"storage option {key!r} has no counterpart in Hadoop's S3 connector")
        one = _VALUES.get(_NAMES[key], {}).get(value, value)
        if one is not None:
            found[_S3A + _NAMES[key]] = str(one).lower() if isinstance(one, bool) else str(one)
    if _S3A + "auth.profile.name" in found and _S3A + "access.key" not in found:  # a key comes before a profile
        if (version := jar.hadoop_version()) in WITHOUT_PROFILES:
            raise ValueError(
                f"storage option 'profile' has no counterpart in the S3 connector of Hadoop {version}: leave it out, "
                "set AWS_PROFILE where Spark runs, and fs.s3a.aws.credentials.provider to "
                "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
            )
        found[_S3A + "aws.credentials.provider"] = _CREDENTIALS + "auth.ProfileAWSCredentialsProvider"
    if _S3A + "session.token" in found:
        found[_S3A + "aws.credentials.provider"] = _CREDENTIALS + "TemporaryAWSCredentialsProvider"
    if endpoint := found.get(_S3A + "endpoint"):
        found.setdefault(_S3A + "path.style.access", "true")
        found.setdefault(_S3A + "connection.ssl.enabled", str(not endpoint.startswith("http://")).lower())
        found.setdefault(_S3A + "endpoint.region", "us-east-1")
    return found


def _flat(options: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    """Yield nested options by names with dots."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", value


def _defaults() -> dict[str, str]:
    """Return the options of ``spark-defaults.conf``; an option of the builder would hide them."""
    folder = os.environ.get("SPARK_CONF_DIR")
    path = Path(folder) if folder else jar.spark_jars().parent / "conf"
    try:
        text = (path / "spark-defaults.conf").read_text()
    except FileNotFoundError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _joined(old: str | None, new: Iterable[str]) -> str:
    """Return a comma-separated list with more items; each stands in it once."""
    parts = [part.strip() for part in (old or "").split(",") if part.strip()]
    return ",".join(dict.fromkeys([*parts, *new]))


FETCH_S_MAX = 900
SHOWN_CHARACTERS_MAX = 2000


def gather(folder: Path, *, s3: bool = True) -> list[Path]:
    """Put our jar, and Hadoop's S3 connector with the parts that it uses of the AWS SDK, into a folder.

    Parameters
    ----------
    folder
        It is made if it is missing. Jars of the same name are replaced, others stay.
    s3
        Whether to add the S3 connector, which the Spark that is installed here fetches from Maven.

    Returns
    -------
    list of Path
        The jars, sorted.

    Raises
    ------
    FileNotFoundError
        There is no Spark, or rollingfs is installed without its jar.
    ValueError
        The S3 connector for the Hadoop of this Spark is not known.
    OSError
        The jars cannot be fetched, or the folder cannot be written.
    """
    sources = [jar.own_jar()]
    with tempfile.TemporaryDirectory(prefix="rollingfs-jars-") as scratch:
        if s3:
            sources += _fetch(Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        return sorted(Path(shutil.copy(source, folder)) for source in sources)


def _fetch(scratch: Path) -> list[Path]:
    """Return the jars of the S3 connector: Spark fetches them for an empty program."""
    nothing = scratch / "nothing.py"
    nothing.touch()
    home = jar.spark_jars().parent
    command = [str(home / "bin" / "spark-submit"), "--conf", f"spark.jars.ivy={scratch}", "--master", "local[1]"]
    command += ["--packages", ",".join(s3a_packages()), "--exclude-packages", ",".join(S3A_EXCLUDES), str(nothing)]
    env = {**os.environ, "SPARK_HOME": str(home)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False)
    found = sorted((scratch / "jars").glob("*.jar"))
    if done.returncode or not found:
        said = (done.stderr or done.stdout).strip()[-SHOWN_CHARACTERS_MAX:]
        raise OSError(f"Spark could not fetch the S3 connector, so no jar was gathered; it said: {said}")
    return found
