"""Time: how old an upload is, measured so that no clock that jumps or sleeps makes it look younger."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
"""Seconds since 1970, as `time.time`."""


def boot_s() -> float:
    """Seconds since boot, those asleep included where the system counts them."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant by both clocks: wall clocks jump back, boot clocks may stop while a laptop sleeps."""

    wall_s: float
    boot_s: float

    @staticmethod
    def now(clock: Clock = time.time) -> Moment:
        return Moment(clock(), boot_s())

    def age_s(self, clock: Clock = time.time) -> float:
        """Seconds since then, by the clock that says more."""
        return max(clock() - self.wall_s, boot_s() - self.boot_s)

    def set_back_s(self, clock: Clock = time.time) -> float:
        """By how much the wall clock was set back since then, in seconds; on a local disk it is the store's as well."""
        return max(boot_s() - self.boot_s - (clock() - self.wall_s), 0.0)
