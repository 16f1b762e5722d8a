"""SIGTERM and Ctrl-C for commands that run until they are stopped: what has begun is finished first."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOK_S = 0.2
"""Time between two looks during a pause."""


class Stop:
    """Whether the command is to end. A second signal ends it at once, as Ctrl-C ends any command."""

    def __init__(self) -> None:
        self.is_wanted = False

    def __call__(self) -> bool:
        return self.is_wanted

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than the command is to go on."""
        deadline_s = time.monotonic() + seconds
        while not self.is_wanted and (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_wanted:
            raise KeyboardInterrupt
        self.is_wanted = True


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Turn the first SIGTERM or Ctrl-C into a wish to end. Only the main thread can."""
    stop = Stop()
    with handling(stop._on_signal):
        yield stop


@contextlib.contextmanager
def handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a handler take SIGTERM and Ctrl-C. Only the main thread can."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
