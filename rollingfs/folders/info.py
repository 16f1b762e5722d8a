"""Folders as they were listed, the infos of their entries, as fsspec defines them, and rows with the facts of headers.

The segment `$listing` of a folder holds the rows, which spare a listing the reads of headers. Only the speed of
listings depends on it: failures are logged, and the headers are read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.format.listing_codec import MARK, TEXT_BYTES_MAX, Row, format_rows, parse_rows, row_of
from rollingfs.format.transitions import Guard
from rollingfs.policy import INLINE_BYTES_MAX, RollingPolicy
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.read.folder_contents import Sorted
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.create import create, overwrite

logger = logging.getLogger("rollingfs")

Info = dict[str, Any]
"""An info, as fsspec has it."""
POLICY = RollingPolicy(inline_bytes=INLINE_BYTES_MAX)
"""The policy of the hidden segment, with any policy of the client: few rows come with the header, in one request."""
FOLDERS_REFUSED_MAX = 1024
"""Maximum number of folders that a client remembers as not writable."""


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


def info_of(view: Segment, chunks: int | None = None) -> Info:
    """Return the info of a segment or plain file; sizes in bytes, dates in seconds since 1970.

    Parameters
    ----------
    chunks
        `Pages.count`; without it, index pages that a truncation has cut count whole.
    """
    header = view.header
    if header is not None:
        return info_of_row(view.path, header, chunks)
    plain = view.plain
    assert plain is not None
    dates = (plain.modified, plain.modified)
    return _info(view.path, 0, plain.size, False, int(plain.size > 0), 0, dates, f"{plain.size}-{plain.modified}")


def info_of_row(path: str, said: Header | Row, chunks: int | None = None) -> Info:
    """Return the info of a segment, by its header or its row; `chunks` as of `info_of`."""
    dates, version = (said.created_ms / 1000, said.modified_ms / 1000), said.version
    chunks = said.chunk_count if chunks is None else chunks
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


# -- rows ------------------------------------------------------------------------------------------------


def is_ours(header: Header | None) -> bool:
    """Return whether a segment of this name holds rows, and not what another program put there."""
    return header is not None and not header.deleted and header.attrs.get(MARK[0]) == MARK[1]


async def rows_of(at: At, folder: str, headers: Mapping[str, str | None]) -> dict[str, Row]:
    """Return the rows that count, by path: those whose token the store's own listing shows.

    Parameters
    ----------
    headers
        The tokens of the headers in the folder, by segment, as the store has listed them.
    """
    path = names.listing_path(folder)
    if path not in headers:
        return {}
    try:
        rows = await _read(at, path, headers[path])
    except FileNotFoundError:
        return {}  # replaced or deleted while it was read
    except (OSError, ValueError) as error:
        logger.warning("%s: every header is read, because the rows of the folder cannot be: %s", path, error)
        return {}
    prefix = path.removesuffix(names.LISTING_NAME)
    return {one: row for name, row in rows.items() if headers.get(one := prefix + name) == row.token}


async def _read(at: At, path: str, token: str | None) -> dict[str, Row]:
    loaded = at.headers.by_token(path, token) or await at.headers.load(path)
    header = loaded.header
    if header is None or not is_ours(header):
        return {}
    if header.size > TEXT_BYTES_MAX:
        raise ValueError(f"they have {header.size} bytes, but at most {TEXT_BYTES_MAX} are allowed")
    data = await at.fetcher.read(loaded, header.start, header.length)
    return parse_rows(bytes(data)) if data else {}


async def keep_rows(
    at: At, folder: str, rows: Iterable[Row], read: Mapping[str, Segment], new_max: int, refused: set[str]
) -> None:
    """Write the rows of a folder, if enough of them are new.

    Parameters
    ----------
    rows
        Valid rows of the listing.
    read
        The headers without a row that counts, by segment.
    new_max
        With no more new rows than this, the segment stays as it is.
    refused
        Folders that this client cannot write.
    """
    path = names.listing_path(folder)
    if not at.backend.capability.can_write or folder in refused:
        return
    new = [
        row
        for segment, loaded in read.items()
        if loaded.header is not None and loaded.token is not None and not names.is_hidden_segment(segment)
        if (row := row_of(segment.rpartition("/")[2], loaded.header, loaded.token)) is not None
    ]
    if len(new) <= new_max:
        return
    try:
        await _replace(at, path, format_rows([*rows, *new]))
    except (FileExistsError, FileNotFoundError) as error:
        logger.debug("%s: the rows of the folder are not written, another client was first: %s", path, error)
    except OSError as error:
        if len(refused) < FOLDERS_REFUSED_MAX:
            refused.add(folder)
        logger.info("%s: the rows of the folder are not written, so listings read the headers: %s", path, error)


async def _replace(at: At, path: str, data: bytes) -> None:
    """Replace the present rows; the first of several clients wins.

    Raises
    ------
    FileExistsError, FileNotFoundError
        Another client was first, or a user's file has this name.
    """
    header = (await at.headers.load(path)).header
    if header is None or header.deleted:
        header = await create(at, path, POLICY)
        # from here to the overwrite it has no mark: after a crash it stays as it is, without rows
    elif not is_ours(header) and not _is_begun(header):
        raise FileExistsError(f"{path}: a segment that does not hold rows has this name")
    await overwrite(at, path, data, attrs={MARK[0]: MARK[1]}, guard=Guard(header.segment))


async def remove_rows(at: At, folder: str) -> None:
    """Delete the rows of a folder, if there are any."""
    from rollingfs.segment.verbs.delete import delete

    path = names.listing_path(folder)
    with contextlib.suppress(FileNotFoundError, CorruptHeaderError):
        header = (await at.headers.load(path)).header
        if header is not None and (is_ours(header) or _is_begun(header)):
            await delete(at, path, Guard(header.segment))


def _is_begun(header: Header) -> bool:
    """Return whether this is the empty segment that a client made before it died."""
    return header.length == 0 and header.policy == POLICY and not header.attrs
