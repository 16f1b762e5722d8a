"""The segment `$listing` of a folder: rows with the facts of its headers, which spare a listing the reads.

Only the speed of listings depends on it: failures are logged, and the headers are read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping

from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.format.listing_codec import MARK, TEXT_BYTES_MAX, Row, format_rows, parse_rows, row_of
from rollingfs.format.transitions import Guard
from rollingfs.policy import INLINE_BYTES_MAX, RollingPolicy
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.create import create, overwrite

logger = logging.getLogger("rollingfs")

POLICY = RollingPolicy(inline_bytes=INLINE_BYTES_MAX)
"""The policy of the hidden segment, with any policy of the client: few rows come with the header, in one request."""
FOLDERS_REFUSED_MAX = 1024
"""Maximum number of folders that a client remembers as not writable."""


def is_ours(header: Header | None) -> bool:
    """Return whether a segment of this name holds rows, and not what another program put there."""
    return header is not None and not header.deleted and header.attrs.get(MARK[0]) == MARK[1]


class ListingRows:
    """Reads and writes the rows of folders."""

    def __init__(self, client: At) -> None:
        self.client = client
        self._refused: set[str] = set()

    async def load(self, folder: str, headers: Mapping[str, str | None]) -> dict[str, Row]:
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
            rows = await self._read(path, headers[path])
        except FileNotFoundError:
            return {}  # replaced or deleted while it was read
        except (OSError, ValueError) as error:
            logger.warning("%s: every header is read, because the rows of the folder cannot be: %s", path, error)
            return {}
        prefix = path.removesuffix(names.LISTING_NAME)
        return {one: row for name, row in rows.items() if headers.get(one := prefix + name) == row.token}

    async def _read(self, path: str, token: str | None) -> dict[str, Row]:
        loaded = self.client.headers.by_token(path, token) or await self.client.headers.load(path)
        header = loaded.header
        if header is None or not is_ours(header):
            return {}
        if header.size > TEXT_BYTES_MAX:
            raise ValueError(f"they have {header.size} bytes, but at most {TEXT_BYTES_MAX} are allowed")
        data = await self.client.fetcher.read(loaded, header.start, header.length)
        return parse_rows(bytes(data)) if data else {}

    async def keep(self, folder: str, rows: Iterable[Row], read: Mapping[str, Segment], new_max: int) -> None:
        """Write the rows of a folder, if enough of them are new.

        Parameters
        ----------
        rows
            Valid rows of the listing.
        read
            The headers without a row that counts, by segment.
        new_max
            With no more new rows than this, the segment stays as it is.
        """
        path = names.listing_path(folder)
        if not self.client.backend.capability.can_write or folder in self._refused:
            return
        new = [row for segment, loaded in read.items() if (row := _new_row(segment, loaded)) is not None]
        if len(new) <= new_max:
            return
        try:
            await self._replace(path, format_rows([*rows, *new]))
        except (FileExistsError, FileNotFoundError) as error:
            logger.debug("%s: the rows of the folder are not written, another client was first: %s", path, error)
        except OSError as error:
            if len(self._refused) < FOLDERS_REFUSED_MAX:
                self._refused.add(folder)
            logger.info("%s: the rows of the folder are not written, so listings read the headers: %s", path, error)

    async def _replace(self, path: str, data: bytes) -> None:
        """Replace the present rows; the first of several clients wins.

        Raises
        ------
        FileExistsError, FileNotFoundError
            Another client was first, or a user's file has this name.
        """
        header = (await self.client.headers.load(path)).header
        if header is None or header.deleted:
            header = await create(self.client, path, POLICY)
            # from here to the overwrite it has no mark: after a crash it stays as it is, without rows
        elif not is_ours(header) and not _is_begun(header):
            raise FileExistsError(f"{path}: a segment that does not hold rows has this name")
        await overwrite(self.client, path, data, attrs={MARK[0]: MARK[1]}, guard=Guard(header.segment))

    async def remove(self, folder: str) -> None:
        """Delete the rows of a folder, if there are any."""
        from rollingfs.segment.verbs.delete import delete

        path = names.listing_path(folder)
        with contextlib.suppress(FileNotFoundError, CorruptHeaderError):
            header = (await self.client.headers.load(path)).header
            if header is not None and (is_ours(header) or _is_begun(header)):
                await delete(self.client, path, Guard(header.segment))


def _new_row(segment: str, loaded: Segment) -> Row | None:
    if loaded.header is None or loaded.token is None or names.is_hidden_segment(segment):
        return None
    return row_of(segment.rpartition("/")[2], loaded.header, loaded.token)


def _is_begun(header: Header) -> bool:
    """Return whether this is the empty segment that a client made before it died."""
    return header.length == 0 and header.policy == POLICY and not header.attrs
