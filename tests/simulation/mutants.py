"""Mutants: rules of rollingfs that are left out, one at a time, in a copy of the package; the simulation finds them.

``python -m tests.simulation.mutants`` tries all of them, or those that it is told.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORLDS = 120
"""Of 150 steps: far fewer operations than `test_worlds` runs in CI's slow step."""


@dataclass(frozen=True)
class Mutant:
    """A patch of one module of the package."""

    name: str
    module: str
    text: str
    instead: str
    found_by: str = ""
    """The test that finds it, if the simulation does not."""


LIST = Path(__file__).with_suffix(".txt")
"""A mutant: its name; the module and perhaps the test that finds it; the text, and what stands in its place."""
ENTRY = re.compile(r"^## ([^\n]+)\n(\S+) ?(\S*)\n<<<\n(.*?)\n===\n(.*?)\n?>>>$", re.MULTILINE | re.DOTALL)
MUTANTS = tuple(
    Mutant(name, module, text, instead, found_by)
    for name, module, found_by, text, instead in ENTRY.findall(LIST.read_text(encoding="utf-8"))
)


def mutated(mutant: Mutant, folder: Path) -> None:
    """Make a copy of the package and of the simulation, with the patch."""
    for name in ("rollingfs", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.jar"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    module = folder / "rollingfs" / mutant.module
    source = module.read_text()
    if source.count(mutant.text) != 1:
        raise ValueError(f"{mutant.name}: its text occurs {source.count(mutant.text)} times in {mutant.module}")
    module.write_text(source.replace(mutant.text, mutant.instead))


def is_found(mutant: Mutant, seed: int, worlds: int) -> tuple[bool, str]:
    """Whether the simulation, or the test that the list names, finds it, and what that says."""
    simulation = ["tests.simulation", "--seed", str(seed), "--first", "--worlds", str(worlds)]
    test = ["pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.found_by]
    with tempfile.TemporaryDirectory() as temporary:
        mutated(mutant, Path(temporary))
        command = [sys.executable, "-m", *(test if mutant.found_by else simulation)]
        environment = {**os.environ, "PYTHONPATH": temporary, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        found = subprocess.run(command, cwd=temporary, env=environment, capture_output=True, text=True, check=False)
    return found.returncode == 1, (found.stderr or found.stdout).strip() or "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; by default all")
    parser.add_argument("--worlds", type=int, default=WORLDS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    missed = 0
    for mutant in MUTANTS:
        if given.names and not any(name in mutant.name for name in given.names):
            continue
        found, said = is_found(mutant, given.seed, given.worlds)
        missed += not found
        by = f"by {mutant.found_by or 'the simulation'}: {said.splitlines()[-1 if mutant.found_by else 0][:160]}"
        print(f"{'found ' if found else 'MISSED'} {mutant.name} {by}", flush=True)
    print(f"{len(MUTANTS)} mutants, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
