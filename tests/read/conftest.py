"""What the tests of reading share."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.local.backend import LocalBackend
from rollingfs.fs import read_buffer, reading
from rollingfs.read import prefetch
from rollingfs.read import ranges as fetch
from tests.support.backends import Counting, private_memory
from tests.support.servers import new_bucket, shared_backend


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request covers a whole chunk: neither those of one large read, nor those fetched ahead."""
    for name in ("RANGE_BYTES_MIN", "RANGE_BYTES_MAX", "SYNC_RANGE_BYTES_MAX"):
        monkeypatch.setattr(fetch, name, 300)
    for module, name, size in (
        (read_buffer, "SYNC_BUFFER_BYTES", 170),
        (read_buffer, "LINE_BYTES", 170),
        (reading, "PIECE_BYTES", 700),
        (read_buffer, "PREFETCH_RANGE_BYTES", 300),
        (prefetch, "PREFETCH_RANGE_BYTES", 300),
    ):
        monkeypatch.setattr(module, name, size)


def backend_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    """A backend of a kind, and a folder on it that nobody else uses."""
    if kind == "local":
        return LocalBackend(sync=False), str(tmp_path)
    if kind == "s3":
        seaweed = request.getfixturevalue("seaweed")
        return shared_backend(**seaweed), f"{new_bucket(seaweed)}/folder"
    memory = private_memory()
    return Counting(memory, suspends=True) if kind == "async" else memory, f"/{uuid.uuid4().hex}"
