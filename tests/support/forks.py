"""Questions to a forked child; what this system has for processes."""

import ctypes
import os
import sys
from collections.abc import Callable

import pytest

from rollingfs.backend.local.windows_rules import check_name

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no signal to another process")
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes, pipes and links of POSIX")
needs_removal = pytest.mark.skipif(
    sys.platform == "win32" and hasattr(ctypes.WinDLL("ntdll"), "wine_get_version"),
    reason="Wine removes no file that is locked",
)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def require_name(name: str) -> None:
    """Skip a test of a name that this system has not."""
    if sys.platform == "win32":
        try:
            check_name(name, sys.maxsize)
        except OSError:
            pytest.skip("Windows has no such name")


def is_so_in_child(question: Callable[[], object]) -> bool:
    """Whether a forked child answers a question with something true."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if question() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0
