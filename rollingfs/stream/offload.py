"""Offload of a stream: which chunks of its segments move to a tier, in keeping with its retention."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from rollingfs.maintenance.offload import Chosen, Offloaded, Offloader
from rollingfs.read.snapshot import Snapshot
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.members import Members
from rollingfs.stream.retention import BY_SIZE

logger = logging.getLogger("rollingfs")

SEGMENTS_AT_ONCE_MAX = 4


@dataclass(frozen=True, slots=True)
class StreamOffloaded:
    """What an offload of a stream moved."""

    moved: Mapping[str, Offloaded] = field(default_factory=dict)
    """By the path of each segment of which something moved."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By path, why segments were left as they are."""


def check_retention(path: str, chosen: Chosen, lag_s: float, ledger: Ledger) -> None:
    """Refuse an offload that the retention of a stream makes pointless, or that would undo it. Pure.

    Raises
    ------
    ValueError
        The old files would outlive what retention keeps, or retention trims before anything is offloaded. The message
        has both numbers.
    """
    retention = ledger.retention
    if retention is None:
        return
    unread = math.inf if ledger.subscribers else retention.min
    kept = retention.max if retention.max is not None else unread
    if retention.by == BY_SIZE:
        if chosen.after_bytes is not None and chosen.after_bytes >= kept:
            raise ValueError(
                f"{path}: offload begins {chosen.after_bytes} bytes before the end, but the retention of the stream "
                f"keeps only {kept:.0f} bytes, so nothing would ever be offloaded; nothing was moved"
            )
        return
    if lag_s > kept:
        raise ValueError(
            f"{path}: deletion_lag is {lag_s:.0f} s, but the retention of the stream keeps bytes for {kept:.0f} s: the "
            "old files would outlive them; nothing was moved, give a shorter deletion_lag"
        )
    if chosen.after_age_s is not None and chosen.after_age_s >= kept:
        raise ValueError(
            f"{path}: offload begins after {chosen.after_age_s:.0f} s, but the retention of the stream keeps bytes for "
            f"{kept:.0f} s, so nothing would ever be offloaded; nothing was moved"
        )


async def offload_stream(
    members: Members, ledgers: Ledgers, tier: str, chosen: Chosen, lag_s: float
) -> StreamOffloaded:
    """Offload every segment of a stream; plain files stay as they are.

    Raises
    ------
    ValueError
        The retention of the stream forbids it.
    UnknownTierError
        The filesystem has no such tier.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    """
    check_retention(members.path, chosen, lag_s, await ledgers.load(members.path))
    found = await members.find()
    members.warn(found.unreadable)
    offloader = Offloader(members.client.committer)
    moved: dict[str, Offloaded] = {}
    failed = members.reasons(found.unreadable)

    async def one(view: Snapshot) -> None:
        assert view.header is not None
        try:
            did = await offloader.offload(view.path, tier, chosen, segment=view.header.segment, lag_s=lag_s)
        except FileNotFoundError:
            return  # it was deleted or replaced meanwhile
        except OSError as error:
            if not members.is_reported(error):
                raise
            logger.warning("%s is not offloaded: %s", view.path, error)
            failed[view.path] = str(error)
            return
        if did.files:
            moved[view.path] = did

    views = [view for view in found.views.values() if view.header is not None]
    await members.client.runtime.gather([partial(one, view) for view in views], SEGMENTS_AT_ONCE_MAX)
    return StreamOffloaded(dict(sorted(moved.items())), dict(sorted(failed.items())))
