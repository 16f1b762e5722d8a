"""What the tests of several backends share."""

from __future__ import annotations

import pytest


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes came straight into their place, for each answer."""
    from rollingfs.backend.s3 import receive  # only where s3fs is there, which its users made sure of

    counts: list[int] = []

    class Counted(receive.Received):
        def __init__(self, url: str, count: int) -> None:
            super().__init__(url, count)
            counts.append(count)

    monkeypatch.setattr(receive, "Received", Counted)
    return counts
