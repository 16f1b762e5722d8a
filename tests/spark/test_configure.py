"""The settings that `configure` gives to the builder of a Spark session, and back; and the jars that it needs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs.spark import configure, jar, storage_options
from rollingfs.spark.configure import S3A_SETS, gather, s3a_options
from rollingfs.spark.segment_operations import Chores
from rollingfs.spark.session import NO_COUNTERPART, from_settings
from tests.support import spark as world
from tests.support.cli import done

S3A = "spark.hadoop.fs.s3a."


class Builder:
    """The part of `SparkSession.Builder` that `configure` uses."""

    def __init__(self, **options: str) -> None:
        self._options = {key.replace("__", "."): value for key, value in options.items()}

    def config(self, key: str, value: str) -> Builder:
        self._options[key] = value
        return self


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch) -> Path:
    """A Spark of the newest Hadoop that is known, with no defaults, and our jar."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"hadoop-client-api-{max(S3A_SETS)}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # `configure` may set it
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setattr(jar, "own_jar", lambda: tmp_path / "own.jar")
    (tmp_path / "own.jar").write_bytes(b"own")
    return tmp_path


def options(builder: Builder, given: Any = None) -> dict[str, str]:
    assert configure(builder, given) is builder
    return builder._options


def test_schemes_get_their_classes_without_fetches_for_disks(installed):
    found = options(Builder())
    assert found["spark.jars"] == f"{installed}/own.jar"
    for scheme in (f"rolling+{below}" for below in ("file", "s3", "s3a", "abfs", "abfss", "gs", "hdfs")):
        assert found[f"spark.hadoop.fs.{scheme}.impl"] == "rollingfs.hadoop.RollingFileSystem"
        assert found[f"spark.hadoop.fs.AbstractFileSystem.{scheme}.impl"] == "rollingfs.hadoop.RollingFs"
    assert "spark.jars.packages" not in found


def test_the_users_own_jars_and_packages_are_kept(installed):
    (installed / "conf").mkdir()
    (installed / "conf" / "spark-defaults.conf").write_text(
        "# mine\nspark.jars.packages   org.x:default:1\nspark.jars=/of/defaults.jar\n\nspark.other 3\n"
    )
    found = options(Builder(), {})
    assert found["spark.jars"] == f"/of/defaults.jar,{installed}/own.jar"
    assert found["spark.jars.packages"].split(",") == ["org.x:default:1", *S3A_SETS[max(S3A_SETS)]]
    found = options(Builder(spark__jars="/mine.jar", spark__jars__packages="org.x:mine:1"), {})
    assert found["spark.jars"] == f"/mine.jar,{installed}/own.jar"
    assert found["spark.jars.packages"].startswith("org.x:mine:1,org.apache.hadoop:hadoop-aws:")
    assert found["spark.jars.excludes"] == "software.amazon.awssdk:bundle"
    assert options(Builder(**found), {}) == found


def test_connector_that_is_there_already_is_not_fetched_again(installed):
    mine = options(Builder(spark__jars__packages="org.apache.hadoop:hadoop-aws:3.5.0"), {})
    assert mine["spark.jars.packages"] == "org.apache.hadoop:hadoop-aws:3.5.0"
    (installed / "jars" / "hadoop-aws-3.5.0.jar").touch()
    assert "spark.jars.packages" not in options(Builder(), {})


def test_unknown_hadoop_is_error_that_says_what_to_add(installed):
    for path in (installed / "jars").iterdir():
        path.unlink()
    (installed / "jars" / "hadoop-client-api-9.9.9.jar").touch()
    with pytest.raises(ValueError, match=r"org\.apache\.hadoop:hadoop-aws:9\.9\.9"):
        configure(Builder(), {})


@pytest.mark.parametrize("nested", [False, True])
def test_storage_options_of_s3fs_become_those_of_the_connector(nested):
    given = {
        "key": "me",
        "secret": "xyz",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:9000", "region_name": "eu-west-1"},
        "config_kwargs": {"max_pool_connections": 64},
        "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"},
        "requester_pays": True,
        "token": None,
    }
    assert s3a_options({"s3": given} if nested else given) == {
        S3A + "access.key": "me",
        S3A + "secret.key": "xyz",
        S3A + "endpoint": "http://127.0.0.1:9000",
        S3A + "endpoint.region": "eu-west-1",
        S3A + "connection.maximum": "64",
        S3A + "encryption.algorithm": "SSE-KMS",
        S3A + "encryption.key": "k",
        S3A + "requester.pays.enabled": "true",
        S3A + "path.style.access": "true",
        S3A + "connection.ssl.enabled": "false",
    }


@pytest.mark.parametrize("given", [{"colour": "blue"}, {"client_kwargs": {"verify": False}}])
def test_storage_option_without_counterpart_is_error_that_names_it(given):
    with pytest.raises(ValueError, match=r"colour|verify"):
        s3a_options(given)


