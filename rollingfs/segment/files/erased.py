"""The result of an erase: what went, and what is left elsewhere, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from rollingfs.runtime.values import value_class

YOUNG = "younger than the grace: a collection deletes it after that"
PINNED = "a pin protects it, and the segment that the pin names is absent"
KEPT = "the former name of a part of the segment keeps it for readers of older snapshots"
NAMED = "another segment refers to it"
HIDDEN = "a plain file of the segment's name, which the segment hides"
UNREADABLE = "a folder that cannot be read, so nothing in it may be deleted"
UPLOAD = "unfinished upload: a collection aborts it after the grace"


@value_class
class Remains:
    """A file that may still hold erased bytes."""

    file: str
    """Path on the backend; one in a tier begins with ``tier:`` and its alias."""
    size: int
    """Bytes of the file; 0 for an unfinished upload."""
    reason: str
    """Why it is still there."""
    held: bool
    """True: the erased bytes lay in it. False: nobody refers to it and nobody knows what it holds."""
    until: float | None = None
    """When a collection may delete it, seconds since 1970 by the store's clock; None if that is not known."""
    kept_by: str | None = None
    """The former name that keeps it for readers: a collection of that name deletes it, or another erase."""


@value_class
class Erased:
    """What an erase did, and what is left."""

    start: int
    """The segment begins at this offset; no file that it refers to holds a byte before it."""
    bytes: int = 0
    """Bytes of the segment that this call has dropped; 0 if it only finished an earlier one."""
    rewritten_files: int = 0
    """Files that this call has written anew, because they held bytes before and after the start."""
    rewritten_bytes: int = 0
    """Retained bytes in these."""
    remains: tuple[Remains, ...] = ()
    """Files that may still hold erased bytes."""
    versions: Mapping[str, bool | None] = field(default_factory=dict)
    """Whether the store keeps former versions of files, by the alias of a tier ("" for the segment's own store). None:
    the store does not say."""

    @property
    def is_gone(self) -> bool:
        """Whether the erased bytes are gone from all places that rollingfs knows and can see."""
        return not self.remains and all(kept is False for kept in self.versions.values())
