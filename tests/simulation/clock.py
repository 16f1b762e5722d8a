"""Time: one loop that never waits, and a wall clock of its own for each machine."""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from unittest import mock

from rollingfs.runtime import system
from tests.support.simulation import EPOCH_S, VirtualLoop, virtual_time

HOUR_S = 3600.0
APART_S = (0.0, 0.0, 0.0, 0.0, 1.5, -1.5, 90.0, -HOUR_S, 25 * HOUR_S, -25 * HOUR_S)
"""How far a machine's clock is from the true time, when it starts."""
DRIFTS = (1.0, 1.0, 1.0001, 0.999)
STEPS_S = (-2.0, 2.0, -HOUR_S, 25 * HOUR_S, -25 * HOUR_S)


class Wall:
    """The wall clock of a machine: it is apart from the others, drifts, and is set now and then."""

    def __init__(self, chance: random.Random, *, is_right: bool = False) -> None:
        self.offset_s = EPOCH_S + (0.0 if is_right else chance.choice(APART_S))
        self.drift = 1.0 if is_right else chance.choice(DRIFTS)

    def __call__(self) -> float:
        return self.offset_s + asyncio.get_running_loop().time() * self.drift

    def step(self, chance: random.Random) -> None:
        """Set it, forward or back."""
        self.offset_s += chance.choice(STEPS_S)


@contextlib.contextmanager
def simulated_time(seed: int) -> Iterator[VirtualLoop]:
    """A loop whose time is also the monotonic clock and the boot clock; chance is the same in every run."""
    with virtual_time(seed) as loop, mock.patch.object(system, "boot_s", loop.time):
        yield loop
