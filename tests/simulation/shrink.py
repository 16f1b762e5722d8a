"""Shrinking: of a world that breaks a rule, the fewest steps that still break one."""

from collections.abc import Sequence
from dataclasses import replace

from tests.simulation.history import Violation
from tests.simulation.plan import Plan, Step
from tests.simulation.running import run_world

RUNS_MAX = 400


def broken(plan: Plan) -> Violation | None:
    """The rule that a world breaks."""
    try:
        run_world(plan)
    except Violation as violation:
        return violation
    return None


def shrunk(plan: Plan) -> Plan:
    """Leave out runs of steps, long ones first, as long as a rule is still broken."""
    violation = broken(plan)
    if violation is None:
        return plan
    runs, size, kind = 0, len(plan.steps) // 2, _kind(violation)
    while size and runs < RUNS_MAX:
        first = 0
        while first < len(plan.steps) and runs < RUNS_MAX:
            runs += 1
            fewer = replace(plan, steps=_without(plan.steps, first, size))
            found = broken(fewer)
            if found is not None and _kind(found) == kind:
                plan = fewer
            else:
                first += size
        size //= 2
    return plan


def _kind(violation: Violation) -> list[str]:
    """The words that violations of one kind share."""
    return [word for word in str(violation).split()[:5] if word.isalpha()]


def _without(steps: Sequence[Step], first: int, size: int) -> list[Step]:
    """The steps but some; the time that these took passes all the same."""
    left = list(steps[:first])
    rest = list(steps[first + size :])
    if rest:
        passed_s = sum(step.pause_s for step in steps[first : first + size])
        rest[0] = replace(rest[0], pause_s=rest[0].pause_s + passed_s)
    return left + rest
