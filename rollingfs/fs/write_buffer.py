"""The bytes that were written to an open file and are not committed: in memory, on their way, and when they commit."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator

from rollingfs.backend.contract import Buffer, frozen
from rollingfs.policy import parse_bytes, parse_seconds
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.runtime.values import value_class
from rollingfs.segment.write.budget import Budget, Spillable
from rollingfs.segment.write.ingest import PIECE_BYTES, Intake

logger = logging.getLogger("rollingfs")

GRAIN_BYTES = 16 * 1024
"""Bytes of room that are requested at once, so that small writes are quick."""
PIECE_COST_BYTES = 48
"""Bytes that Python needs for a piece in addition to its own."""
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
    """Return the value that a user of `open` gives.

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


class WriteBuffer(Spillable):
    """Gathers what is written, and hands it to the intake of the next commit.

    Parameters
    ----------
    intake
        The intake of the next commit.
    when
        The state in which a commit is due.
    on_time
        A method of the file. A timer's thread calls it when the oldest byte is old enough. It must take `lock`, and
        do not commit if the file has committed or closed.

    Attributes
    ----------
    is_broken : bool
        A write failed: later bytes must not follow a gap.
    failure : BaseException or None
        The error that the writer has not seen, because another thread met it.
    """

    def __init__(
        self, bridge: Bridge, budget: Budget, path: str, intake: Intake, when: CommitOn, on_time: Callable[[], None]
    ) -> None:
        self.lock = threading.RLock()
        """Held by every use of the file: the timer's thread commits at the same time as the writer."""
        self.uses = 0
        """Uses under way, one within the other; the lock lets its own thread pass."""
        self.when = when
        self.intake: Intake | None = intake
        self.is_broken = False
        self.failure: BaseException | None = None
        self._bridge = bridge
        self._path = path
        self._on_time = weakref.WeakMethod(on_time)  # the timer keeps no file alive that nobody closes
        self._written_bytes = self._lines = 0
        """Written since the last commit."""
        self._timer: threading.Timer | None = None
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._spilling_bytes = 0
        """Data that another writer is handing to the intake, or has failed to hand to it."""
        self._share = budget.share()
        self._process = os.getpid()
        budget.add(self)

    @property
    def pending_bytes(self) -> int:
        """The number of written bytes that are not committed."""
        return self._bytes + self._spilling_bytes + (self.intake.size if self.intake is not None else 0)

    @contextlib.contextmanager
    def or_broken(self) -> Iterator[None]:
        """Break the file on any error, Ctrl-C too: later bytes must not follow a gap."""
        try:
            yield
        except BaseException:
            self.is_broken = True
            raise

    def add(self, view: memoryview, *, is_held: bool) -> None:
        """Take bytes; with `is_held`, keep them all in memory, whatever the bound."""
        if is_held or self._bytes + len(view) < PIECE_BYTES:
            if not is_held:
                self._make_room(len(view))
            self._pieces.append(frozen(view))
            self._bytes += len(view)
        else:
            self.send()
            self._take(view)

    def _make_room(self, size: int) -> None:
        need = self._bytes + size + PIECE_COST_BYTES * (len(self._pieces) + 1)
        if need <= self._share.count:
            return
        grains = max(GRAIN_BYTES, need - self._share.count)
        if not (self._share.try_take(grains) or self._share.try_take(need - self._share.count)):
            # what is spilled meanwhile makes room as well, so this may be more than needed, and never less
            self._bridge.run(self._share.take(max(size + PIECE_COST_BYTES, min(grains, GRAIN_BYTES)), self._spill))

    def send(self) -> None:
        """Hand the buffered bytes to the intake."""
        if self._pieces:
            with self.or_broken():
                self._take(memoryview(self._joined()))

    def _joined(self) -> bytes:
        data, self._pieces, self._bytes = b"".join(self._pieces), [], 0
        self._share.close()
        return data

    def _take(self, view: memoryview) -> None:
        assert self.intake is not None
        self._bridge.run(self.intake.take(view))

    def drop(self) -> None:
        """Forget the buffered bytes."""
        self._pieces, self._bytes = [], 0
        self._share.close()

    # -- when a commit is due ------------------------------------------------------------------------------

    def wrote(self, data: Buffer) -> bool:
        """Note that bytes were written, under `lock`; whether a commit is due now."""
        if self.when == NEVER:
            return False
        view = memoryview(data).cast("B")
        self._written_bytes += view.nbytes
        if self.when.lines_min is not None:
            self._lines += bytes(view).count(b"\n")
        if self.when.seconds is not None and self._timer is None and self._written_bytes:
            self._timer = threading.Timer(self.when.seconds, _time_is_up, [self._on_time])
            self._timer.daemon = True  # the end of a program commits nothing, it warns of the bytes
            self._timer.start()
        return self.when.is_due(self._written_bytes, 0.0, lambda: self._lines)  # a timer judges the age

    def restart(self) -> None:
        """Count from zero: all is committed, or no more will be."""
        self._written_bytes = self._lines = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- for other writers, at the bound of memory ---------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        intake = self.intake  # garbage collection of the file may take it away
        return self._share.count + (intake.share.count if intake is not None else 0)

    async def _spill(self) -> None:
        assert self.intake is not None
        await self.intake.spill(self._joined())

    async def spill_if_idle(self) -> bool:
        if self._process != os.getpid():
            return False
        taken = list[bool]()
        try:
            taken.extend(map(self.lock.acquire, [False]))  # in one call: Ctrl-C comes before both or after both
            return taken[0] and await self._spill_alone()
        finally:
            if True in taken:
                self.lock.release()

    async def _spill_alone(self) -> bool:
        """Spill as `spill_if_idle` does, for a caller that has the lock."""
        intake = self.intake
        if self.uses or self.is_broken or intake is None or not self.held_bytes:
            return False
        self.uses += 1  # the lock lets other tasks of this thread pass
        self._spilling_bytes = self._bytes
        try:
            with self.or_broken():
                await intake.spill(self._joined())
            self._spilling_bytes = 0
        except BaseException as error:
            self.failure = error.with_traceback(None)  # its frames would keep the file alive
            self.drop()
            if not isinstance(error, Exception):
                raise
            logger.error("%s: its bytes could not be uploaded, so the file takes no more: %s", self._path, error)
        finally:
            self.uses -= 1
        if self.intake is None:
            try:
                await intake.abort()  # the file was let go meanwhile
            except OSError as error:
                logger.info("%s: uploads that were not committed are left to collect(): %s", self._path, error)
        return True

    def give_up(self, intake: Intake) -> None:
        """Give up the uploads of a file that was let go; this takes no lock, so that garbage collection may do it."""
        if self.uses:
            return  # another writer is writing to the upload, and gives it up afterwards
        if not self._bridge.is_async:
            drive(intake.abort_open())
        elif not intake.is_empty:
            self._bridge.start(intake.abort())


def _time_is_up(on_time: weakref.WeakMethod[Callable[[], None]]) -> None:
    if (method := on_time()) is not None:
        method()
