"""Offload of a stream: which chunks of its segments move to a tier, in keeping with its retention."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import field
from functools import partial

from rollingfs.errors import TIER_ERRORS, worded
from rollingfs.format.header import Header
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.verbs.offload import Offloaded, offload
from rollingfs.stream.follow import Followed, fixed
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.members import Members
from rollingfs.stream.offload_policy import check_policy, check_retention, policies_of

logger = logging.getLogger("rollingfs")

SEGMENTS_AT_ONCE_MAX = 4
OF_ONE_POLICY = (ValueError, *TIER_ERRORS)
"""Errors of a policy or of its tier: the policies of other segments may still be carried out."""


@value_class
class StreamOffloaded:
    """The chunks that an offload of a stream moved."""

    moved: Mapping[str, Offloaded] = field(default_factory=dict)
    """By path; only segments that had chunks to move."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By path, why segments were left as they are."""


async def offload_by_policy(client: At, path: str, header: Header, ledger: Ledger) -> Offloaded | None:
    """Offload a segment by its policy; None if no level of it has a tier.

    Parameters
    ----------
    ledger
        The policy of the segment's folder.

    Raises
    ------
    ValueError
        The policy contradicts the retention of the folder; no chunk was moved.
    """
    policies = policies_of(path, header, ledger, client.offload_policy)
    asked = Asked.by(policies.offload)
    if asked is None:
        return None
    check_policy(path, policies, ledger, "nothing was moved")
    if asked.max_delay_s is not None:  # what fills no block yet waits, and the inline bytes move too
        return await Followed(client, path, fixed(asked)).move_all()
    return await offload(client, path, asked, known=header)


async def offload_stream(members: Members, ledgers: Ledgers, asked: Asked | None) -> StreamOffloaded:
    """Offload every segment of a stream; plain files stay as they are.

    Parameters
    ----------
    asked
        None for the policy of each segment. The failure of a policy or of its tier is then reported as that
        of a segment.

    Raises
    ------
    ValueError
        The retention of the stream forbids it; or there is no policy to decide.
    UnknownTierError
        The filesystem has no such tier.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    """
    client, ledger = members.client, await ledgers.resolved(members.path)
    check_retention(members.path, asked, ledger)
    found = await members.find(with_rows=False)
    members.warn(found.unreadable)
    headers = {view.path: view.header for view in found.snapshots.values() if view.header is not None}
    if asked is None:
        _check_any_policy(members, ledger, headers)
    moved: dict[str, Offloaded] = {}
    failed = members.reasons(found.unreadable)

    async def one(path: str, header: Header) -> None:
        try:
            if asked is None:
                did = await offload_by_policy(client, path, header, ledger)
            else:
                did = await offload(client, path, asked, known=header)
        except FileNotFoundError:
            return  # it was deleted or replaced meanwhile
        except (OSError, ValueError) as error:
            is_reported = isinstance(error, OSError) and members.is_reported(error)
            if not is_reported and (asked is not None or not isinstance(error, OF_ONE_POLICY)):
                raise
            logger.warning("%s is not offloaded: %s", path, error)
            failed[path] = str(error)
            return
        if did is not None and did.files:
            moved[path] = did

    calls = [partial(one, path, header) for path, header in headers.items()]
    await client.runtime.gather(calls, SEGMENTS_AT_ONCE_MAX)
    return StreamOffloaded(dict(sorted(moved.items())), dict(sorted(failed.items())))


def _check_any_policy(members: Members, ledger: Ledger, headers: Mapping[str, Header]) -> None:
    default = members.client.offload_policy
    if ledger.offload is None and default is None and not any(header.offload for header in headers.values()):
        raise ValueError(
            f"{members.path}: neither the segments, nor the folder, nor the filesystem has an offload policy; nothing "
            f"was moved: set one by {worded('set_policy')}, or name a tier"
        )
