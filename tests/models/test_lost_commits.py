"""No acknowledged commit is lost in silence while its writer goes on, and none is called lost on a right store.

Rules of the protocol: P14.14 to P14.18.
"""

import pytest

from tests.models.lost_commits import explore
from tests.support.examples import slowly

RULES = ("anew", "overwrite", "evicted", "number", "age")
STORES = {
    "right": {"renews": 2},
    "lies": {"lies": 1},
    "lies of overwrites": {"lies": 1, "renews": 2},
    "restored": {"restores": 1, "renews": 1},
    "made anew": {"made_anew": 1, "renews": 1},
}
BREAKS = {
    "anew": "made anew",
    "overwrite": "lies of overwrites",
    "evicted": "right",
    "number": "lies",
    "age": "lies of overwrites",
}


@pytest.mark.parametrize("store", ["right", "lies", "made anew", *slowly("lies of overwrites", "restored")])
def test_each_lost_commit_is_told_and_no_other(store):
    worlds, why, world = explore(frozenset(RULES), **STORES[store])
    assert not why, (why, world)
    assert worlds > 100


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_lost_commits_are_wrongly_reported(rule):
    assert explore(frozenset(RULES) - {rule}, **STORES[BREAKS[rule]])[1]
