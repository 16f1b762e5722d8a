"""Fixtures for the tests of several backends."""

from __future__ import annotations

import pytest


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes received in place, for each answer."""
    from rollingfs.backend.s3 import receive  # only where s3fs is installed, which the users of this fixture check

    counts: list[int] = []

    class Counted(receive.Received):
        def __init__(self, url: str, count: int) -> None:
            super().__init__(url, count)
            counts.append(count)

    monkeypatch.setattr(receive, "Received", Counted)
    return counts
