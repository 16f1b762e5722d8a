"""Reads the folders in tiers that are parallel to a chunk folder, for its survey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollingfs.backend.contract import Backend, FileInfo, Listing
from rollingfs.backend.tiers import check_aliases
from rollingfs.backend.values import PendingUpload
from rollingfs.format import names
from rollingfs.format.header import Tier
from rollingfs.runtime.values import value_class


@value_class
class TierFiles:
    """What lies in a folder's tiers; all dates are by the clock of the hot store."""

    files: tuple[FileInfo, ...]
    """The segment's own chunks, and what interrupted writes have left."""
    uploads: tuple[PendingUpload, ...]
    now: float | None
    """The clock of the hot store, seconds since 1970, if an age is to be judged."""


class TierSurveyor:
    """Looks at folders in tiers."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def look(self, folder: str, tiers: Sequence[Tier], now: float | None) -> TierFiles:
        """List the parallel folders of a chunk folder; they look empty where a tier is not there.

        Parameters
        ----------
        tiers
            The lines of the header that owns the folder.
        now
            The clock of the hot store, if a listing has told it.

        Raises
        ------
        UnknownTierError
            A tier is not configured.
        """
        check_aliases(self.backend, tiers, folder)
        files: list[FileInfo] = []
        uploads: list[PendingUpload] = []
        for tier in tiers:
            place = names.in_tier(tier.alias, folder)
            listing = await self._list(place)
            found = [info for info in listing.entries if _is_ours(info, tier)]
            pending = [one for one in await self._uploads(place) if _is_of(one.path, tier)]
            if not found and not pending:
                continue
            now = await self.backend.now(folder) if now is None else now
            there = listing.now if listing.now is not None else await self.backend.now(place)
            shift_s = now - there if there else 0.0  # without dates, nothing there is ever old
            files += [replace(info, modified=info.modified + shift_s) for info in found]
            uploads += [replace(one, began=one.began + shift_s) for one in pending]
        return TierFiles(tuple(files), tuple(uploads), now)

    async def _list(self, place: str) -> Listing:
        try:
            return await self.backend.list(place)
        except FileNotFoundError:
            return Listing(())

    async def _uploads(self, place: str) -> Sequence[PendingUpload]:
        try:
            return await self.backend.list_uploads(place)
        except PermissionError:
            return ()  # as in the hot store: the store's own rule ends them


def _is_ours(info: FileInfo, tier: Tier) -> bool:
    name = info.path.rpartition("/")[2]
    return not info.is_folder and (_is_of(info.path, tier) or name.startswith(names.TEMPORARY_PREFIX))


def _is_of(path: str, tier: Tier) -> bool:
    """Whether a file has the key of the segment's tier; another hot store may have the same root by mistake."""
    return names.key_of(path.rpartition("/")[2]) == tier.key
