"""The rules of asks hold in every state of small worlds, and each of them is needed: without it, a world breaks."""

import pytest

from tests.models.asks_scenarios import BREAKS, BREAKS_LATE, QUICK, SMALL, Scenario, explore
from tests.support.examples import slowly

RULES_NEEDED_MIN = 6


@pytest.mark.parametrize("scenario", [*QUICK, *slowly(*SMALL)], ids=str)
def test_all_holds_in_every_state(scenario: Scenario) -> None:
    found = explore(scenario)
    assert not found.broken, "\n".join((found.broken, *found.course))
    assert found.states < scenario.bounds.states_max, "not all states were visited"
    assert found.carried > 0, "nobody carried an ask: this shows nothing"
    assert found.stuck == 0, "an append can neither go on nor end"


@pytest.mark.parametrize("scenario", [*BREAKS, *slowly(*BREAKS_LATE)], ids=str)
def test_without_the_rule_something_breaks(scenario: Scenario) -> None:
    found = explore(scenario)
    assert found.broken
    assert len(found.course) > 1


def test_each_scenario_leaves_out_a_rule_of_its_own() -> None:
    left_out = [frozenset(scenario.without) for scenario in (*BREAKS, *BREAKS_LATE)]
    assert len({name for names in left_out for name in names}) >= RULES_NEEDED_MIN
    assert all(left_out)
