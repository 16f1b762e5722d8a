"""The states of all segments below a folder: a listing for each folder, and a read of each header that is new."""

from __future__ import annotations

from functools import partial

from rollingfs.client import Client
from rollingfs.commit.index_pages import PageGoneError
from rollingfs.errors import CorruptHeaderError
from rollingfs.folders.listing import REPORT, Listings
from rollingfs.format.transitions import missing
from rollingfs.maintenance.offload import Chosen
from rollingfs.maintenance.state import SegmentState
from rollingfs.read.snapshot import Snapshot

LOOKS_MAX = 3
"""Maximum looks at a segment whose index pages go while they are read."""


class States:
    """Looks at segments. A store's listing that tells tokens spares the read of headers that are known."""

    def __init__(self, client: Client, listings: Listings) -> None:
        self.client = client
        self.listings = listings

    async def below(self, path: str, depth_max: int | None, chosen: Chosen) -> list[SegmentState]:
        """The states of what lies at or below a path, sorted by path; what cannot be read is among them.

        Raises
        ------
        FileNotFoundError
            There is nothing of this name.
        PermissionError
            The folder cannot be listed.
        """
        scans = await self.listings.tree(path, depth_max, on_error=REPORT)
        views = [view for scan in scans.values() for view in scan.listed.values()]
        failed = {one: error for scan in scans.values() for one, error in scan.errors.items()}
        failed |= {f"{scan.path}/": scan.error for scan in scans.values() if scan.error is not None}
        if not scans:
            views = [await self.client.lookup.view(path, fresh=True)]
        found = await self.listings.gather([partial(self._state, view, chosen) for view in views])
        return sorted([*found, *(SegmentState.unreadable(*one) for one in failed.items())], key=lambda one: one.path)

    async def _state(self, view: Snapshot, chosen: Chosen) -> SegmentState:
        for _ in range(LOOKS_MAX):
            if view.header is None:
                assert view.plain is not None
                return SegmentState.of_plain(view.path, view.size, view.plain.modified)
            header = view.header
            try:
                chunks = []
                if header.tiers or self.client.backend.tiers or chosen != Chosen():
                    listed = await self.client.pages.unfold(view.path, header.entries)
                    chunks = [chunk for chunk in listed if chunk.end > header.start]
                count = await self.client.pages.count(view.path, header)
                return SegmentState.of(view.path, header, chunks, count, chosen, self.client.store.now_ms())
            except PageGoneError:
                try:
                    view = await self.client.lookup.view(view.path, fresh=True)
                except FileNotFoundError:
                    return SegmentState.unreadable(view.path, missing(view.path))
            except CorruptHeaderError as error:
                return SegmentState.unreadable(view.path, error)
        return SegmentState.unreadable(view.path, OSError("it is changed too often to be looked at"))
