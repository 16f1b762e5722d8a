"""When an open file commits by itself, so that readers see what it has written before it is closed."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable

from rollingfs.backend.contract import Buffer
from rollingfs.policy import parse_bytes, parse_seconds
from rollingfs.runtime.values import value_class

CommitOnGiven = str | int | Iterable[str | int]
SECONDS_MIN = 0.001
_LINES = re.compile(r"(?:(?P<count>[0-9]+) *)?lines?")
_FORMS = "give 'flush', a number of bytes (65536, '64KiB'), lines ('line', '100 lines'), a time ('5s'), or several"


@value_class
class CommitOn:
    """The limits at which an open file commits; the first counts."""

    flush: bool = False
    """A call of `flush` commits."""
    bytes_min: int | None = None
    """Number of uncommitted bytes that makes a commit due."""
    lines_min: int | None = None
    """Number of uncommitted line ends that makes a commit due."""
    seconds: float | None = None
    """Age of the oldest uncommitted byte that makes a commit due."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("bytes", self.bytes_min, 1),
            ("lines", self.lines_min, 1),
            ("seconds", self.seconds, SECONDS_MIN),
        ):
            if value is not None and not least <= value <= threading.TIMEOUT_MAX:
                raise ValueError(f"commit_on is {value} {name}: it must be at least {least}")

    def is_due(self, size: int, age_s: float, count_lines: Callable[[], int]) -> bool:
        """Return whether uncommitted bytes make a commit due, by their size and age, or by the line ends in them.

        Parameters
        ----------
        count_lines
            Counts the line ends; called only if they matter.
        """
        return (
            (self.bytes_min is not None and size >= self.bytes_min)
            or (self.seconds is not None and age_s >= self.seconds)
            or (self.lines_min is not None and count_lines() >= self.lines_min)
        )


NEVER = CommitOn()


def parse_commit_on(given: CommitOnGiven) -> CommitOn:
    """The value that a user of `open` gives.

    Parameters
    ----------
    given
        ``"flush"``; a number of bytes (also ``"64KiB"``); ``"line"`` or ``"100 lines"``; a time (``"5s"``, ``"2min"``);
        or several of these.

    Raises
    ------
    ValueError, TypeError
        It has another form, two limits of the same kind, or a number out of range.
    """
    found: dict[str, bool | int | float] = {}
    for one in given if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [given]:
        name, value = _parse_one(one)
        if found.setdefault(name, value) != value:
            raise ValueError(f"commit_on is {given!r}: it names two limits of one kind; {_FORMS}")
    if not found:
        raise ValueError(f"commit_on is {given!r}, which names nothing: {_FORMS}")
    return CommitOn(**found)  # type: ignore[arg-type]  # each name has a value of its type


def _parse_one(given: object) -> tuple[str, bool | int | float]:
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise TypeError(f"commit_on is {given!r}, which could be bytes or seconds: {_FORMS}")
    if isinstance(given, int):
        return "bytes_min", given
    text = given.strip()
    if text == "flush":
        return "flush", True
    if lines := _LINES.fullmatch(text):
        return "lines_min", int(lines["count"] or 1)
    for name, parse in (("bytes_min", parse_bytes), ("seconds", parse_seconds)):
        try:
            if text and not text[-1].isdigit():  # a bare number in a text could be any of them
                return name, parse(text)
        except ValueError:
            continue
    raise ValueError(f"commit_on is {given!r}: {_FORMS}")


class Due:
    """Counts what an open file has written since its last commit.

    Parameters
    ----------
    when
        The state in which a commit is due.
    on_time
        A method of the file. A timer's thread calls it when the oldest byte is old enough. It must take `lock`, and
        do not commit if the file has committed or closed.
    """

    def __init__(self, when: CommitOn, on_time: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        """Held by every use of the file: the timer's thread commits at the same time as the writer."""
        self.uses = 0
        """Uses under way, one within the other; the lock lets its own thread pass."""
        self.when = when
        self._on_time = weakref.WeakMethod(on_time)  # the timer keeps no file alive that nobody closes
        self._bytes = 0
        self._lines = 0
        self._timer: threading.Timer | None = None

    def wrote(self, data: Buffer) -> bool:
        """Note that bytes were written, under `lock`; whether a commit is due now."""
        if self.when == NEVER:
            return False
        view = memoryview(data).cast("B")
        self._bytes += view.nbytes
        if self.when.lines_min is not None:
            self._lines += bytes(view).count(b"\n")
        if self.when.seconds is not None and self._timer is None and self._bytes:
            self._timer = threading.Timer(self.when.seconds, self._time_is_up)
            self._timer.daemon = True  # the end of a program commits nothing, it warns of the bytes
            self._timer.start()
        return self.when.is_due(self._bytes, 0.0, lambda: self._lines)  # a timer judges the age

    def _time_is_up(self) -> None:
        on_time = self._on_time()
        if on_time is not None:
            on_time()

    def restart(self) -> None:
        """Count from zero: all is committed, or no more will be."""
        self._bytes = self._lines = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
