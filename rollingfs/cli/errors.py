"""Exit codes, and the exceptions and messages of a command that fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar, overload

T = TypeVar("T")

DONE = 0
FAILED = 1
WRONG_USAGE = 2
DAMAGED = 3
INTERRUPTED = 130
"""128 + SIGINT, as in shells."""


_OPTIONS = {
    "after_age": "--after-age",
    "after_bytes": "--after-bytes",
    "as_bytes": "--as-bytes",
    "as_format": "--as-format",
    "block_bytes": "--block",
    "create": "--create",
    "damaged": "--damaged",
    "deletion_lag": "--lag",
    "dry_run": "--dry-run",
    "erase": "--erase",
    "expected_offset": "--expected-offset",
    "incarnations": "--incarnation",
    "leave_out": "--leave-out",
    "max_delay": "--max-delay",
    "overwrite": "--overwrite",
    "recursive": "-r",
}
"""Names on a command line of parameters of the library."""
_VERBS = {
    "fs.mkdir": "a tool of the store",
    "set_policy": "rollingfs policy",
}
"""Commands for functions of the library; other functions are commands by the same name."""
_AS_JSON = {"True": "true", "False": "false", "None": "null"}
_COMMANDS = "append|collect|concat|consolidate|export|mv|offload|onload|rebuild|rm|roll|seal|truncate|verify"
_PYTHON = re.compile(
    rf"(?<![\w/.:$='=-])(?:(?P<verb>{'|'.join(map(re.escape, _VERBS))})\b(?:\(\))?"
    rf"|(?P<command>{_COMMANDS})\((?P<given>[^()]*)\)"
    r"|as_format='(?P<format>[a-z]+)'"
    r"|(?P<name>[a-z][a-z_]*)=(?P<value>True|False|None)"
    r"|(?P<bare>[a-z]+_[a-z_]+)|(?P<word>True|False|None))(?![\w/$=-])"
)


class WrongUsage(Exception):
    """The command line makes no sense."""


class ReaderGone(Exception):
    """The reader of our standard output has closed it. That is not an error."""


@overload
def value_of(option: str, text: str, parse: Callable[[str], T]) -> T: ...
@overload
def value_of(option: str, text: str | None, parse: Callable[[str], T]) -> T | None: ...
def value_of(option: str, text: str | None, parse: Callable[[str], T]) -> T | None:
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


def as_typed(text: str) -> str:
    """Return a message of the library in the words of a command line."""
    return _PYTHON.sub(_typed, text)


def _typed(found: re.Match[str]) -> str:
    if verb := found["verb"]:
        return _VERBS[verb]
    if command := found["command"]:
        named = [one for one in found["given"].split(", ") if "=" in one]  # what has no name is the path
        return " ".join(["rollingfs", command, *(as_typed(one) for one in named)])
    if kind := found["format"]:
        return f"--as-format {kind}"
    if name := found["name"]:
        if name in _OPTIONS and found["value"] == "True":
            return _OPTIONS[name]
        return f"--option {name}={_AS_JSON[found['value']]}"
    if bare := found["bare"]:
        return _OPTIONS.get(bare, bare)
    return _AS_JSON[found["word"]]


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
