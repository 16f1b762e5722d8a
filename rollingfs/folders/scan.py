"""`Scan`: a folder as it was listed. Pure."""

from __future__ import annotations

from dataclasses import field

from rollingfs.format import names
from rollingfs.format.listing_codec import Row
from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import Segment


@value_class
class Scan:
    """A folder as it was listed."""

    path: str
    views: dict[str, Segment]
    """Segments and plain files, by path, except those in `rows`."""
    folders: tuple[str, ...]
    """Folders in it. With tombstones only, they do not exist for users."""
    stays: bool
    """It exists even if it is empty."""
    unreadable: dict[str, OSError] = field(default_factory=dict)
    """Segments and plain files that cannot be read and so are not among the views, by path."""
    error: OSError | None = None
    """The error, if the folder itself cannot be listed."""
    rows: dict[str, Row] = field(default_factory=dict)
    """Segments whose row suffices, by path; only for a caller that asked for rows."""
    links: tuple[str, ...] = ()
    """Symbolic links in it; see `Sorted`."""
    listed_s: float | None = None
    """The store's time after the listing, in seconds since 1970, if the listing has it."""
    is_by_rows: bool = False
    """Whether rows that were written before the listing stand for all segments that listings show."""

    @property
    def errors(self) -> dict[str, OSError]:
        """Return the segments and plain files that cannot be read and that listings show."""
        return {path: error for path, error in self.unreadable.items() if not names.is_hidden_segment(path)}

    @property
    def listed(self) -> dict[str, Segment]:
        """Return the segments and plain files that listings show."""
        return {path: view for path, view in self.views.items() if not names.is_hidden_segment(path)}

    @property
    def unlinked(self) -> list[str]:
        """Return the folders without symbolic links."""
        return [folder for folder in self.folders if folder not in self.links]

    @property
    def shown(self) -> list[str]:
        """Return the folders that no segment of the same name hides."""
        return [folder for folder in self.folders if folder not in self.views and folder not in self.rows]
