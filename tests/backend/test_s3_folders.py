"""Folders on S3: whether one exists takes one short listing, and keys with empty parts, of other tools, are in it."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.servers import require_module

require_module("s3fs")

import fsspec

from rollingfs import RollingPolicy
from rollingfs.backend.objects import backend as folders
from rollingfs.backend.objects.request_errors import Refusal
from rollingfs.backend.objects.s3.bucket import S3Bucket
from rollingfs.errors import NoBucketError
from rollingfs.runtime.concurrency import drive
from tests.support.driven import Driven
from tests.support.examples import slowly
from tests.support.proxy import Proxy
from tests.support.s3 import rolling_s3
from tests.support.servers import new_bucket

CHUNKS = RollingPolicy(max_bytes=10, inline_bytes=0)


@pytest.fixture
def folder(seaweed: dict[str, Any]) -> str:
    return f"{new_bucket(seaweed)}/folder"


@pytest.fixture
def fs(seaweed: dict[str, Any], proxy: Proxy) -> Any:
    """A client that has seen nothing yet."""
    return rolling_s3(seaweed, proxy.url)


@pytest.fixture
def plain(seaweed: dict[str, Any]) -> Any:
    """A filesystem that does not go through the proxy."""
    return rolling_s3(seaweed)


def _listings(proxy: Proxy) -> list[int]:
    """The number of keys that each listing asked for."""
    queries = [parse_qs(urlsplit(seen.path).query) for seen in proxy.seen]
    return [int(query.get("max-keys", ["1000"])[0]) for query in queries if "list-type" in query]


@pytest.mark.parametrize("ask", ["isdir", *slowly("exists", "info")])
@pytest.mark.parametrize("content", ["files", "segments", "folders"])
def test_folder_check_takes_one_listing_of_few_keys(fs, plain, folder, proxy, content, ask):
    count = folders.FIRST_PAGE_KEYS_MAX + 4
    if content == "segments":
        for number in range(count // 2):  # each has a header and a chunk folder
            plain.create(f"{folder}/{number}", policy=CHUNKS)
            plain.append(f"{folder}/{number}", b"data")
    else:
        below = "/file" if content == "folders" else ""
        plain._backend.fs.pipe({f"{folder}/{number}{below}": b"x" for number in range(count)}, batch_size=16)
    assert getattr(fs, ask)(folder)
    assert _listings(proxy) == [folders.FIRST_PAGE_KEYS_MAX] * (2 if content == "folders" else 1)
    others = [seen for seen in proxy.seen if "list-type" not in seen.path]
    assert len(others) <= 4, "twice the header and once the file of that name, and at most one header within"


def test_segments_behind_many_deleted_ones_make_a_folder(fs, plain, folder, proxy, monkeypatch):
    monkeypatch.setattr(folders, "FIRST_PAGE_KEYS_MAX", 2)
    for number in range(4):
        plain.create(f"{folder}/{number}")
    for number in range(3):
        plain.rm(f"{folder}/{number}")
    assert fs.isdir(folder)
    assert _listings(proxy) == [2, 1000]
    plain.rm(f"{folder}/3")
    assert not fs.isdir(folder)


def test_a_folder_that_is_but_a_marker_is_there(fs, plain, folder):
    plain._backend.fs.call_s3("put_object", Bucket=folder.partition("/")[0], Key=f"{folder.partition('/')[2]}/")
    assert fs.isdir(folder)


def test_a_bucket_says_whether_it_keeps_former_versions(seaweed):
    fs = fsspec.filesystem("s3", **seaweed)
    backend = Driven(fsspec.filesystem("rolling", fs=fs)._backend)
    bucket, other = new_bucket(seaweed), new_bucket(seaweed)
    fs.call_s3("put_bucket_versioning", Bucket=other, VersioningConfiguration={"Status": "Enabled"})
    assert [backend.keeps_versions(f"{name}/a$header") for name in (bucket, other)] == [False, True]


def test_keys_with_empty_parts_are_found_in_their_folder(moto):
    bucket = new_bucket(moto)
    raw = fsspec.filesystem("s3", **moto, skip_instance_cache=True)
    fs = rolling_s3(moto)
    keys = ["a/b", "a//c", "a///d", "/top", "other"]
    for key in keys:
        raw.call_s3("put_object", Bucket=bucket, Key=key, Body=key.encode())
    assert fs.find(bucket) == sorted(f"{bucket}/{key}" for key in keys)
    assert fs.cat_file(f"{bucket}/a//c") == b"a//c"
    with pytest.raises(ValueError, match="not a segment name"):
        fs.pipe_file(f"{bucket}/a//new", b"x")
    fs.rm(f"{bucket}/a", recursive=True)
    left = [found["Key"] for found in raw.call_s3("list_objects_v2", Bucket=bucket)["Contents"]]
    assert left == ["/top", "other"]
    fs.rm(f"{bucket}//top")
    assert fs.find(bucket) == [f"{bucket}/other"]


MAKING: dict[str, Any] = {
    "open": lambda fs, options, bucket, file: fsspec.open(f"rolling+s3://{bucket}/x", "w", **options).open(),  # pandas
    "makedirs": lambda fs, options, bucket, file: fs.makedirs(bucket, exist_ok=True),
    "put": lambda fs, options, bucket, file: fs.put(str(file), f"{bucket}/x"),
    "pipe": lambda fs, options, bucket, file: fs.pipe_file(f"{bucket}/x", b"x"),
}


@pytest.mark.parametrize("make", MAKING)
def test_nothing_but_mkdir_makes_a_bucket(plain: Any, seaweed: dict[str, Any], make: str, tmp_path: Path) -> None:
    bucket, file = f"rollingfs-typo-{make}", tmp_path / "x"
    file.write_bytes(b"x")
    with pytest.raises(NoBucketError, match=r"does not exist.*make it first, with fs\.mkdir"):
        MAKING[make](plain, seaweed, bucket, file)
    assert not plain.exists(bucket)
    plain.mkdir(bucket)
    plain.makedirs(bucket, exist_ok=True)
    assert plain.ls(bucket) == []


@pytest.mark.parametrize("refusal", [Refusal(404, "NoSuchUpload", ""), Refusal(501, "NotImplemented", "")])
def test_a_refused_list_of_uploads_is_empty(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: object, verb: str, **arguments: object) -> None:
        raise refusal

    monkeypatch.setattr(S3Bucket, "_ask", refuse)
    assert drive(object.__new__(S3Bucket).pending("folder/", "")) == []
