"""Names that Spark does not list. Pure.

Its own sources skip these files and folders below what a query names; a folder that a query names, or that a pattern
matches, is read whatever its name.
"""

from __future__ import annotations

BEING_COPIED = "._COPYING_"
"""So ends the name of a file that Hadoop's shell has not finished."""
SUMMARIES = ("_metadata", "_common_metadata")
"""Spark goes into folders whose names begin so."""


def is_skipped_file(name: str) -> bool:
    """Return whether Spark skips a file of this name."""
    return name.startswith(".") or name.endswith(BEING_COPIED) or (name.startswith("_") and "=" not in name)


def is_skipped(path: str) -> bool:
    """Return whether Spark skips what is at a path, which is relative to a folder that a query names."""
    *folders, name = path.strip("/").split("/")
    return is_skipped_file(name) or any(
        is_skipped_file(folder) and not folder.startswith(SUMMARIES) for folder in folders
    )
