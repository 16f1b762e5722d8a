"""An upload that somebody has begun and not finished, as the store lists it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A file whose writing has begun. The store keeps its parts until the upload is finished or aborted."""

    path: str
    """The file that the upload would make."""
    began: float
    """Seconds since 1970 by the store's clock."""
    id: str
    """The store's own name for the upload."""
