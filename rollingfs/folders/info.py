"""Folders as they were listed, and the infos of their entries, as fsspec defines them. Pure."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.format.listing_codec import Row
from rollingfs.runtime.values import value_class
from rollingfs.segment.read.folder_contents import Sorted
from rollingfs.segment.segment import Segment

Info = dict[str, Any]
"""An info, as fsspec has it."""


def info_of(view: Segment, chunks: int | None = None) -> Info:
    """Return the info of a segment or plain file; sizes in bytes, dates in seconds since 1970.

    Parameters
    ----------
    chunks
        `Pages.count`; without it, index pages that a truncation has cut count whole.
    """
    header = view.header
    if header is not None:
        return _info_of_header(view.path, header, header.chunk_count if chunks is None else chunks)
    plain = view.plain
    assert plain is not None
    dates = (plain.modified, plain.modified)
    return _info(view.path, 0, plain.size, False, int(plain.size > 0), 0, dates, f"{plain.size}-{plain.modified}")


def info_of_row(path: str, row: Row) -> Info:
    """Return the info of a segment, by its row."""
    return _info_of_header(path, row, row.chunk_count)


def _info_of_header(path: str, said: Header | Row, chunks: int) -> Info:
    """Return the info of a segment, by its header or its row."""
    dates, version = (said.created_ms / 1000, said.modified_ms / 1000), said.version
    return _info(path, said.start, said.length, said.sealed, chunks, version, dates, f"{said.segment}-{version}")


def _info(
    path: str, start: int, length: int, sealed: bool, chunks: int, version: int, dates: tuple[float, float], tag: str
) -> Info:
    return {
        "name": path,
        "size": length - start,
        "type": "file",
        "start_offset": start,
        "length": length,
        "sealed": sealed,
        "chunks": chunks,
        "version": version,
        "created": dates[0],
        "mtime": dates[1],
        "ETag": tag,  # the key by which caches (of Hugging Face's datasets, for one) see that a file changed
    }


def info_of_folder(path: str) -> Info:
    """Return the info of a folder."""
    return {"name": path, "size": 0, "type": "directory"}


def info_of_unreadable(path: str, error: OSError) -> Info:
    """Return the info of a segment or plain file that cannot be read."""
    return {"name": path, "size": None, "type": "file", "error": str(error)}


@value_class
class Scan:
    """A folder as it was listed."""

    path: str
    found: Sorted
    """Its entries. Folders with tombstones only do not exist for users."""
    views: dict[str, Segment] = field(default_factory=dict)
    """Segments and plain files, by path, except those in `rows`."""
    stays: bool = True
    """It exists even if it is empty."""
    unreadable: dict[str, OSError] = field(default_factory=dict)
    """Segments and plain files that cannot be read and so are not among the views, by path."""
    error: OSError | None = None
    """The error, if the folder itself cannot be listed."""
    rows: dict[str, Row] = field(default_factory=dict)
    """Segments whose row suffices, by path; only for a caller that asked for rows."""
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
        return [folder for folder in self.found.folders if folder not in self.found.links]

    @property
    def shown(self) -> list[str]:
        """Return the folders that no segment of the same name hides."""
        return [folder for folder in self.found.folders if folder not in self.views and folder not in self.rows]
