"""How a command ends other than well, and its exit codes."""

from __future__ import annotations

DONE = 0
FAILED = 1
WRONG_USAGE = 2
DAMAGED = 3
INTERRUPTED = 130
"""128 + SIGINT, as shells count."""


class WrongUsage(Exception):
    """The command line cannot be meant so."""


class ReaderGone(Exception):
    """Whoever read our standard output has closed it: no error, there is nobody left to write for."""


def in_one_line(error: BaseException) -> str:
    """What an error says, on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror  # without its number, which tells people nothing
    else:
        text = str(error) or type(error).__name__
    if not isinstance(error, OSError | ValueError | TypeError | ImportError | NotImplementedError | WrongUsage):
        text = f"{type(error).__name__}: {text}"  # of another library: its name tells more than its text
    return " ".join(text.split())
