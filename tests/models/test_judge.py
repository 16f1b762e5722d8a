"""The judge is right in every state of small worlds, and each of its rules is needed: without it, a world breaks.

Rules of the protocol: P5.7 to P5.17.
"""

import pytest

from rollingfs.format import commit_lines
from tests.models.judge import explore

RULES = frozenset({"evicted", "version", "lines survive", "age"})
WORLDS = {
    "two writers": ((2, 1), (), 2),
    "three writers and two lines": ((1, 2, 1), (), 1),
    "others append": ((1, 1), ("append", "append"), 2),
    "overwritten": ((1, 1), ("overwrite", "overwrite"), 1),
    "deleted, collected, made anew": ((1, 1), ("delete", "collect", "create", "append", "append", "append"), 1),
    "removed and made anew by another program": ((1,), ("remove", "create"), 2),
}
BREAKS = {
    "evicted": "three writers and two lines",
    "version": "removed and made anew by another program",
    "lines survive": "overwritten",
    "age": "deleted, collected, made anew",
}


@pytest.fixture(autouse=True)
def few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_lines, "COMMITS_MAX", 2)
    monkeypatch.setattr(commit_lines, "CARRIED_LINES_MAX", 0)


@pytest.mark.parametrize("name", WORLDS)
def test_each_append_takes_place_once_or_is_unknown(name: str) -> None:
    appends, others, faults = WORLDS[name]
    worlds, why = explore(RULES, appends, *others, faults=faults)
    assert not why
    assert worlds > 20


@pytest.mark.parametrize("rule", BREAKS)
def test_without_a_rule_a_world_breaks(rule: str) -> None:
    appends, others, faults = WORLDS[BREAKS[rule]]
    assert explore(RULES - {rule}, appends, *others, faults=faults)[1]
