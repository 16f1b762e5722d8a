"""Fixtures for the tests of several backends."""

from __future__ import annotations

import pytest


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes that each answer received in place."""
    from rollingfs.backend.s3 import receive  # imported here: the tests that use it have checked that s3fs is installed

    counts: list[int] = []

    class Counted(receive.Received):
        def __init__(self, url: str, count: int) -> None:
            super().__init__(url, count)
            counts.append(count)

    monkeypatch.setattr(receive, "Received", Counted)
    return counts
