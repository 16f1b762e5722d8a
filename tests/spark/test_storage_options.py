"""Credentials, roles and places that are given once: from settings of Hadoop's S3 connector, and back."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs.spark import jar, storage_options
from rollingfs.spark.configure import s3a_options
from rollingfs.spark.segment_operations import ExportFolder
from rollingfs.spark.storage_options import NO_COUNTERPART, from_settings

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
def test_what_is_given_to_the_data_source_comes_back_from_the_settings_that_it_becomes(given, monkeypatch):
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
def test_a_role_or_web_identity_of_the_machine_needs_no_option(kind):
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
def test_what_has_no_counterpart_is_refused_in_a_sentence_that_names_it_and_no_secret(settings, why):
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
def test_places_and_encryption_are_taken_and_what_only_tunes_hadoop_is_not(settings, wanted):
    found = from_settings(settings.get)
    assert found.pop("s3_additional_kwargs", {}) | found == wanted


def test_the_settings_of_a_bucket_come_before_the_others_and_a_disk_needs_none():
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


def test_a_profile_is_refused_for_a_connector_that_cannot_be_told_its_name(monkeypatch):
    monkeypatch.setattr(jar, "hadoop_version", lambda: "3.4.1")
    with pytest.raises(ValueError, match="AWS_PROFILE"):
        s3a_options({"profile": "team"})
    assert "auth.ProfileAWSCredentialsProvider" not in str(s3a_options({"profile": "team", **OF_KEYS}))


def test_the_options_of_an_export_are_in_no_text():
    assert "hush" not in repr(ExportFolder("s3://b/x", (), {"secret": "hush"}))
