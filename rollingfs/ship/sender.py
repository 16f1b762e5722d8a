"""`Sender`: appends bytes and sets attributes in a single commit, once, however often the store fails.

`Series` does so in the newest segment of a folder.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from rollingfs.errors import (
    UNSUPPORTED,
    AppendOutcomeUnknown,
    AttributeMismatchError,
    CommitTimeoutError,
    LockedError,
    RollingError,
    SegmentSealedError,
)
from rollingfs.folders.listing import ls
from rollingfs.format import transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import Guard
from rollingfs.fs.core import Core
from rollingfs.segment.verbs.append import append
from rollingfs.segment.verbs.change import seal

T = TypeVar("T")
Attrs = Mapping[str, str | None]

DIGITS = 8
"""Digits of the names of segments in a folder."""
RETRY_S_MIN = 0.1
RETRY_S_MAX = 10.0
"""Pauses between failed tries double, up to this."""
LOOK_S = 0.2
"""Time between two looks, in a pause, whether the program is to end."""
REPORT_S = 60.0
"""Time between two reports of a store that fails."""
PASSING = (AppendOutcomeUnknown, CommitTimeoutError, LockedError)
"""Errors of rollingfs that a repetition mends. It repeats the condition, too, so it cannot append twice."""
FINAL = (RollingError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


class Stopped(Exception):
    """The program is to end, and the store has not confirmed the commit."""


def is_passing(error: OSError) -> bool:
    """Return whether a repetition may succeed."""
    return isinstance(error, PASSING) or not (isinstance(error, FINAL) or error.errno in UNSUPPORTED)


class Sender:
    """Appends to an incarnation of a segment, on condition of its attributes.

    Parameters
    ----------
    path
        The backend's path of the segment.
    is_stopped
        Whether to give up at the next failure of the store.
    say
        Gets the report of a store that fails, once a minute.
    """

    moved: tuple[type[RollingError], ...] = (AttributeMismatchError,)
    """Errors after which another shipper may have gone on."""

    def __init__(
        self, core: Core, path: str, is_stopped: Callable[[], bool] = bool, say: Callable[[str], None] = print
    ) -> None:
        self.core, self.path = core, path
        self.is_stopped, self.say = is_stopped, say
        self.segment: str | None = None
        """The incarnation; None while the segment is missing."""

    def attrs(self) -> dict[str, str]:
        """Return the newest attributes of the segment; {} if it is missing.

        Raises
        ------
        FileNotFoundError
            The segment that this object has appended to was deleted or replaced.
        Stopped
            The store fails, and the program is to end.
        """
        return self.patiently(self._look)

    def send(self, data: Callable[[], Any], before: Attrs, after: Attrs) -> bool:
        """Append data and set attributes in a commit, unless the segment has it; make a missing segment.

        Parameters
        ----------
        data
            Makes the data, for each try.
        before, after
            The attributes that are expected, and those to set; they differ.

        Returns
        -------
        bool
            False if the attributes are others: another program has gone on, and the data was not written.

        Raises
        ------
        OSError, ValueError
            A repetition cannot succeed.
        Stopped
            The store fails, and the program is to end.
        """

        def attempt() -> bool:
            create = self.segment is None
            guard = Guard(self.segment, expected_attrs=dict.fromkeys(before) if create else before)
            try:
                written = self.core.run(
                    append(self.core.client, self.path, data(), attrs=after, guard=guard, create=create)
                )
            except self.moved:
                found = self._look()  # after a lost answer, an earlier try may be what is there
                return all(found.get(key) == value for key, value in after.items())
            self.segment = written.header.segment
            return True

        return self.patiently(attempt)

    def turn(self, attrs: Attrs) -> bool:
        """End the segment at the end of a file, on condition of its attributes; False if its segment goes on."""
        return False

    def _look(self) -> dict[str, str]:
        header = self._header()
        return {} if header is None else dict(header.attrs)

    def _header(self) -> Header | None:
        loaded = self.core.run(self.core.client.headers.load_durable(self.path))
        if not loaded.live:
            if self.segment is not None:
                raise transitions.missing(self.path)
            return None
        header = transitions.check_incarnation(transitions.live(loaded.header, self.path), self.segment, self.path)
        self.segment = header.segment
        return header

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt while the store fails; raise what no repetition mends, and `Stopped` at the end.

        Raises
        ------
        Stopped
            The store fails, and the program is to end.
        """
        pause_s, reported_s = RETRY_S_MIN, float("-inf")
        while True:
            try:
                return attempt()
            except OSError as error:
                if not is_passing(error):
                    raise
                if self.is_stopped():
                    raise Stopped(str(error)) from error
                if time.monotonic() - reported_s >= REPORT_S:
                    reported_s = time.monotonic()
                    self.say(f"{self.path}: waiting for the store: {error}")
            end_s, pause_s = time.monotonic() + pause_s, min(2 * pause_s, RETRY_S_MAX)
            while not self.is_stopped() and (left_s := end_s - time.monotonic()) > 0:
                time.sleep(min(LOOK_S, left_s))


class Series(Sender):
    """Appends to the newest segment of a folder; a new segment goes on where the sealed segment before it ends."""

    moved = (AttributeMismatchError, SegmentSealedError)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.folder, self._number = self.path, 0
        self._before: dict[str, str] = {}
        """Attributes of the sealed segment before."""

    def turn(self, attrs: Attrs) -> bool:
        """Seal the segment on condition of its attributes, unless another shipper has gone on; False if it is new."""

        def attempt() -> bool:
            with suppress(AttributeMismatchError):  # another shipper has gone on
                self.core.run(seal(self.core.client, self.path, Guard(self.segment, expected_attrs=attrs)))
            return True

        return self.segment is not None and self.patiently(attempt)

    def _look(self) -> dict[str, str]:
        if not self._number:
            self._go_to(self._newest())
        while (header := self._header()) is not None and header.phase is Phase.SEALED:
            self._before = dict(header.attrs)
            self._go_to(self._number + 1)
        return self._before if header is None else dict(header.attrs)

    def _newest(self) -> int:
        if self._header() is not None:
            why = "It is a segment, and sealing on rotation needs a folder for its segments; nothing was shipped"
            raise NotADirectoryError(errno.ENOTDIR, why, self.folder)
        try:
            names = [info["name"].rsplit("/", 1)[-1] for info in self.core.run(ls(self.core.client, self.folder))]
        except FileNotFoundError:
            names = []
        return max((int(name) for name in names if len(name) == DIGITS and name.isdecimal()), default=1)

    def _go_to(self, number: int) -> None:
        self._number, self.segment = number, None
        self.path = f"{self.folder}/{number:0{DIGITS}}"
