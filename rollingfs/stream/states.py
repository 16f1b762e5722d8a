"""The states of all segments below a folder: a listing for each folder, and a read of each header that is new.

Where the client has tiers, the policies of the folders are read too: below by the listing, and above once
in `POLICIES_S_MAX`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rollingfs.errors import ConflictError, CorruptHeaderError
from rollingfs.folders.collect_tree import tree_of
from rollingfs.folders.listing import REPORT, Listings
from rollingfs.format import names
from rollingfs.format.header import Entry, Header
from rollingfs.format.transitions import live
from rollingfs.segment.at import At
from rollingfs.segment.commit.index_pages import read_map
from rollingfs.segment.files.rewrite_plan import Asked, Chosen, Plan
from rollingfs.segment.files.state import Outlook, SegmentState
from rollingfs.segment.segment import Segment
from rollingfs.stream.blocks import mover_of
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.offload_policy import policies_of


class States:
    """Looks at segments. A store's listing with tokens spares the read of headers that are known."""

    def __init__(self, client: At, listings: Listings) -> None:
        self.client = client
        self.listings = listings
        self._ledgers = Ledgers(client)

    async def below(self, path: str, depth_max: int | None, chosen: Chosen) -> list[SegmentState]:
        """Return the states at or below a path, sorted by path, with unreadable segments.

        Raises
        ------
        FileNotFoundError
            No segment, file or folder has this name.
        PermissionError
            The folder cannot be listed.
        """
        scans = await self.listings.tree(path, depth_max, on_error=REPORT)
        views = [view for scan in scans.values() for view in scan.listed.values()]
        failed = {one: error for scan in scans.values() for one, error in scan.errors.items()}
        failed |= {f"{scan.path}/": scan.error for scan in scans.values() if scan.error is not None}
        if not scans:
            views = [await self.client.headers.view(path, fresh=True)]
        if self.client.backend.tiers:
            tree = tree_of(scans)
            await self._ledgers.renew(tree if scans else replace(tree, segments=frozenset([path])))
        found = await self.listings.gather([partial(self._state, view, chosen) for view in views])
        return sorted([*found, *(SegmentState.unreadable(*one) for one in failed.items())], key=lambda one: one.path)

    async def _state(self, view: Segment, chosen: Chosen) -> SegmentState:
        if view.header is None:
            assert view.plain is not None
            return SegmentState.of_plain(view.path, view.size, view.plain.modified)
        read, loaded = partial(self._read, view.path, chosen), view
        try:
            return await read_map(self.client.headers, view.path, read, loaded)
        except (FileNotFoundError, CorruptHeaderError, ConflictError) as error:
            return SegmentState.unreadable(view.path, error)

    async def _read(self, path: str, chosen: Chosen, loaded: Segment) -> SegmentState:
        header = live(loaded.header, path)
        chunks, entries = [], list[Entry](header.entries)
        if header.tiers or self.client.backend.tiers or chosen != Chosen():
            listed = await self.client.pages.unfold(path, header.entries)
            chunks = [chunk for chunk in listed if chunk.end > header.start]
            entries = list[Entry](chunks)
        count, now_ms = await self.client.pages.count(path, header), self.client.now_ms()
        mover, stores = self._mover(path, header), ("", *self.client.backend.tiers)
        state = SegmentState.of(path, header, chunks, count, chosen, now_ms)
        return replace(state, outlook=Outlook.of(header, entries, now_ms, stores, mover))

    def _mover(self, path: str, header: Header) -> Plan | None:
        ledger = self._ledgers.by_folder.get(names.parent(path))
        if ledger is None:
            return None
        asked = Asked.by(policies_of(path, header, ledger, self.client.offload_policy).offload)
        return None if asked is None else mover_of(asked)
