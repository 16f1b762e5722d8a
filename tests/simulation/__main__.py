"""One simulation of rollingfs, against a model: `python -m tests.simulation --seconds 60 --seed 1` runs worlds.

The real code of several clients on a failing store, in virtual time. A world is a list of drawn operations.
"""

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator

from tests.simulation.history import Violation
from tests.simulation.plan import STEPS, plan_of
from tests.simulation.running import run_world
from tests.simulation.shrink import broken, shrunk
from tests.simulation.trace import traced

SEED_STEP = 1_000_000
"""Processes begin so far from each other."""


def main() -> int:
    given = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of names have an order, and seeds replay exactly
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    if given.shrink:
        return _shrink(given)
    with multiprocessing.get_context("fork").Pool(given.processes) as pool:  # others do not find this module again
        seeds = [given.seed + SEED_STEP * index for index in range(given.processes)]
        results = pool.starmap(_run, [(given, seed) for seed in seeds])
    counts: Counter[str] = sum((one for one, _ in results), Counter())
    failed = sorted(seed for _, seeds in results for seed in seeds)
    for kind in ("world", "fault"):
        chosen = {name.partition(" ")[2]: count for name, count in counts.items() if name.startswith(kind)}
        print(f"{kind}s: {', '.join(f'{count} {name}' for name, count in sorted(chosen.items()))}")
    total, faults = counts["world operations"], sum(count for name, count in counts.items() if name.startswith("fault"))
    print(
        f"seed {given.seed}: {counts['world runs']} worlds, {total} operations, {faults} faults, {len(failed)} failed"
    )
    if failed:
        print(
            f"to see one with few steps: python -m tests.simulation --steps {given.steps} --shrink --seed {failed[0]}"
        )
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first world")
    parser.add_argument("--worlds", type=int, default=None, help="number of worlds of each process")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--hours", type=float, default=None)
    parser.add_argument("--steps", type=int, default=STEPS, help="operations of a world")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--first", action="store_true", help="stop at the first broken rule")
    parser.add_argument("--digest", action="store_true", help="print a checksum of each world's history and files")
    parser.add_argument("--shrink", action="store_true", help="find the fewest steps of this seed that break a rule")
    return parser


def _seeds(given: argparse.Namespace, first: int) -> Iterator[int]:
    limit_s = 3600 * given.hours if given.hours else given.seconds
    began_s, seed = time.monotonic(), first
    while given.worlds is None or seed < first + given.worlds:
        if limit_s is not None and time.monotonic() - began_s > limit_s:
            return
        yield seed
        seed += 1
        if given.worlds is None and limit_s is None:
            return


def _run(given: argparse.Namespace, first: int) -> tuple[Counter[str], list[int]]:
    counts: Counter[str] = Counter()
    failed: list[int] = []
    for seed in _seeds(given, first):
        counts["world runs"] += 1
        try:
            world = run_world(plan_of(seed, given.steps))
        except Exception as error:  # noqa: BLE001 - an error of another kind is a fault as well
            failed.append(seed)
            told = error if isinstance(error, Violation) else "".join(traceback.format_exception(error))
            print(f"world {seed}: {told}", file=sys.stderr)
            if given.first:
                break
        else:
            if given.digest:
                print(f"world {seed}: {world.digest()}")
            counts += Counter({f"world {name}": count for name, count in world.counts.items()})
            counts += Counter({f"fault {fault.name.lower()}": count for fault, count in world.faults.items()})
    return counts, failed


def _shrink(given: argparse.Namespace) -> int:
    plan = plan_of(given.seed, given.steps)
    if broken(plan) is None:
        print(f"world {given.seed} breaks no rule")
        return 0
    plan = shrunk(plan)
    with traced():
        violation = broken(plan)
    for step in plan.steps:
        print(step)
    print(violation)
    return 1


if __name__ == "__main__":
    sys.exit(main())
