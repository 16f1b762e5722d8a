"""How much a test tries: little in the fast suite, everything with ``ROLLINGFS_EXAMPLES=many`` (`.ci/nightly`).

`examples` is for hypothesis, `some` for tests that break off an operation at each of its calls. `.ci/nightly` finds the
former by their marker ``hypothesis``, which hypothesis sets, and the latter by ``exhaustive``, which each must carry.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import pytest

T = TypeVar("T")

MANY = os.environ.get("ROLLINGFS_EXAMPLES") == "many"
USUAL = 100
FEW_SHARE = 10
FEW_MIN = 10
STEP = 7
"""Odd, so that of pairs (before a call, after it) both kinds are met."""


def examples(many: int = USUAL) -> int:
    """The number of examples of a test that is worth `many`."""
    return many if MANY else max(many // FEW_SHARE, FEW_MIN)


def some(points: Iterable[T]) -> Iterator[T]:
    """Every seventh of the points at which something may break off, or all of them."""
    return islice(points, 0, None, 1 if MANY else STEP)


def slowly(*parameters: object) -> list[object]:
    """Parameters, or tuples of them, of which the fast suite needs no more than one."""
    return _marked(parameters, [pytest.mark.slow])


def nightly(*parameters: object) -> list[object]:
    """Parameters, or tuples of them, that take minutes and of which CI's slow step needs no more than one."""
    return _marked(parameters, [pytest.mark.slow, pytest.mark.nightly])


def _marked(parameters: Iterable[object], marks: list[pytest.MarkDecorator]) -> list[object]:
    return [pytest.param(*one if isinstance(one, tuple) else (one,), marks=marks) for one in parameters]
