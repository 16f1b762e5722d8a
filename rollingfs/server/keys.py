"""Idempotency keys: an attribute that is set in the commit of an append, and that refuses the same append twice."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping

from rollingfs.errors import RollingError

ATTRIBUTE = "idempotency-keys"
KEYS_MAX = 128
KEYS_BYTES_MAX = 3072
"""Maximum bytes of all keys of a segment; all its attributes together may have 4,096."""
_DIGEST_BYTES = 9
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class AlreadyAppended(RollingError):
    """The append with this key took place before. Nothing was written again."""

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
    digest = _digest(key)
    for entry in attrs.get(ATTRIBUTE, "").split():
        name, _, place = entry.partition(":")
        if name == digest:
            offset, _, size = place.partition(":")
            raise AlreadyAppended(int(offset, 36), int(size, 36))


def remembering(key: str, size: int) -> Callable[[Mapping[str, str], int], Mapping[str, str | None]]:
    """The attributes of an append with a key: all keys that fit, the newest last.

    Parameters
    ----------
    size
        The bytes of the append.
    """

    def attributes(present: Mapping[str, str], offset: int) -> Mapping[str, str | None]:
        check_fresh(present, key)
        entries = [*present.get(ATTRIBUTE, "").split(), f"{_digest(key)}:{_base36(offset)}:{_base36(size)}"]
        entries = entries[-KEYS_MAX:]
        while len(" ".join(entries)) > KEYS_BYTES_MAX:
            del entries[0]
        return {ATTRIBUTE: " ".join(entries)}

    return attributes


def _digest(key: str) -> str:
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
    return urlsafe_b64encode(digest[:_DIGEST_BYTES]).decode()


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return digits or "0"
