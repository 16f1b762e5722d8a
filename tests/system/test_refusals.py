"""A store that refuses, or is not there: a clear error soon, the same by every verb, and no half-written segment."""

import contextlib
import datetime
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.servers import require_module

require_module("s3fs")

from rollingfs import RollingFileSystem
from tests.support.messages import refused
from tests.support.proxy import proxy_to
from tests.support.s3 import small_parts
from tests.support.schedules import eventually
from tests.support.seaweed import ROLE
from tests.support.servers import botocore_client, free_port, new_bucket

MIB = 2**20
PART_BYTES = 5 * MIB
MUCH_BYTES = 12 * MIB
"""A chunk of several parts."""
WAIT_S = 1
TRIES_MAX = 5
EXPIRED = "InvalidAccessKeyId"
"""What SeaweedFS says of credentials that have expired; S3 says ExpiredToken."""

pytestmark = pytest.mark.timeout(120)

Changes = dict[str, str]
CASES: dict[str, tuple[Changes, type[OSError], str]] = {
    "wrong secret": ({"secret": "wrong"}, PermissionError, "SignatureDoesNotMatch"),
    "unknown key": ({"key": "nobody"}, PermissionError, "InvalidAccessKeyId"),
    "unknown session": ({"token": "unknown"}, PermissionError, "InvalidAccessKeyId|InvalidToken|InvalidTokenId"),
    "no server": ({"endpoint_url": ""}, OSError, "could not connect to http://127.*refused"),
}
"""The options that differ, the error, and what it says."""


def written(fs: Any, path: str, mode: str) -> None:
    with fs.open(path, mode) as file:
        for _ in range(MUCH_BYTES // MIB):
            file.write(bytes(MIB))


VERBS: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda fs, path: fs.append(path, b"more"),
    "append much": lambda fs, path: fs.append(path, bytes(MUCH_BYTES)),
    "write": lambda fs, path: fs.pipe_file(path, b"other"),
    "open to write much": lambda fs, path: written(fs, path, "wb"),
    "open to append much": lambda fs, path: written(fs, path, "ab"),
    "read": lambda fs, path: fs.cat_file(path),
    "read ranges": lambda fs, path: fs.cat_ranges([path] * 2, [0, 2], [1, 3], on_error="raise"),
}
QUICK = {"append", "read", "open to write much"}
SOME = [verb if verb in QUICK else pytest.param(verb, marks=pytest.mark.slow) for verb in VERBS]
"""All verbs, of which the fast suite takes one of each kind."""


@pytest.fixture(autouse=True)
def small_parts_and_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollingfs.backend.patience.PAUSE_FIRST_S", 0.001)
    small_parts(monkeypatch, PART_BYTES)


def open_fs(options: dict[str, Any]) -> Any:
    return RollingFileSystem("s3", options, header_cache_s=0, commit_timeout_s=WAIT_S, skip_instance_cache=True)


@pytest.fixture(scope="module")
def path(s3_options: dict[str, Any]) -> str:
    """All tests share it, because none changes it."""
    return new_segment(s3_options)


def new_segment(options: dict[str, Any]) -> str:
    """A segment with a few bytes, alone in its bucket."""
    path = f"{new_bucket(options)}/log"
    open_fs(options).pipe_file(path, b"12345")
    return path


def check_unchanged(s3_options: dict[str, Any], path: str) -> None:
    """Check that the segment is as it was, and that nothing else was begun beside it."""
    fs = open_fs(s3_options)
    assert fs.cat_file(path) == b"12345"
    backend, bucket = fs._backend, path.partition("/")[0]
    assert backend.fs.find(bucket, refresh=True) == [f"{path}$header"]
    assert backend.fs.list_multipart_uploads(bucket) == []


@pytest.mark.parametrize("verb", SOME)
@pytest.mark.parametrize("case", CASES)
def test_refusal_is_same_clear_error_by_every_verb(s3_options: dict[str, Any], path: str, case: str, verb: str) -> None:
    changes, kind, why = CASES[case]
    if "endpoint_url" in changes:
        changes = {"endpoint_url": f"http://127.0.0.1:{free_port()}"}
    with refused(kind, path, why, changes=False) as caught:
        VERBS[verb](open_fs(s3_options | changes), path)
    assert s3_options["secret"] not in str(caught.value)
    check_unchanged(s3_options, path)


