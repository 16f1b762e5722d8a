"""The simulation in CI: worlds of fixed seeds; a failure names the seed that replays it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS, is_found
from tests.simulation.plan import plan_of
from tests.simulation.shrink import broken, shrunk
from tests.support.examples import MANY

ROOT = Path(__file__).parents[2]
RUN, WORLDS_OF_CI, WORLDS_OF_NIGHTLY = ("--seed", "60000", "--steps", "1000", "--processes", "2"), "50", "150"
"""Worlds of CI have three times the steps in which the simulation finds each mutant of `mutants.txt`."""
LONG_RUN = (*RUN, "--worlds", WORLDS_OF_NIGHTLY)
SECONDS_MAX = 2400
SAMPLE = (
    "a judge that says yes",
    "a number for several operations",
    "an epoch is not checked",
    "an incarnation is not compared",
    "a sealed segment takes bytes from a group",
    "a lost answer counts as a failure",
)
"""Mutants that a few worlds find; `.ci/nightly` tries the whole list."""


def simulate(*options: str) -> str:
    """Run worlds in a process of their own, where sets of names have the same order in each run."""
    command = [sys.executable, "-m", "tests.simulation", *options]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{found.stdout}\n{found.stderr}"
    return found.stdout


def test_a_few_worlds_break_no_rule() -> None:
    assert " 0 failed" in simulate("--seed", "1", "--worlds", "5")


def test_a_seed_replays_exactly() -> None:
    one, other = (simulate("--seed", "7", "--worlds", "2" if MANY else "1", "--digest") for _ in range(2))
    assert one == other


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX)
def test_many_worlds_break_no_rule(capsys: pytest.CaptureFixture[str]) -> None:
    said = simulate(*RUN, "--worlds", WORLDS_OF_NIGHTLY if MANY else WORLDS_OF_CI)
    with capsys.disabled():
        print(f"\n{said}")


def test_a_plan_that_breaks_no_rule_does_not_shrink() -> None:
    plan = plan_of(1, 10)
    assert broken(plan) is None
    assert shrunk(plan) == plan


def test_each_mutant_names_a_text_that_occurs_once() -> None:
    sources = {mutant.name: (ROOT / "rollingfs" / mutant.module).read_text(encoding="utf-8") for mutant in MUTANTS}
    assert [mutant.name for mutant in MUTANTS if sources[mutant.name].count(mutant.text) != 1] == []


def test_each_test_that_finds_a_mutant_is_there() -> None:
    for mutant in MUTANTS:
        module, _, name = mutant.found_by.partition("::")
        assert not module or f"def {name.partition('[')[0]}" in (ROOT / module).read_text(encoding="utf-8"), mutant


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_rule_that_is_left_out_is_found(name: str) -> None:
    (mutant,) = [one for one in MUTANTS if one.name == name]
    found, said = is_found(mutant, 300_000, 30)
    assert found, said