def test_roots_of_tiers_become_settings_of_hadoop_filesystem():
    tiers = {"cold": "s3a://archive/x", "far": {"root": "file:///far", "protocol": "file"}}
    builder = configure(Builder(), tiers=tiers)
    assert builder._options["spark.hadoop.fs.rolling.tier.cold.root"] == "s3a://archive/x"
    assert builder._options["spark.hadoop.fs.rolling.tier.far.root"] == "file:///far"
    for tiers in ({"cold": "/x"}, {"Cold": "s3://x/y"}, {"cold": {}}):
        with pytest.raises(ValueError, match=r"not a URL|not an alias"):
            configure(Builder(), tiers=tiers)


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        ({}, None, sys.executable),
        ({"spark.master": "local[2]"}, None, sys.executable),
        ({"spark.master": "spark://host:7077"}, None, None),  # the path of this Python means nothing there
        ({"spark.pyspark.python": "/other"}, None, None),
        ({}, "/mine", "/mine"),
    ],
)
def test_local_spark_uses_this_python_unless_one_is_chosen(monkeypatch, options, before, after):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("MASTER", raising=False)
    if before is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", before)
    configure(Builder(**options))
    assert os.environ.pop("PYSPARK_PYTHON", None) == after


# -- what the jar is compiled against --------------------------------------------------------------------------------


def test_the_api_of_hadoop_is_taken_by_its_checksum(tmp_path, monkeypatch):
    def maven(command, **_):
        (tmp_path / f"hadoop-client-api-{jar.HADOOP_VERSION}.jar").write_bytes(b"other")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(jar.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(jar.shutil, "which", lambda name: None)
    with pytest.raises(jar.CannotCompileError, match="Maven"):
        jar.hadoop_api(tmp_path)
    monkeypatch.setattr(jar.shutil, "which", lambda name: name)
    monkeypatch.setattr(jar.subprocess, "run", maven)
    with pytest.raises(jar.CannotCompileError, match=r"checksum.*nothing was compiled"):
        jar.hadoop_api(tmp_path)
    monkeypatch.setattr(jar, "HADOOP_SHA256", hashlib.sha256(b"other").hexdigest())
    assert jar.hadoop_api(tmp_path).parent == tmp_path


# -- jars that are gathered, for machines that fetch nothing ---------------------------------------------------------


def submit(home: Path, script: str) -> None:
    """Let a script be the `spark-submit` of a Spark."""
    (home / "bin").mkdir()
    (home / "bin" / "spark-submit").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "spark-submit").chmod(0o755)


def test_s3_jars_and_our_own_reach_the_folder(installed):
    find = "for one; do case $one in spark.jars.ivy=*) to=${one#*=};; esac; done"
    submit(installed, f"{find}; mkdir $to/jars; echo 1 > $to/jars/a.jar")
    to = installed / "new" / "folder"
    assert done("spark-jars", "--to", to, "--json").json == {"jars": [f"{to}/a.jar", f"{to}/own.jar"]}
    assert (to / "own.jar").read_bytes() == b"own"
    assert gather(installed / "to", s3=False) == [installed / "to" / "own.jar"]


def test_sparks_error_is_shown_and_no_folder_made(installed):
    submit(installed, "echo no route to Maven >&2; exit 1")
    with pytest.raises(OSError, match="no jar was gathered; it said: no route to Maven"):
        gather(installed / "to")
    assert not (installed / "to").exists()


@pytest.mark.slow
@pytest.mark.s3
def test_a_spark_that_is_there_fetches_its_s3_connector(tmp_path, monkeypatch):
    monkeypatch.undo()  # of `installed`
    world.require_java()
    found = [path.name for path in gather(tmp_path)]
    assert jar.JAR.name in found
    assert any(f"hadoop-aws-{jar.hadoop_version()}" in name for name in found)
    assert not any("awssdk_bundle" in name for name in found)


# -- storage options from settings of Hadoop's S3 connector, and back ------------------------------------------------

PROVIDER = "aws.credentials.provider"
HADOOPS = "org.apache.hadoop.fs.s3a."
SDKS = "software.amazon.awssdk.auth.credentials."
KEYS = {"access.key": "me", "secret.key": "hush"}
OF_KEYS = {"key": "me", "secret": "hush"}
KMS = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"}
ENVIRONMENT_FIRST = f"{SDKS}EnvironmentVariableCredentialsProvider,{HADOOPS}SimpleAWSCredentialsProvider"


def by(*providers: str, **settings: str) -> dict[str, Any]:
    return from_settings(({PROVIDER: ",\n ".join(providers)} | settings).get)


@pytest.mark.parametrize(
    "given",
    [
        {},
        OF_KEYS,
        {**OF_KEYS, "token": "t"},
        {"anon": True},
        {"profile": "team"},
        {"use_ssl": False},
        {
            **OF_KEYS,
            "endpoint_url": "http://127.0.0.1:9000",
            "client_kwargs": {"region_name": "eu-west-1"},
            "config_kwargs": {"s3": {"addressing_style": "path"}},
            "requester_pays": True,
            "s3_additional_kwargs": {**KMS, "StorageClass": "STANDARD_IA"},
        },
    ],
)
def test_data_source_options_return_from_their_settings(given, monkeypatch):
    monkeypatch.setattr(jar, "hadoop_version", lambda: "3.5.0")
    settings = {key.removeprefix("spark.hadoop.fs.s3a."): value for key, value in s3a_options(given).items()}
    assert from_settings(settings.get) == given


