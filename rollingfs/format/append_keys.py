"""Idempotency keys: an attribute that is set in the commit of an append, and that refuses the same append twice.

A client that numbers its appends is a *writer*: only its newest append is remembered, and a
repeat that may have been forgotten is refused. `rollingfs.fs.append_via` is such a client.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping

from rollingfs.errors import RollingError
from rollingfs.format.header import ATTRS_BYTES_MAX
from rollingfs.runtime.values import value_class

ATTRIBUTE = "idempotency-keys"
KEY_CHARS = 33
KEYS_MAX = 3 * ATTRS_BYTES_MAX // 4 // KEY_CHARS
"""The keys take three quarters of the bytes of attributes that others leave, so that the others can grow."""
_DIGEST_BYTES, _OFFSET_BYTES, _SIZE_BYTES = 9, 8, 7
WRITERS = "append-writers"
"""The attribute of writers: how many entries went for want of room, and the newest append of each of the others."""
_NUMBER_BYTES, _WRITTEN_BYTES = 4, 3


class AlreadyAppended(RollingError):
    """The append with this key took place before. No byte was written again."""

    def __init__(self, offset: int, size: int) -> None:
        super().__init__("an append with this Idempotency-Key took place before; nothing was appended again")
        self.offset, self.size = offset, size

    def __reduce__(self) -> tuple[type[AlreadyAppended], tuple[int, int]]:
        return type(self), (self.offset, self.size)


def check_fresh(attrs: Mapping[str, str], key: str) -> None:
    """Refuse a key that an append had before.

    Raises
    ------
    AlreadyAppended
        It had, as far as the attribute remembers.
    """
    own = urlsafe_b64encode(_digest(key)).decode()
    for entry in attrs.get(ATTRIBUTE, "").split():
        if entry.startswith(own):
            numbers = urlsafe_b64decode(entry[len(own) :])
            raise AlreadyAppended(int.from_bytes(numbers[:_OFFSET_BYTES]), int.from_bytes(numbers[_OFFSET_BYTES:]))


def remembering(key: str, size: int) -> Callable[[Mapping[str, str], int], Mapping[str, str | None]]:
    """Return the attributes of an append with a key: the newest keys that fit.

    Parameters
    ----------
    size
        The bytes of the append.
    """

    def attributes(present: Mapping[str, str], offset: int) -> Mapping[str, str | None]:
        check_fresh(present, key)
        entry = urlsafe_b64encode(_digest(key) + offset.to_bytes(_OFFSET_BYTES) + size.to_bytes(_SIZE_BYTES))
        keys = [*present.get(ATTRIBUTE, "").split(), entry.decode()]
        return {ATTRIBUTE: " ".join(keys[-_room(present, ATTRIBUTE) :])}

    return attributes


class ForgottenError(RollingError):
    """It is unknown whether this append took place before: later appends took its place. No byte was written now."""


@value_class
class AppendKey:
    """An append as its writer names it."""

    name: str
    number: int
    """Its writer numbers its appends from 1 on, and sends them in order."""
    gone: int
    """Number of entries that had gone when the writer first sent it."""
    segment: str
    """The incarnation that is meant."""

    @classmethod
    def parse(cls, text: str) -> AppendKey:
        """Parse the words of a request: name, number, entries that had gone, incarnation.

        Raises
        ------
        ValueError
            There are other words.
        """
        name, number, gone, segment = text.split()
        if not 1 <= int(number) < 256**_NUMBER_BYTES:
            raise ValueError(f"writer: {number} is no number of an append; nothing was written")
        return cls(name, int(number), int(gone), segment)

    @property
    def _own(self) -> str:
        """Return the begin of its entry."""
        return urlsafe_b64encode(_digest(self.name)).decode()

    def check(self, attrs: Mapping[str, str]) -> str | None:
        """Return the entry of the append before, if the attributes allow this append.

        Raises
        ------
        AlreadyAppended
            The append took place before.
        ForgottenError
            It may have, or a later append of this writer did.
        """
        own, (gone, *entries) = self._own, attrs.get(WRITERS, "0").split()
        before = next((entry for entry in entries if entry.startswith(own)), None)
        if before is None:
            if int(gone) != self.gone:
                raise ForgottenError("the append may have taken place before, and was forgotten; nothing was written")
            return None
        numbers = urlsafe_b64decode(before[len(own) :])
        number, place = int.from_bytes(numbers[:_NUMBER_BYTES]), numbers[_NUMBER_BYTES:-_WRITTEN_BYTES]
        if number == self.number:
            raise AlreadyAppended(int.from_bytes(place), int.from_bytes(numbers[-_WRITTEN_BYTES:]))
        if number > self.number:
            raise ForgottenError("a later append of this writer took place; nothing was written")
        return before

    def attributes(self, size: int) -> Callable[[Mapping[str, str], int], Mapping[str, str | None]]:
        """Return the attributes of the append, as `remembering`."""
        if size >= 256**_WRITTEN_BYTES:
            raise ValueError(f"writer: {size} bytes are too many for a numbered append; nothing was written")

        def attributes(present: Mapping[str, str], offset: int) -> Mapping[str, str | None]:
            before, (gone, *entries) = self.check(present), present.get(WRITERS, "0").split()
            said = self.number.to_bytes(_NUMBER_BYTES) + offset.to_bytes(_OFFSET_BYTES) + size.to_bytes(_WRITTEN_BYTES)
            entries = [*(one for one in entries if one != before), self._own + urlsafe_b64encode(said).decode()]
            over = max(0, len(entries) - _room(present, WRITERS))
            return {WRITERS: " ".join([str(int(gone) + over), *entries[over:]])}

        return attributes


def _room(present: Mapping[str, str], attribute: str) -> int:
    """Return the maximum entries of an attribute, by the segment's other attributes."""
    others = sum(len(name.encode()) + len(text.encode()) for name, text in present.items() if name != attribute)
    return max(1, 3 * (ATTRS_BYTES_MAX - others) // 4 // KEY_CHARS)


def gone_of(attrs: Mapping[str, str]) -> int:
    """Return the number of entries of writers that have gone."""
    return int(attrs.get(WRITERS, "0").partition(" ")[0])


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()[:_DIGEST_BYTES]
