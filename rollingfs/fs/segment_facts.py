"""What a handle shows of a segment: the attributes of a snapshot."""

from __future__ import annotations

from datetime import UTC, datetime

from rollingfs.commit.shadowing import modified_ms
from rollingfs.policy import RollingPolicy
from rollingfs.read.snapshot import View


class Snapshot:
    """The attributes of a segment, or of a plain file, as they were at one moment.

    Parameters
    ----------
    policy
        What a plain file would get.
    held
        The epoch of an exclusive handle.
    """

    def __init__(self, view: View, policy: RollingPolicy, held: int | None) -> None:
        self._view = view
        self._policy = policy
        self._held = held

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.path!r} [{self.start}, {self.length}) {self.state} version {self.version}>"
        )

    @property
    def path(self) -> str:
        """Its path on the backend."""
        return self._view.path

    @property
    def start(self) -> int:
        """Offset of the first retained byte."""
        return self._view.start

    @property
    def length(self) -> int:
        """Offset of the end."""
        return self._view.length

    @property
    def size(self) -> int:
        """Bytes retained: length - start."""
        return self._view.size

    @property
    def sealed(self) -> bool:
        """Whether it takes no more bytes."""
        return self._view.header is not None and self._view.header.sealed

    @property
    def state(self) -> str:
        """``"open"``, ``"sealed"``, or ``"merging"`` while it becomes part of another segment."""
        return str(self._view.header.phase) if self._view.header is not None else "open"

    @property
    def version(self) -> int:
        """Grows with every commit; 0 for a plain file."""
        return self._view.header.version if self._view.header is not None else 0

    @property
    def epoch(self) -> int:
        """The epoch that this handle holds; of a handle that holds none, the segment's."""
        if self._held is not None:
            return self._held
        return self._view.header.epoch if self._view.header is not None else 0

    @property
    def owner(self) -> str | None:
        """Who holds the segment exclusively."""
        return self._view.header.owner if self._view.header is not None else None

    @property
    def attrs(self) -> dict[str, str]:
        """The segment's attributes."""
        return dict(self._view.header.attrs) if self._view.header is not None else {}

    @property
    def policy(self) -> RollingPolicy:
        """When it rolls to a new chunk; of a plain file, when it would if it were written to from here."""
        return self._view.header.policy if self._view.header is not None else self._policy

    @property
    def created(self) -> datetime:
        """When this incarnation was created (UTC); of a plain file, when it was last changed."""
        return _date(self._view.header.created_ms if self._view.header is not None else _plain_ms(self._view))

    @property
    def modified(self) -> datetime:
        """When it was last changed (UTC)."""
        return _date(self._view.header.modified_ms if self._view.header is not None else _plain_ms(self._view))


def _date(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _plain_ms(view: View) -> int:
    assert view.plain is not None
    return modified_ms(view.plain)
