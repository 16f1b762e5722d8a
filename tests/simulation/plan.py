"""A world as it is drawn: a list of operations, with their times and seeds."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rollingfs.format.header import AGE_S_MAX, GRACE_S
from tests.simulation.draw import MOVED
from tests.simulation.verbs import NAMES

PATHS = ("/top/a", "/top/b", "/top/sub/c", "/top/sub/d e%", "/other/f", f"{MOVED}/c", f"{MOVED}/d e%")
STEPS = 150
CROWD_SHARE = 0.3
STREAM_SHARE = 0.3
OF_STREAMS = (
    *("append", "append", "append", "append", "seal", "concat", "rename", "publish", "publish", "unsubscribe"),
    *("cut", "trim"),
    *("retain", "retain", "retain", "retain", "retain", "retain", "set_retention", "set_retention"),
)
"""In so many worlds, half of the verbs are these: retention comes often, and alone."""
FIRST_POLICIES = (10, 15, 20)
"""Steps that set one."""
FACES_SHARE = 0.2
"""Of the worlds: in these, programs on top are clients as well."""
FACE_SHARE = 0.35
"""Of the steps of such a world."""
FACES_SALT = 0xFACE
SHIP_SHARE = 0.1
"""Of the worlds: in these, shippers of logs are clients as well."""
SHIP_STEP_SHARE = 0.5
"""Of the steps of such a world."""
SHIP_SALT = 0x5417
LIES_SHARE = 0.1
"""Of the worlds: in these, the store lets two replaces of one header win."""
LIES_SALT = 0x11E5
LIES = (0.1, 0.5, 1.0)
"""The share of late replaces that it carries out in such a world."""
OF_LIES = (
    *("append", "append", "append", "append", "append", "append", "append_large", "stage", "append_staged", "create"),
    *("truncate", "seal", "overwrite", "acquire", "release", "delete", "collect", "consolidate", "roll", "read", "cat"),
    *("listing", "open", "crash", "cancel", "face"),
)
"""The verbs of such a world: those whose loss takes nothing of others."""
DENIES_SHARE = 0.1
"""Of the other worlds: in these, a look may not find a file that is there."""
DENIES_SALT = 0xDE17
ALONE = {"erase", "lose_page"}
QUIET_S = 30.0
"""A pause before and after these: after an erase all bytes are looked at if nothing else went on."""


@dataclass(frozen=True)
class Step:
    """A drawn operation: when it begins after the one before, on which client, and the seed of its arguments."""

    pause_s: float
    client: int
    verb: str
    seed: int


@dataclass(frozen=True)
class Plan:
    """A world as it is drawn. A shorter list of steps is a world, too."""

    seed: int
    clients: int
    paths: int
    """The number of segments: few, and many appends, so that writers share commits."""
    steps: Sequence[Step]
    lies: float = 0.0
    """The share of late replaces that the store carries out although another has won."""
    denies: bool = False
    """Whether a look may not find a file that is there."""


def plan_of(seed: int, count: int = STEPS) -> Plan:
    chance = random.Random(seed)
    clients, is_crowd, is_stream = chance.randint(1, 8), chance.random() < CROWD_SHARE, chance.random() < STREAM_SHARE
    haste_s = chance.choice((0.002, 0.01, 0.05))
    steps: list[Step] = []
    for _ in range(count):
        verb, pause_s = chance.choice(NAMES), _pause_s(chance, haste_s)
        if is_stream and len(steps) in FIRST_POLICIES:
            verb = "set_retention"
        elif is_stream and chance.random() < 0.5:
            verb, pause_s = chance.choice(OF_STREAMS), pause_s + chance.random() * 2
        if is_crowd and chance.random() < 0.6:
            verb, pause_s = "append", chance.random() * haste_s
        if not ALONE.isdisjoint((verb, steps[-1].verb if steps else None)) and chance.random() < 0.8:
            pause_s += QUIET_S
        steps.append(Step(pause_s, chance.randrange(clients), verb, chance.getrandbits(48)))
    steps = _with(random.Random(seed ^ FACES_SALT), steps, "face", FACES_SHARE, FACE_SHARE)
    steps = _with(random.Random(seed ^ SHIP_SALT), steps, "ship", SHIP_SHARE, SHIP_STEP_SHARE)
    count = 1 + chance.randrange(2) if is_crowd else chance.choice((5, len(PATHS)))
    return _with_lies(random.Random(seed ^ LIES_SALT), Plan(seed, clients, count, steps))


def _with_lies(chance: random.Random, plan: Plan) -> Plan:
    """The plan, perhaps on a store that lies; other worlds stay as they were."""
    if chance.random() >= LIES_SHARE:
        return replace(plan, denies=random.Random(plan.seed ^ DENIES_SALT).random() < DENIES_SHARE)
    steps = [replace(step, verb=step.verb if step.verb in OF_LIES else chance.choice(OF_LIES)) for step in plan.steps]
    return replace(plan, steps=steps, lies=chance.choice(LIES))


def _with(chance: random.Random, steps: list[Step], verb: str, world_share: float, step_share: float) -> list[Step]:
    """The steps, some of which a program on top does; other worlds stay as they were."""
    if chance.random() >= world_share:
        return steps
    is_other = [chance.random() < step_share and step.verb not in ALONE for step in steps]
    return [replace(step, verb=verb) if one else step for step, one in zip(steps, is_other, strict=True)]


def _pause_s(chance: random.Random, haste_s: float) -> float:
    kind = chance.random()
    if kind < 0.8:
        return chance.expovariate(1) * haste_s
    if kind < 0.93:
        return chance.random() * 2
    if kind < 0.98:
        return chance.random() * 600
    return (AGE_S_MAX if kind < 0.992 else GRACE_S) * (1 + chance.random())
