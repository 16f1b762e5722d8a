"""No commit names a file that a collection has taken, whatever the clocks do; each rule is needed.

Rules of the protocol: P7.2, P7.4, P7.5, P7.26, P12.4.
"""

import pytest

from tests.models.ages import RULES, D, G, World, explore

WORLDS_MIN = 200
WORLDS = {
    "clocks far apart": World(store=-10 * G),
    "clocks that jump": World(store=0, jumps=3),
    "clocks apart that jump": World(store=-(G - D - 1), jumps=2),
    "a machine that stands still": World(store=0, stops=2 * G),
}
BREAKS = {
    "age": "clocks far apart",
    "header's date": "clocks that jump",
    "collection's date": "a machine that stands still",
}


@pytest.mark.parametrize("name", WORLDS)
def test_no_named_file_is_collected(name):
    worlds, why, world = explore(WORLDS[name], frozenset(RULES))
    assert not why, (why, world)
    assert worlds > WORLDS_MIN


@pytest.mark.parametrize("rule", BREAKS)
def test_without_a_rule_a_named_file_goes(rule):
    assert explore(WORLDS[BREAKS[rule]], frozenset(RULES) - {rule})[1]


def test_clocks_that_jump_and_were_too_far_apart_lose():
    assert explore(World(store=-(G - D), jumps=2), frozenset(RULES))[1]
