"""The policies of `docs/on_s3.md` suffice for what the page says, and each action in them is needed."""

import copy
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import botocore_client, new_bucket, require_module

require_module("s3fs")

from rollingfs import RollingPolicy
from tests.support.s3 import rolling_s3, small_parts

PAGE = Path(__file__).parents[2] / "docs" / "on_s3.md"
MIB = 2**20
PART_BYTES = 5 * MIB
CHUNKS = RollingPolicy(max_bytes=PART_BYTES, inline_bytes=100)

Policy = dict[str, Any]

pytestmark = [pytest.mark.slow, pytest.mark.s3]


def policy_of(sid: str) -> Policy:
    """The policy on the page with a statement of this name."""
    blocks = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    policies = [policy for policy in map(json.loads, blocks) if "Statement" in policy]
    [found] = [policy for policy in policies if sid in {statement["Sid"] for statement in policy["Statement"]}]
    return dict(found)


def without(policy: Policy, action: str) -> Policy:
    """The policy without one of its actions."""
    less = copy.deepcopy(policy)
    for statement in less["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each != action]
    less["Statement"] = [statement for statement in less["Statement"] if statement["Action"]]
    assert less != policy
    return less


@pytest.fixture
def bucket(minio: dict[str, Any]) -> str:
    return new_bucket(minio)


@pytest.fixture
def root(minio: dict[str, Any]) -> Any:
    """A filesystem that may do everything."""
    return rolling_s3(minio)


@pytest.fixture
def allowed(minio: dict[str, Any], bucket: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Policy], Any]:
    """Makes a filesystem with the rights of a policy of the page, applied to the test's bucket."""
    small_parts(monkeypatch, PART_BYTES)

    def connect(policy: Policy) -> Any:
        sts = botocore_client("sts", minio)
        text = json.dumps(policy).replace("arn:aws:s3:::logs", f"arn:aws:s3:::{bucket}")
        role = {"RoleArn": "arn:minio:iam:::role/any", "RoleSessionName": "test"}  # MinIO ignores both
        given = sts.assume_role(**role, Policy=text)["Credentials"]
        sts.close()
        keys = {"key": given["AccessKeyId"], "secret": given["SecretAccessKey"], "token": given["SessionToken"]}
        return rolling_s3(minio | keys)

    return connect


def read_all(fs: Any, folder: str) -> None:
    """Do everything that the page calls reading."""
    assert fs.ls(folder, detail=False) == [f"{folder}/log", f"{folder}/plain"]
    assert fs.find(folder) == [f"{folder}/log", f"{folder}/plain"]
    assert fs.exists(folder)
    assert not fs.exists(f"{folder}/absent")
    assert fs.info(f"{folder}/log")["size"] == 6 * MIB
    assert fs.cat_file(f"{folder}/plain") == b"plain"
    assert fs.cat_file(f"{folder}/log", 5 * MIB, 5 * MIB + 3) == b"xxx"
    with fs.open(f"{folder}/log", "rb") as file:
        assert len(file.read()) == 6 * MIB
    assert sum(map(len, fs.segment(f"{folder}/log").tail())) == 6 * MIB
    assert all(row.ok for row in fs.segment(f"{folder}/log").verify())


def write_all(fs: Any, folder: str) -> None:
    """Do everything that the page calls writing."""
    fs.create(f"{folder}/log", CHUNKS)
    fs.append(f"{folder}/log", b"small")
    for _ in range(3):
        fs.append(f"{folder}/log", b"x" * PART_BYTES)
    fs.create(f"{folder}/other")
    with fs.open(f"{folder}/other", "ab") as file:
        file.write(bytes(PART_BYTES + 1))
    unwanted = fs.open(f"{folder}/other", "ab")
    unwanted.write(bytes(2 * PART_BYTES))
    unwanted.discard()
    fs.seal(f"{folder}/other")
    fs.concat(f"{folder}/log", [f"{folder}/other"])
    fs.truncate(f"{folder}/log", PART_BYTES + 10)
    fs.mv(f"{folder}/log", f"{folder}/moved")
    fs.segment(f"{folder}/moved").seal()
    fs.segment(f"{folder}/moved").consolidate(grace=0)
    assert fs.size(f"{folder}/moved") == 3 * PART_BYTES + 5 + 1 - 10
    fs.collect(folder, recursive=True, grace=0)
    fs.rm(f"{folder}/moved")
    assert fs.find(folder) == []


@pytest.fixture
def folder(root: Any, bucket: str) -> str:
    """A folder with a segment and a plain file."""
    folder = f"{bucket}/events"
    root.create(f"{folder}/log", CHUNKS)
    root.append(f"{folder}/log", b"x" * 6 * MIB)
    root.seal(f"{folder}/log")
    root._backend.fs.pipe_file(f"{folder}/plain", b"plain")
    root._backend.fs.pipe_file(f"{folder}/log$chunks/00000000000000000000-00000000000a", b"left by a crash")
    return folder


def test_a_reader_reads_everything_and_changes_nothing(allowed, root, folder):
    fs = allowed(policy_of("ReadFiles"))
    read_all(fs, folder)
    before = root._backend.fs.find(folder, detail=True)
    changes = [
        lambda: fs.create(f"{folder}/new"),
        lambda: fs.append(f"{folder}/plain", b"more"),
        lambda: fs.truncate(f"{folder}/log", 1),
        lambda: fs.rm(f"{folder}/log"),
        lambda: fs.mv(f"{folder}/log", f"{folder}/elsewhere"),
        lambda: fs.collect(f"{folder}/log", grace=0),
        lambda: fs.pipe_file(f"{folder}/new", bytes(2 * PART_BYTES)),
    ]
    for change in changes:
        with pytest.raises(PermissionError, match=folder):
            change()
    root._backend.fs.invalidate_cache()
    assert root._backend.fs.find(folder, detail=True) == before


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:ListBucket"])
def test_a_reader_needs_each_action(allowed, folder, action):
    with pytest.raises(PermissionError):
        read_all(allowed(without(policy_of("ReadFiles"), action)), folder)


def test_a_writer_writes_everything_and_reads_it(allowed, folder, bucket):
    fs = allowed(policy_of("WriteFiles"))
    write_all(fs, f"{bucket}/written")
    read_all(fs, folder)


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"])
def test_a_writer_needs_each_action(allowed, bucket, action):
    with pytest.raises(PermissionError):
        write_all(allowed(without(policy_of("WriteFiles"), action)), f"{bucket}/written")


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("s3:AbortMultipartUpload", "uploads that were not committed are left to collect"),
        ("s3:ListBucketMultipartUploads", "unfinished uploads are not collected"),
    ],
)
def test_without_the_actions_for_unfinished_uploads_only_those_stay(allowed, bucket, action, told, caplog):
    caplog.set_level(logging.INFO, "rollingfs")
    write_all(allowed(policy_of("WriteFiles")), f"{bucket}/first")
    assert told not in caplog.text
    write_all(allowed(without(policy_of("WriteFiles"), action)), f"{bucket}/second")
    assert told in caplog.text


def test_nothing_else_is_in_the_policies():
    def actions(sid: str) -> set[str]:
        return {action for statement in policy_of(sid)["Statement"] for action in statement["Action"]}

    needed = {"s3:GetObject", "s3:ListBucket"}
    assert actions("ReadFiles") == needed
    uploads = {"s3:AbortMultipartUpload", "s3:ListBucketMultipartUploads"}
    assert actions("WriteFiles") == needed | {"s3:PutObject", "s3:DeleteObject"} | uploads
