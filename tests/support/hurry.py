"""A store on which an hour takes a second, and clients that crash or lose answers by chance."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Sequence
from typing import Any

from rollingfs.backend.contract import Backend, Blob, FileInfo, Listing
from rollingfs.format.names import PROBE_PREFIX
from tests.support.backends import Scripted
from tests.support.faults import Fault, Faulty

HOUR_S = 1.0
"""Seconds that an hour takes: D is one, G is twenty-four of them."""
SPEED = 3600.0 / HOUR_S
CONDITIONAL = ("create", "replace")


class Hurry:
    """A wall clock on which an hour takes `HOUR_S`; converts the dates of a store likewise."""

    def __init__(self) -> None:
        self.began_s = time.time()
        self.jumped_s = 0.0
        """Added to *now*, not to dates: files look older by it."""

    def of(self, date_s: float) -> float:
        """The hurried form of a date of the real store."""
        return self.began_s + (date_s - self.began_s) * SPEED

    def __call__(self) -> float:
        return self.of(time.time()) + self.jumped_s

    def answer(self, answer: Any) -> Any:
        """An answer of the store with hurried dates; a number is the answer of `now`."""
        if isinstance(answer, float):
            return self.of(answer) + self.jumped_s
        if isinstance(answer, Listing):
            return Listing(tuple(map(self.answer, answer.entries)), answer.now and self.answer(answer.now))
        if isinstance(answer, Blob) or (isinstance(answer, FileInfo) and answer.modified):
            return dataclasses.replace(answer, modified=self.of(answer.modified))
        return answer

    def client(self, inner: Backend, dice: random.Random, dies: float = 0.0, loses: float = 0.0) -> Faulty:
        """One client's way to a store: its dates are hurried, and calls meet faults by chance.

        Parameters
        ----------
        dies, loses
            How likely a call ends the client, before or after it is done; how likely the answer of a conditional
            write is lost.
        """

        def draw(verb: str, args: Sequence[Any]) -> Fault | None:
            if args and isinstance(args[0], str) and f"/{PROBE_PREFIX}" in args[0]:
                return None  # a probe that gets no answer is an error for its caller
            fate = dice.random()
            if fate < dies:
                return Fault.CRASH_BEFORE if fate < dies / 2 else Fault.CRASH_AFTER
            return Fault.LOST if verb in CONDITIONAL and dice.random() < loses else None

        hurried = Scripted(inner)
        hurried.plan(answers=self.answer, times=None)
        backend = Faulty(hurried, draw)
        backend.conflicts_are_final = inner.conflicts_are_final
        return backend
