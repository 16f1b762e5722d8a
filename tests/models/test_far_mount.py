"""The rules for a disk that two machines mount hold in every state of the model, and each of them is needed.

Rules of the protocol: P6.18, P6.22, P6.35.
"""

from dataclasses import fields, replace

import pytest

from tests.models.far_mount import Rules, walk

STATES_MIN = 10_000


def test_all_holds_on_two_mounts() -> None:
    states, why = walk(Rules())
    assert not why
    assert states > STATES_MIN


@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_without_the_rule_an_append_is_lost(rule: str) -> None:
    assert "lost" in walk(replace(Rules(), **{rule: False}))[1]
