"""Exit codes, and the exceptions and messages of a command that fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

DONE = 0
FAILED = 1
WRONG_USAGE = 2
DAMAGED = 3
INTERRUPTED = 130
"""128 + SIGINT, as in shells."""


_OPTIONS = {
    "after_age": "--after-age",
    "after_bytes": "--after-bytes",
    "block_bytes": "--block",
    "deletion_lag": "--lag",
    "incarnations": "--incarnation",
    "leave_out": "--leave-out",
    "max_delay": "--max-delay",
    "recursive": "-r",
}
"""Options for parameters; a switch that is not here has its parameter's name."""
_OF_STORE = ("anon", "single_writer")
"""Parameters of the filesystem."""
_VERBS = {"fs.mkdir": "a tool of the store", "set_policy": "rollingfs policy"}
"""Commands for functions of the library; other functions are commands by the same name."""


class WrongUsage(Exception):
    """The command line makes no sense."""


class ReaderGone(Exception):
    """The reader of our standard output has closed it. That is not an error."""


def value_of(option: str, text: str | None, parse: Callable[[str], Any]) -> Any:
    """Return the value of an option on a command line; None if it is not given.

    Raises
    ------
    WrongUsage
        The text is not such a value.
    """
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from error


def as_typed(verb: str, given: Mapping[str, Any]) -> str:
    """Return a verb, or parameters, as a command line has them; the path is left out."""
    words = [_VERBS.get(verb, f"rollingfs {verb}")] if verb else []
    for name, value in given.items():
        if name in _OF_STORE:
            words += ["--option", f"{name}={json.dumps(value)}"]
        elif name != "path":
            words.append(_OPTIONS.get(name, name if value is ... else f"--{name.replace('_', '-')}"))
            words += [value] if isinstance(value, str) else []
    return " ".join(words)


def in_one_line(error: BaseException) -> str:
    """Return the text of an error and its notes, on a line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror  # without the number
    else:
        text = str(error) or type(error).__name__
    if not isinstance(error, OSError | ValueError | TypeError | ImportError | NotImplementedError | WrongUsage):
        text = f"{type(error).__name__}: {text}"  # an error of another library, whose name says more than its text
    return " ".join("; ".join([text, *getattr(error, "__notes__", ())]).split())
