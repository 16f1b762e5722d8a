"""`Series`: the segments of a log in a folder, a segment for each of its files; all but the last are sealed."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

from rollingfs.errors import AttributeMismatchError, SegmentSealedError
from rollingfs.format.header import Phase
from rollingfs.format.transitions import Guard
from rollingfs.segment.verbs.change import seal
from rollingfs.ship.sender import Attrs, Sender

DIGITS = 8
"""Digits of the names of segments."""


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

        return self.segment is not None and self._patiently(attempt)

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
            names = [info["name"].rsplit("/", 1)[-1] for info in self.core.run(self.core.listings.ls(self.folder))]
        except FileNotFoundError:
            names = []
        return max((int(name) for name in names if len(name) == DIGITS and name.isdecimal()), default=1)

    def _go_to(self, number: int) -> None:
        self._number, self.segment = number, None
        self.path = f"{self.folder}/{number:0{DIGITS}}"
