"""All operations against the reference model, by several clients over a store that fails.

Two machines use the same rules (`tests/support/rules.py`). Hypothesis shrinks what it finds. Seeded chance is quick
enough for tens of thousands of operations; its failures name seed and kind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from rollingfs.format import placement
from rollingfs.policy import RollingPolicy
from tests.support.examples import examples
from tests.support.faults import Fault, HashingStore, Store, TieredStore, hurry
from tests.support.rules import WEIGHTS, Chooser, Driver
from tests.support.sharing import share_at_random

OPERATIONS_MIN = 50_000
CHANGING_SHARE_MIN = 0.60
FAULTY_SHARE_MIN = 0.10
STEPS = 200
VERBS = [verb for verb, weight in WEIGHTS.items() for _ in range(weight)]
TIER_VERBS = [*VERBS, *["offload"] * 6, *["onload"] * 3]


@dataclass(frozen=True)
class Kind:
    """A kind of world."""

    worlds: int
    policy: Callable[[Chooser], RollingPolicy]
    append_bytes_max: int = 9
    size_max: int = 120
    small_pages: bool = False
    """Make index pages of a few chunks, which the format allows, so that there are many."""
    store: Callable[[], Store] = Store
    verbs: Sequence[str] = tuple(VERBS)


KINDS = {
    "small chunks": Kind(190, lambda choose: RollingPolicy(max_bytes=5, inline_bytes=choose.number(0, 8))),
    "small pages": Kind(70, lambda choose: RollingPolicy(2, inline_bytes=choose.number(0, 2)), small_pages=True),
    "as on S3": Kind(40, lambda choose: RollingPolicy(5, inline_bytes=choose.number(0, 8)), store=HashingStore),
    "tiers": Kind(
        60,
        lambda choose: RollingPolicy(max_bytes=5, inline_bytes=choose.number(0, 3)),
        store=TieredStore,
        verbs=TIER_VERBS,
    ),
    "tiers and small pages": Kind(
        30, lambda choose: RollingPolicy(2, inline_bytes=0), small_pages=True, store=TieredStore, verbs=TIER_VERBS
    ),
    "many chunks": Kind(8, lambda choose: RollingPolicy(1, inline_bytes=0), append_bytes_max=60, size_max=700),
}


@pytest.fixture(autouse=True)
def _virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    share_at_random(monkeypatch)


def shrink_pages(patch: pytest.MonkeyPatch) -> None:
    """Fold sooner than the format demands."""
    patch.setattr(placement, "PAGE_CHUNKS", 3)
    patch.setattr(placement, "PAGES_JOINED", 3)
    patch.setattr(placement, "LARGE_PAGE_CHUNKS", 9)
    patch.setattr(placement, "plan_fold", partial(placement.plan_fold, loose_max=4))


class Seeded:
    """Decisions by seeded chance."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)


def run_world(kind: Kind, seed: int, steps: int = STEPS) -> tuple[Counter[str], Counter[Fault]]:
    """Run one world by chance; gives the counts of what happened."""
    random.seed(seed)  # the pauses between attempts
    choose = Chooser(Seeded(seed))
    policy = kind.policy(choose)
    driver = Driver(policy, append_bytes_max=kind.append_bytes_max, size_max=kind.size_max, store=kind.store())
    for _ in range(steps):
        driver.act(choose.pick(kind.verbs), choose)
        if choose.often(3):
            driver.pass_time(choose)
    driver.world.finish()
    return driver.world.counts, driver.world.faults


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_fifty_thousand_operations_among_faults_agree_with_the_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    faults: Counter[Fault] = Counter()
    for name, kind in KINDS.items():
        with monkeypatch.context() as patch:
            if kind.small_pages:
                shrink_pages(patch)
            for seed in range(kind.worlds):
                try:
                    found = run_world(kind, seed)
                except BaseException as error:
                    error.add_note(f"in a world of {name}, seed {seed}")
                    raise
                counts += found[0]
                faults += found[1]
    total = counts["operations"]
    with capsys.disabled():
        print(
            f"\n{total} operations of {counts['worlds']} worlds: {counts['changed something'] / total:.0%} changed "
            f"something, {counts['met a fault'] / total:.0%} met a fault, {counts['overlapped'] / total:.0%} overlapped"
            f" another; {counts['ok']} succeeded, {counts['error']} were refused, {counts['not done']} did not take "
            f"place, {counts['unknown']} ended without an answer"
        )
        print("faults: " + ", ".join(f"{count} {fault.name.lower()}" for fault, count in faults.most_common()))
    assert total >= OPERATIONS_MIN
    assert counts["changed something"] >= CHANGING_SHARE_MIN * total
    assert counts["met a fault"] >= FAULTY_SHARE_MIN * total
    assert set(faults) == set(Fault)


class Drawn:
    """Decisions by hypothesis."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def number(self, least: int, most: int) -> int:
        number: int = self._data.draw(st.integers(least, most))
        return number


class Machine(RuleBasedStateMachine):
    """The same operations, drawn by hypothesis: slower, but failures shrink."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(RollingPolicy(max_bytes=5, inline_bytes=3))

    @rule(verb=st.sampled_from(VERBS), data=st.data())
    def act(self, verb: str, data: Any) -> None:
        self.driver.act(verb, Chooser(Drawn(data)))

    @rule(data=st.data())
    def pass_time(self, data: Any) -> None:
        self.driver.pass_time(Chooser(Drawn(data)))

    def teardown(self) -> None:
        self.driver.world.finish()


@pytest.mark.hypothesis
def test_a_machine_of_all_operations_agrees_with_the_model() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Machine,
        settings=settings(
            max_examples=examples(150), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
