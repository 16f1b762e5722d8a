"""Exit codes, and the exceptions and messages of a command that fails."""

from __future__ import annotations

DONE = 0
FAILED = 1
WRONG_USAGE = 2
DAMAGED = 3
INTERRUPTED = 130
"""128 + SIGINT, as in shells."""


class WrongUsage(Exception):
    """The command line makes no sense."""


class ReaderGone(Exception):
    """The reader of our standard output has closed it. That is no error: nobody is left to write for."""


def in_one_line(error: BaseException) -> str:
    """The text of an error, on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror  # without the number
    else:
        text = str(error) or type(error).__name__
    if not isinstance(error, OSError | ValueError | TypeError | ImportError | NotImplementedError | WrongUsage):
        text = f"{type(error).__name__}: {text}"  # an error of another library, whose name says more than its text
    return " ".join(text.split())
