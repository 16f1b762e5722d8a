"""Keys on S3 with empty parts, which other tools make: they are listed, read and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.servers import require_module

require_module("s3fs")
require_module("moto")

import fsspec

from tests.support.servers import new_bucket


def test_keys_with_empty_parts_are_found_and_go_with_their_folder(moto: dict[str, Any]) -> None:
    bucket = new_bucket(moto)
    raw = fsspec.filesystem("s3", **moto, skip_instance_cache=True)
    fs = fsspec.filesystem("rolling", target_protocol="s3", target_options=moto, skip_instance_cache=True)
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
