"""What the tests of reading share."""

from __future__ import annotations

import pytest

from rollingfs.fs import read_buffer, reading
from rollingfs.read import prefetch
from rollingfs.read import ranges as fetch


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
