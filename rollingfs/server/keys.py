"""Idempotency keys: an attribute that is set in the commit of an append, and that refuses the same append twice."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping

from rollingfs.errors import RollingError
from rollingfs.format.header import ATTRS_BYTES_MAX

ATTRIBUTE = "idempotency-keys"
KEY_CHARS = 33
KEYS_MAX = 3 * ATTRS_BYTES_MAX // 4 // KEY_CHARS
"""The keys take three quarters of the bytes of attributes that others leave, so that the others can grow."""
_DIGEST_BYTES, _OFFSET_BYTES, _SIZE_BYTES = 9, 8, 7


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
    for entry in map(urlsafe_b64decode, attrs.get(ATTRIBUTE, "").split()):
        digest, numbers = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
        if digest == _digest(key):
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
        others = sum(len(name.encode()) + len(text.encode()) for name, text in present.items() if name != ATTRIBUTE)
        room = 3 * (ATTRS_BYTES_MAX - others) // 4 // KEY_CHARS
        keys = [*present.get(ATTRIBUTE, "").split(), entry.decode()]
        return {ATTRIBUTE: " ".join(keys[-max(1, room) :])}

    return attributes


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()[:_DIGEST_BYTES]
