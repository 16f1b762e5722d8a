"""A filesystem over S3 that nobody holds is freed, with its connections: obstore holds nothing that holds it."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.support.servers import new_bucket

pytest.importorskip("s3fs")
pytest.importorskip("obstore")

TRIES = 200
PAUSE_S = 0.05
"""The event loop drops the last request in a moment of its own."""


def _used(seaweed: dict[str, Any]) -> list[Any]:
    fs, bucket = RollingFileSystem("s3", seaweed, skip_instance_cache=True), new_bucket(seaweed)
    fs.pipe_file(f"{bucket}/x", b"bytes")
    assert fs.cat_file(f"{bucket}/x") == b"bytes"
    assert len(fs.ls(bucket)) == 1
    assert fs._backend.fs._s3 is not None  # through botocore, too
    return [weakref.ref(one) for one in (fs, fs._client, fs._backend, fs._backend.fs)]


def test_a_filesystem_that_nobody_holds_is_freed(seaweed: dict[str, Any]) -> None:
    refs = _used(seaweed)
    for _ in range(TRIES):
        gc.collect()
        if not any(ref() is not None for ref in refs):
            break
        time.sleep(PAUSE_S)
    assert [ref() for ref in refs] == [None] * len(refs)
