"""The age of an upload, measured so that a clock that jumps or sleeps does not make the upload look younger."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from rollingfs.runtime.values import value_class

Clock = Callable[[], float]
"""A function like `time.time`: seconds since 1970."""


boot_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
"""Seconds since boot, with the time asleep where the system counts it."""


@value_class
class Moment:
    """An instant by two clocks: a wall clock may jump back, a boot clock may stop while a laptop sleeps."""

    wall_s: float
    boot_s: float

    @staticmethod
    def now(clock: Clock = time.time) -> Moment:
        return Moment(clock(), boot_s())

    def age_s(self, clock: Clock = time.time) -> float:
        """Return seconds since this moment, by the clock that gives more."""
        return max(clock() - self.wall_s, boot_s() - self.boot_s)

    def set_back_s(self, clock: Clock = time.time) -> float:
        """Return the seconds by which the wall clock was set back since.

        On a local disk, that is the store's clock, too.
        """
        return max(boot_s() - self.boot_s - (clock() - self.wall_s), 0.0)
