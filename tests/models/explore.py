"""The walk through all states of a small model, breadth first."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

W = TypeVar("W", bound=Hashable)


def explore(first: W, steps: Callable[[W], Iterable[W]], problem: Callable[[W], str]) -> tuple[set[W], W | None, str]:
    """Visit every state until one has a problem: the states known by then, that state, and what is wrong with it."""
    known, waiting = {first}, deque([first])
    while waiting:
        world = waiting.popleft()
        if why := problem(world):
            return known, world, why
        for after in steps(world):
            count = len(known)
            known.add(after)  # and no look before: the hash of a state takes most of the time
            if len(known) > count:
                waiting.append(after)
    return known, None, ""
