"""The rules of appends in place hold in every state of the model, and each of them is needed.

Rules of the protocol: P6.1 to P6.14.
"""

from dataclasses import fields, replace

import pytest

from tests.models import tip
from tests.models.in_place import Rules, walk
from tests.support.examples import slowly

NEEDS_FAILURE = {"repairs", "repairs_name", "marks", "holds_file"}
STATES_MIN = 1000


@pytest.mark.parametrize("fails", [True, *slowly(False)], ids=["a flush fails", "flushes succeed"])
def test_all_holds_in_every_state(fails: bool) -> None:
    states, why = walk(Rules(), fails=fails)
    assert not why
    assert states > STATES_MIN


@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_without_the_rule_something_breaks(rule: str) -> None:
    _, why = walk(replace(Rules(), **{rule: False}), fails=rule in NEEDS_FAILURE)
    assert why


def test_tips_hold_in_every_state() -> None:
    states, why = tip.walk(frozenset(tip.RULES + tip.INSTEAD))
    assert not why
    assert states > STATES_MIN


@pytest.mark.parametrize("rule", tip.RULES + tip.INSTEAD)
def test_without_the_rule_a_tip_breaks(rule: str) -> None:
    assert tip.walk(frozenset(tip.RULES + tip.INSTEAD) - {rule})[1]
