"""The rules of appends in place, and of a disk that two machines mount, hold in every state, and each is needed.

Rules of the protocol: P6.1 to P6.14, P6.18, P6.22, P6.35.
"""

from dataclasses import fields, replace

import pytest

from tests.models import far_mount, tip
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


def test_all_holds_on_two_mounts() -> None:
    states, why = far_mount.walk(far_mount.Rules())
    assert not why
    assert states > 10 * STATES_MIN


@pytest.mark.parametrize("rule", [field.name for field in fields(far_mount.Rules)])
def test_without_the_rule_an_append_is_lost(rule: str) -> None:
    assert "lost" in far_mount.walk(replace(far_mount.Rules(), **{rule: False}))[1]