@pytest.mark.parametrize("verb", VERBS)
def test_missing_bucket_is_named_by_every_verb_never_made(s3_options: dict[str, Any], verb: str) -> None:
    fs, bucket = open_fs(s3_options), f"absent-{uuid.uuid4().hex[:12]}"
    said = None if verb.startswith("read") else f"the bucket '{bucket}' does not exist"
    with refused(FileNotFoundError, f"{bucket}/log", said, changes=False):
        VERBS[verb](fs, f"{bucket}/log")
    assert not fs.exists(bucket)


def test_missing_bucket_is_named_by_copy_into_it(s3_options: dict[str, Any]) -> None:
    """A copy begins again, or passes over a file, where its source is missing of a sudden; here the target is."""
    fs, source, bucket = open_fs(s3_options), new_segment(s3_options), f"absent-{uuid.uuid4().hex[:12]}"
    fs.append(source, bytes(MUCH_BYTES))
    for on_error in ("raise", "ignore"):
        with pytest.raises(FileNotFoundError, match=f"the bucket '{bucket}' does not exist"):
            fs.copy(source, f"{bucket}/log", on_error=on_error)


@pytest.mark.parametrize("verb", SOME)
@pytest.mark.parametrize("s3_options", ["seaweed"], indirect=True)
@pytest.mark.parametrize("code", ["ExpiredToken", "AuthorizationHeaderMalformed"])
def test_token_and_region_errors_are_equal_for_all_verbs(
    s3_options: dict[str, Any], path: str, code: str, verb: str
) -> None:
    with proxy_to(s3_options["endpoint_url"]) as proxy:
        proxy.fault = lambda _: (400, code)
        with refused(PermissionError, path, code, changes=False):
            VERBS[verb](open_fs(s3_options | {"endpoint_url": proxy.url}), path)
    check_unchanged(s3_options, path)


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_wrong_region_is_found_and_mended_by_all_verbs(minio_of_region: dict[str, Any], verb: str) -> None:
    path = new_segment(minio_of_region)
    fs = open_fs(minio_of_region | {"client_kwargs": {"region_name": "eu-west-3"}})
    VERBS[verb](fs, path)
    assert fs.size(path) == open_fs(minio_of_region).size(path)


# -- credentials that expire ---------------------------------------------------------------------------------


def short_credentials(seaweed: dict[str, Any], path: str) -> tuple[dict[str, Any], datetime.datetime]:
    """Options with credentials that read the segment and expire in two seconds, and the time when they do."""
    client = botocore_client("sts", seaweed)
    for _ in range(TRIES_MAX):
        found = client.assume_role(RoleArn=ROLE, RoleSessionName="test")["Credentials"]
        keys = {"key": found["AccessKeyId"], "secret": found["SecretAccessKey"], "token": found["SessionToken"]}
        with contextlib.suppress(PermissionError):  # this process was suspended for two seconds
            assert open_fs(seaweed | keys).cat_file(path) == b"12345"
            return seaweed | keys, found["Expiration"]
    raise AssertionError("the credentials never worked")


@pytest.mark.parametrize("mode", ["wb", pytest.param("ab", marks=pytest.mark.slow)])
def test_credentials_that_expire_amid_writes_leave_the_segment(seaweed: dict[str, Any], mode: str) -> None:
    own_path = new_segment(seaweed)
    options, end = short_credentials(seaweed, own_path)

    with refused(PermissionError, own_path, EXPIRED, changes=False), open_fs(options).open(own_path, mode) as file:
        file.write(bytes(2 * PART_BYTES))
        eventually(lambda: datetime.datetime.now(datetime.UTC) > end + datetime.timedelta(seconds=1))
        file.write(bytes(2 * PART_BYTES))
    fs = open_fs(seaweed)
    assert fs.cat_file(own_path) == b"12345"
    # with expired credentials nobody can abort the upload that was begun; the owner collects it
    fs.collect(own_path, grace=0)
    check_unchanged(seaweed, own_path)