def test_the_first_provider_that_has_credentials_gives_them():
    assert from_settings({}.get) == {}
    assert from_settings(KEYS.get) == OF_KEYS
    assert from_settings({**KEYS, "session.token": "t"}.get) == {**OF_KEYS, "token": "t"}
    simple, temporary = f"{HADOOPS}SimpleAWSCredentialsProvider", f"{HADOOPS}TemporaryAWSCredentialsProvider"
    assert by(simple, temporary, **KEYS, **{"session.token": "t"}) == OF_KEYS
    assert by(temporary, f"{HADOOPS}AnonymousAWSCredentialsProvider", **KEYS) == {"anon": True}
    assert by(simple, f"{SDKS}ProfileCredentialsProvider") == {}  # that of AWS_PROFILE
    profile = f"{HADOOPS}auth.ProfileAWSCredentialsProvider"
    assert by(profile, simple, **KEYS, **{"auth.profile.name": "team"}) == {"profile": "team"}


OF_MACHINES = ("Container", "Default", "EC2Container", "EnvironmentVariable", "IAMInstance", "WebIdentityTokenFile")


@pytest.mark.parametrize("kind", OF_MACHINES)
def test_role_or_web_identity_of_machine_needs_no_option(kind):
    wrapper = "Wrapper" if kind == "EC2Container" else ""
    assert by(f"{SDKS}{kind}CredentialsProvider{wrapper}") == {}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({PROVIDER: f"{HADOOPS}auth.AssumedRoleCredentialProvider", "assumed.role.arn": "arn:x"}, "assumed.role.arn"),
        ({PROVIDER: "com.example.MyProvider"}, "MyProvider, which the data source does not know"),
        ({PROVIDER: f"{HADOOPS}SimpleAWSCredentialsProvider"}, "has no key"),
        ({PROVIDER: ENVIRONMENT_FIRST}, "only Hadoop can tell"),
        ({"encryption.algorithm": "SSE-C", "encryption.key": "hush"}, "algorithm is SSE-C"),
        ({"encryption.algorithm": "CSE-KMS", "encryption.key": "hush"}, "algorithm is CSE-KMS"),
        ({"endpoint.fips": "true"}, "fs.s3a.endpoint.fips"),
        ({"create.storage.class": "deep_archive"}, "class is deep_archive, whose objects .* could not read again"),
        *[({name: "hush"}, re.escape(f"fs.s3a.{name}")) for name in NO_COUNTERPART],
    ],
)
def test_unmatched_option_is_refused_by_name_without_secrets(settings, why):
    with pytest.raises(ValueError, match=why) as refused:
        from_settings((KEYS | settings if "has no key" not in why else settings).get)
    assert "no storage options were made" in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"endpoint": "minio:9000", "connection.ssl.enabled": "false"}, {"endpoint_url": "http://minio:9000"}),
        ({"endpoint": "s3.example.org"}, {"endpoint_url": "https://s3.example.org"}),
        ({"endpoint.region": "sdk"}, {}),
        ({"encryption.algorithm": "SSE-S3", "encryption.key": "ignored"}, {"ServerSideEncryption": "AES256"}),
        ({"server-side-encryption-algorithm": "DSSE-KMS"}, {"ServerSideEncryption": "aws:kms:dsse"}),
        ({"create.storage.class": " glacier_ir "}, {"StorageClass": "GLACIER_IR"}),
        ({"connection.maximum": "500", "fast.upload.buffer": "disk"}, {}),
    ],
)
def test_places_and_encryption_are_taken_hadoop_tuning_is_not(settings, wanted):
    found = from_settings(settings.get)
    assert found.pop("s3_additional_kwargs", {}) | found == wanted


def test_bucket_settings_come_first_and_disks_need_none():
    settings = {
        "spark.hadoop.fs.s3a.access.key": "all",
        "spark.hadoop.fs.s3a.secret.key": "hush",
        "spark.hadoop.fs.s3a.bucket.mine.access.key": "mine",
        "fs.s3a.bucket.mine.secret.key": "own",
    }
    spark = SimpleNamespace(conf=settings)  # what a session of Spark Connect tells
    assert storage_options(spark, "rolling+s3://mine/events") == {"key": "mine", "secret": "own"}
    assert storage_options(spark, "s3a://other/events") == {"key": "all", "secret": "hush"}
    assert storage_options(spark, "/tmp/events") == {}


def test_profile_is_refused_without_a_connector_for_it(monkeypatch):
    monkeypatch.setattr(jar, "hadoop_version", lambda: "3.4.1")
    with pytest.raises(ValueError, match="AWS_PROFILE"):
        s3a_options({"profile": "team"})
    assert "auth.ProfileAWSCredentialsProvider" not in str(s3a_options({"profile": "team", **OF_KEYS}))


def test_the_options_of_an_export_are_in_no_text():
    assert "hush" not in repr(Chores((), target="s3://b/x", target_options={"secret": "hush"}))
