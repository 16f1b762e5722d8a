"""Keys that are pressed while a command shows something on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def keyboard() -> Iterator[int | None]:
    """Give a descriptor with each key at once, unseen.

    It is None if standard input is not our terminal.
    """
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield None
        return
    if not sys.stdin.isatty() or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():  # a job in the background
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)  # Ctrl-C still is a signal
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
