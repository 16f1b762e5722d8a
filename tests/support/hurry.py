"""A store on which an hour is over in a second, and clients of it that die or lose answers now and then."""

from __future__ import annotations

import dataclasses
import errno
import random
import time
from typing import Any

from rollingfs.backend.contract import Backend, Blob, FileInfo, Listing
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.format.names import PROBE_PREFIX

HOUR_S = 1.0
"""Seconds that an hour takes: D is one, G is twenty-four of them."""
SPEED = 3600.0 / HOUR_S
CONDITIONAL = ("create", "replace")


class Died(BaseException):
    """The client is gone: no call of it reaches the store any more."""


class Hurry:
    """A wall clock on which an hour is over in `HOUR_S`, and the same for the dates that a store gives."""

    def __init__(self) -> None:
        self.began_s = time.time()
        self.jumped_s = 0.0
        """Added to *now*, not to dates: files look older by it."""

    def of(self, date_s: float) -> float:
        """A date of the real store, on the hurried one."""
        return self.began_s + (date_s - self.began_s) * SPEED

    def __call__(self) -> float:
        return self.of(time.time()) + self.jumped_s


class Hurried(BackendWrapper):
    """One client's way to a store, with its clock *and* its dates hurried.

    Parameters
    ----------
    dies, loses
        How likely a call ends the client, before or after it is done; a conditional write is done and its answer lost.
    """

    def __init__(self, inner: Backend, hurry: Hurry, dice: random.Random, dies: float = 0.0, loses: float = 0.0):
        super().__init__(inner)
        self.hurry = hurry
        self.dice = dice
        self.dies = dies
        self.loses = loses
        self.dead = False

    async def call(self, verb: str, *args: Any) -> Any:
        if args and isinstance(args[0], str) and f"/{PROBE_PREFIX}" in args[0]:
            return await super().call(verb, *args)  # a probe that gets no answer is an error for its caller
        fate = self.dice.random()
        self.dead = self.dead or fate < self.dies / 2
        if self.dead:
            raise Died(verb)
        answer = await super().call(verb, *args)
        if fate > 1 - self.dies / 2:
            self.dead = True
            raise Died(verb)
        if verb in CONDITIONAL and self.dice.random() < self.loses:
            raise OSError(errno.ETIMEDOUT, "the answer is lost")
        return self.hurried(answer) if verb != "now" else self.hurry.of(answer) + self.hurry.jumped_s

    def hurried(self, answer: Any) -> Any:
        """An answer, its dates hurried."""
        if isinstance(answer, Listing):
            entries = tuple(self.hurried(entry) for entry in answer.entries)
            now = None if answer.now is None else self.hurry.of(answer.now) + self.hurry.jumped_s
            return Listing(entries, now)
        if isinstance(answer, Blob) or (isinstance(answer, FileInfo) and answer.modified):
            return dataclasses.replace(answer, modified=self.hurry.of(answer.modified))
        return answer
