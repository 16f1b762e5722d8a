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
from rollingfs.format.header import Entry
from rollingfs.format.transitions import live
from rollingfs.segment.at import At
from rollingfs.segment.commit.index_pages import read_map
from rollingfs.segment.files.rewrite_plan import Asked, Chosen
from rollingfs.segment.files.state import Outlook, SegmentState
from rollingfs.segment.segment import Segment
from rollingfs.stream.blocks import mover_of
from rollingfs.stream.ledger import Ledgers, policies_of


async def states_below(
    listings: Listings, ledgers: Ledgers, path: str, depth_max: int | None, chosen: Chosen
) -> list[SegmentState]:
    """Return the states at or below a path, sorted by path, with unreadable segments.

    A listing with tokens spares the read of known headers.

    Parameters
    ----------
    ledgers
        The policies of folders as the last look found them.

    Raises
    ------
    FileNotFoundError
        No segment, file or folder has this name.
    PermissionError
        The folder cannot be listed.
    """
    client = listings.client
    scans = await listings.tree(path, depth_max, on_error=REPORT)
    views = [view for scan in scans.values() for view in scan.listed.values()]
    failed = {one: error for scan in scans.values() for one, error in scan.errors.items()}
    failed |= {f"{scan.path}/": scan.error for scan in scans.values() if scan.error is not None}
    if not scans:
        views = [await client.headers.view(path, fresh=True)]
    if client.backend.tiers:
        tree = tree_of(scans)
        await ledgers.renew(tree if scans else replace(tree, segments=frozenset([path])))
    found = await listings.gather([partial(_state, client, ledgers, view, chosen) for view in views])
    return sorted([*found, *(SegmentState.unreadable(*one) for one in failed.items())], key=lambda one: one.path)


async def _state(client: At, ledgers: Ledgers, view: Segment, chosen: Chosen) -> SegmentState:
    if view.header is None:
        assert view.plain is not None
        return SegmentState.of_plain(view.path, view.size, view.plain.modified)

    async def read(loaded: Segment) -> SegmentState:
        header = live(loaded.header, view.path)
        chunks, entries = [], list[Entry](header.entries)
        if header.tiers or client.backend.tiers or chosen != Chosen():
            listed = await client.pages.unfold(view.path, header.entries)
            chunks = [chunk for chunk in listed if chunk.end > header.start]
            entries = list[Entry](chunks)
        count, now_ms = await client.pages.count(view.path, header), client.now_ms()
        ledger = ledgers.by_folder.get(names.parent(view.path))
        offload = None if ledger is None else policies_of(view.path, header, ledger, client.offload_policy).offload
        asked = Asked.by(offload)
        mover, stores = None if asked is None else mover_of(asked), ("", *client.backend.tiers)
        state = SegmentState.of(view.path, header, chunks, count, chosen, now_ms)
        return replace(state, outlook=Outlook.of(header, entries, now_ms, stores, mover))

    try:
        return await read_map(client.headers, view.path, read, view)
    except (FileNotFoundError, CorruptHeaderError, ConflictError) as error:
        return SegmentState.unreadable(view.path, error)
