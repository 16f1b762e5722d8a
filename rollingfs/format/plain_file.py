"""The plain file that a segment hides, or that became the segment. Pure."""

from __future__ import annotations

from rollingfs.runtime.values import value_class

PLAIN_INCARNATION = "plain "
"""The prefix of a plain file's incarnation; a segment's incarnation is a uuid."""


@value_class
class Adopted:
    """The plain file that this header shadows."""

    token: str
    modified_ms: int

    @property
    def incarnation(self) -> str:
        """Return the mark that distinguishes this plain file from later files of its name.

        It has the date in whole seconds: a listing may know milliseconds where a look at the same file does not.
        """
        return f"{PLAIN_INCARNATION}{self.modified_ms // 1000} {self.token}"


@value_class
class Origin:
    """The plain file that became this segment; `Adopted` may name another, which an overwrite hides."""

    segment: str
    """Incarnation. A client that does not know this line may carry it into another, where it has no meaning."""
    modified_ms: int
