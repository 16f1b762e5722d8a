"""How much a policy by time keeps too much; `python -m tests.docs.test_retention_table` writes the table anew."""

from pathlib import Path

import pytest

from rollingfs.stream import retention
from rollingfs.stream.cut import StreamCut
from tests.support.pages import block_of, table_rows, with_block

PAGE = Path(__file__).parents[2] / "docs" / "retention.md"
MARK = "kept by asked"
DAY_S = 86_400
ROWS = ((7, 60, 1), (30, 1800, 1), (180, 1800, 1), (365, 1800, 1), (365, 1800, 1000), (365, 1800, 10_000))
"""Days of the policy, seconds between two runs, and segments that all grow."""
TOGETHER = 32
"""So many runs are thinned at once, so that the simulation takes seconds."""


def worst(days: int, every_s: int, segments: int) -> float:
    """Time kept by time asked for, at most, in the second span of a policy."""
    asked_s, trimmed_s, found = days * DAY_S, 0.0, 0.0
    cuts: list[StreamCut] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "CUTS_KEPT_MAX", min(retention.CUTS_KEPT_MAX, retention.OFFSETS_KEPT_MAX // segments))
        for now in range(0, 2 * asked_s, every_s):
            cuts.append(StreamCut({"a": now}, now, 0))
            if now // every_s % TOGETHER == 0:
                cuts = retention._thinned(cuts)
            while now - cuts[0].at >= asked_s:
                trimmed_s = cuts.pop(0).at
            if now > asked_s + 2 * every_s:
                found = max(found, (now - trimmed_s) / asked_s)
    return found


def table() -> str:
    lines = ["| asked for | a run each | growing segments | kept ÷ asked, at most |", "|---|---|---|---|"]
    for days, every_s, segments in ROWS:
        lines.append(f"| {days} days | {every_s // 60} min | {segments:,} | {worst(days, every_s, segments):.3f} |")
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_the_page_has_the_table() -> None:
    assert block_of(PAGE.read_text(encoding="utf-8"), MARK) == table(), (
        "write it anew: python -m tests.docs.test_retention_table"
    )


def test_no_policy_keeps_half_as_much_again() -> None:
    shares = [float(row[-1]) for row in table_rows(PAGE.read_text(encoding="utf-8"), MARK)]
    assert len(shares) == len(ROWS)
    assert all(1 <= share < 1.5 for share in shares)
    assert max(shares[:4]) < 1.02


def test_few_cuts_serve_a_long_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CUTS_KEPT_MAX", 64)
    assert worst(20, 600, 1) < 1.2


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_block(text, MARK, table()), encoding="utf-8")
