"""A grown Parquet file stays one valid file in every order of appends, renewals, erasures and replacements.

Rules of the protocol: P8.17.
"""

import pytest

from tests.models.renewal import RULES, explore

WORLDS_MIN = 1000


def test_the_file_is_valid_in_every_world():
    worlds, why, world = explore(frozenset(RULES))
    assert not why, (why, world)
    assert worlds > WORLDS_MIN


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_a_file_breaks(rule):
    assert explore(frozenset(RULES) - {rule})[1]
