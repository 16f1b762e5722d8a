"""What the tests of reading share."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.local.backend import LocalBackend
from rollingfs.fs import read_buffer, reading
from rollingfs.read import prefetch, ranges
from tests.support.backends import Counting, private_memory
from tests.support.servers import new_bucket, shared_backend


@pytest.fixture
def small_ranges(limits: Any) -> None:
    """No request covers a whole chunk: neither those of one large read, nor those fetched ahead."""
    limits(ranges, RANGE_BYTES_MIN=300, RANGE_BYTES_MAX=300, SYNC_RANGE_BYTES_MAX=300)
    limits(read_buffer, SYNC_BUFFER_BYTES=170, LINE_BYTES=170, PREFETCH_RANGE_BYTES=300)
    limits(prefetch, PREFETCH_RANGE_BYTES=300)
    limits(reading, PIECE_BYTES=700)


def backend_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    """A backend of a kind, and a folder on it that nobody else uses."""
    if kind == "local":
        return LocalBackend(sync=False), str(tmp_path)
    if kind == "s3":
        seaweed = request.getfixturevalue("seaweed")
        return shared_backend(**seaweed), f"{new_bucket(seaweed)}/folder"
    memory = private_memory()
    return Counting(memory, suspends=True) if kind == "async" else memory, f"/{uuid.uuid4().hex}"
