"""Standard output, standard error and exit codes: bytes, JSON, lines, tables; the messages of a command that fails."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from rollingfs.errors import text_of, visible
from rollingfs.runtime.system import READER_GONE
from rollingfs.show.readable import in_columns, plain

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
    text = text_of(error)
    if not isinstance(error, OSError | ValueError | TypeError | ImportError | NotImplementedError | WrongUsage):
        text = f"{type(error).__name__}: {text}"  # an error of another library, whose name says more than its text
    return " ".join("; ".join([text, *getattr(error, "__notes__", ())]).split())


WIDTH_PIPED = 1_000_000
"""Columns where standard output is not a terminal, so that no line is folded or cut off."""
KEYS_MAX = 1024
"""Keys that are read at once."""


class Screen(Console):
    """A console that shows no control character of any text, whoever wrote it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = segment.text.split("\n")
                yield segment._replace(text="\n".join(map(visible, lines)))

    def on_broken_pipe(self) -> NoReturn:
        raise ReaderGone


@contextlib.contextmanager
def _to_reader() -> Iterator[None]:
    """Turn the error of a closed standard output into `ReaderGone`."""
    try:
        yield
    except OSError as error:
        if error.errno not in READER_GONE:
            raise
        raise ReaderGone from error


def write(data: bytes) -> None:
    """Write bytes to standard output unchanged."""
    with _to_reader():
        sys.stdout.buffer.write(data)


def flush() -> None:
    """Flush standard output."""
    with _to_reader():
        sys.stdout.flush()


def wait(seconds: float, keyboard: int | None = None) -> bytes:
    """Wait until a key is pressed, but not longer than standard output has a reader; return the keys.

    Parameters
    ----------
    keyboard
        A descriptor that every key is read from.

    Raises
    ------
    ReaderGone
        The reader of standard output has closed it.
    """
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # a stand-in without a descriptor
        descriptor = None
    if descriptor is None or not hasattr(select, "poll"):  # Windows: the next write notices it
        time.sleep(seconds)
        return b""
    watched = select.poll()
    watched.register(descriptor, 0)  # poll always reports errors and hang-ups
    if keyboard is not None:
        watched.register(keyboard, select.POLLIN)
    seen = dict(watched.poll(seconds * 1000))
    if descriptor in seen:
        raise ReaderGone
    return os.read(keyboard, KEYS_MAX) if keyboard is not None and keyboard in seen else b""


def say(*lines: str) -> None:
    """Write lines for people to standard output."""
    with _to_reader():
        for line in lines:
            print(visible(line))


def complain(text: str) -> None:
    """Write a line to standard error."""
    print(f"rollingfs: {visible(text)}", file=sys.stderr)


def write_json(value: Any) -> None:
    """Write a JSON value on its own line."""
    with _to_reader():
        print(json.dumps(plain(value)))


def picked(value: object, names: str) -> dict[str, Any]:
    """Return some attributes of a result, by name, for JSON."""
    return {name: getattr(value, name) for name in names.split()}


# -- dates, as people read them ----------------------------------------------------------------------------------


def date_text(seconds: float) -> str:
    """Return a date in the local time zone."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a header's date in a year that this time zone cannot express
        return f"{seconds:.0f} s since 1970"


# -- tables and pictures ---------------------------------------------------------------------------------------


def screen() -> Console:
    """Return the console for tables and pictures; where it is not a terminal, as wide as they are."""
    return Screen(width=None if sys.stdout.isatty() else WIDTH_PIPED, highlight=False, markup=False, emoji=False)


def show(*shown: Text) -> None:
    """Print text, line by line."""
    console = screen()
    for one in shown:
        console.print(one, no_wrap=True, crop=False, overflow="ignore")


def columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return rows as lines for a terminal, as `in_columns`."""
    return in_columns([list(map(visible, row)) for row in rows], right, cell_len)


def silence() -> None:
    """Point standard output at the null device, so that Python does not complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):  # a stand-in without a descriptor needs none of this
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
