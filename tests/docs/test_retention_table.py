"""How much a policy by time keeps too much; `python -m tests.docs.test_retention_table` writes the table anew."""

import re
from pathlib import Path

import pytest

from rollingfs.stream import retention
from rollingfs.stream.cut import StreamCut

PAGE = Path(__file__).parents[2] / "docs" / "retention.md"
TABLE = re.compile(r"(<!-- kept by asked -->\n)(.*?)(<!-- end -->)", re.DOTALL)
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
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found[2] == table(), "write it anew: python -m tests.docs.test_retention_table"


def test_no_policy_keeps_half_as_much_again() -> None:
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    shares = [float(line.rsplit("|", 2)[1]) for line in found[2].splitlines()[2:]]
    assert len(shares) == len(ROWS)
    assert all(1 <= share < 1.5 for share in shares)
    assert max(shares[:4]) < 1.02


def test_few_cuts_serve_a_long_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CUTS_KEPT_MAX", 64)
    assert worst(20, 600, 1) < 1.2


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLE.sub(lambda match: match[1] + table() + match[3], text), encoding="utf-8")
