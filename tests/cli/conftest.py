"""What the commands are tried on."""

from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.cli import done

SMALL = ("--option", "max_bytes=1000", "--option", "inline_bytes=100")


@pytest.fixture
def store() -> Any:
    return fsspec.filesystem("rolling", target_protocol="file", header_cache_s=0)


@pytest.fixture
def stream(tmp_path: Path) -> str:
    """A folder of two segments of 2,050 bytes: two chunks, and 50 bytes inline."""
    folder = f"{tmp_path}/stream"
    for name in ("a", "b"):
        done("append", f"{folder}/{name}", *SMALL, stdin=b"%s lines\n" % name.encode() * 250)
        done("append", f"{folder}/{name}", stdin=b"%s lines\n" % name.encode() * 6 + b"\n\n")
    return folder
