"""Waiting for what another process or thread does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.05


def wait_for(
    is_so: Callable[[], Any],
    s_max: float,
    said: Callable[[], str] = str,
    process: subprocess.Popen[Any] | None = None,
) -> Any:
    """The first answer that is true; fails if none comes in time, or a process ends before, with what is said."""
    end_s = time.monotonic() + s_max
    while not (found := is_so()):
        assert process is None or process.poll() is None, f"the process has ended: {said()}"
        assert time.monotonic() < end_s, f"it has not come to pass within {s_max} s: {said()}"
        time.sleep(POLL_S)
    return found
