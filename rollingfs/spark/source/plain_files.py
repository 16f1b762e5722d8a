"""Identity of plain files in plans and offsets, also of files that have grown. Pure.

A name and a date do not suffice: another file may get both. So the text of a plain file has the inode on a disk, which
a rename and an append keep, and the token on an object store.
"""

from __future__ import annotations

from rollingfs.backend.contract import FileInfo
from rollingfs.runtime.values import value_class

PLAIN = "plain "
"""With this begins the identity of a plain file."""
_INODE = "inode:"


@value_class
class PlainFile:
    """A plain file as it was at a moment; its text is its identity."""

    modified_s: int
    """In whole seconds: a listing may know milliseconds where a look at the same file does not."""
    size: int
    key: str = ""
    """On a disk the inode and the date in milliseconds, else the token; empty if a listing has neither."""

    @staticmethod
    def of(info: FileInfo) -> PlainFile:
        """Return what a listing, or a look, shows of a file."""
        key = info.token or ""
        if info.inode is not None:
            key = f"{_INODE}{info.inode:x}:{round(info.modified * 1000)}"
        return PlainFile(int(info.modified), info.size, key)

    @staticmethod
    def parse(identity: str) -> PlainFile:
        """Return the file of an identity; an older checkpoint has no key."""
        _, modified_s, size, *key = identity.split(" ", 3)
        return PlainFile(int(modified_s), int(size), *key)

    def __str__(self) -> str:
        return f"{PLAIN}{self.modified_s} {self.size} {self.key}".rstrip()

    @property
    def inode(self) -> str | None:
        """Return the inode, on a disk."""
        return self.key.split(":")[1] if self.key.startswith(_INODE) else None

    def is_unchanged(self, now: PlainFile) -> bool:
        """Return whether the file of this name is still this file, and has been written by no program since."""
        if self.key and now.key:
            return (self.key, self.size) == (now.key, now.size)
        return (self.modified_s, self.size) == (now.modified_s, now.size)

    def is_kept(self, now: PlainFile) -> bool:
        """Return whether this file of a disk is there and has at most grown.

        Its name may be another; date and size show the growth.
        """
        return self.inode is not None and self.inode == now.inode and (now.size > self.size or self.is_unchanged(now))
