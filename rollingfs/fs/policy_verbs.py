"""The verbs that show and set the policies of segments and folders, as coroutines of the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rollingfs.backend.tiers import check_tier
from rollingfs.client import Client
from rollingfs.folders.listing import Listings
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.format.policies import PolicyChange
from rollingfs.format.transitions import Guard
from rollingfs.fs.segment_verbs import SegmentVerbs
from rollingfs.policy import KEEP, Keep, OffloadPolicy
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.offload_policy import Policies, check_policy, policies_of
from rollingfs.write.policies import set_policies


class PolicyVerbs:
    """Shows and sets policies, over paths as callers write them.

    Parameters
    ----------
    to_write
        Makes the backend's path of a segment that is to be changed.
    """

    def __init__(self, client: Client, to_write: Callable[[str], str]) -> None:
        self.client = client
        self.to_write = to_write

    def committed(self, target: str) -> str:
        """The segment to which a verb with this first argument commits."""
        return self.to_write(target)

    async def set_policy(
        self,
        path: str,
        offload: OffloadPolicy | Keep | None = KEEP,
        *,
        max_bytes: int | str | None = None,
        max_age: float | str | Keep | None = KEEP,
        inline_bytes: int | str | None = None,
    ) -> None:
        """Change the policies of a live segment, or the offload policy of a folder; what is not given stays as it is.

        Chunks keep their size. A tail that is longer than the new policy allows becomes chunks with the next append.

        Parameters
        ----------
        path
            A segment, a plain file (which becomes one), or a folder: then `offload` counts for all segments directly in
            it that have no field of their own.
        offload
            Which chunks `Stream.offload` and ``rollingfs run`` move to a tier; None to remove the policy.
        max_bytes, inline_bytes
            As of `RollingPolicy`, for a segment.
        max_age
            The same; None for never.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        FencedError
            An exclusive owner holds the segment; nothing was written.
        UnknownTierError
            The filesystem has no such tier; nothing was written.
        ValueError
            A value is outside its range, or does not go with the retention of the folder; nothing was written.
        TypeError
            Nothing is given, or what a folder does not have.
        """
        path = self.to_write(path)
        change = _change(path, offload, max_bytes, max_age, inline_bytes)
        if await self._is_folder(path):
            if not change.is_of_offload_alone:
                raise TypeError(
                    f"{path} is a folder, and max_bytes, max_age and inline_bytes are those of a segment; nothing was "
                    "written: set them for its segments"
                )
            assert offload is None or isinstance(offload, OffloadPolicy)
            from rollingfs.stream.operations import StreamVerbs  # as in `opening`: most users open no stream

            await StreamVerbs(self.client, Listings(self.client), path).set_offload_policy(offload)
            return
        await _set(self.client, path, change)

    async def get_policy(self, path: str) -> Policies:
        """The policies of a segment or of a folder: what counts, and what each level says.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        """
        path = self.client.backend.strip(path)
        if await self._is_folder(path):
            return policies_of(path, None, await Ledgers(self.client).load(path), self.client.offload_policy)
        view = await self.client.lookup.view(path, fresh=True)
        header = view.header or Header("", 1, policy=self.client.segments.policy)
        ledger = await Ledgers(self.client).load(names.parent(path))
        return policies_of(path, header, ledger, self.client.offload_policy)

    async def _is_folder(self, path: str) -> bool:
        try:
            await self.client.lookup.view(path, fresh=True)
        except FileNotFoundError:
            if not await Listings(self.client).is_folder(path):
                raise
            return True
        return False


class HandlePolicyVerbs:
    """The same for a handle on a segment, which is bound to its incarnation, and may hold it exclusively.

    Parameters
    ----------
    verbs
        The other verbs of the handle.
    """

    def __init__(self, client: Client, verbs: SegmentVerbs) -> None:
        self.client = client
        self.verbs = verbs

    def committed(self, target: object) -> str:
        """The path of the segment, with any first argument."""
        return self.verbs.path

    async def set_policy(
        self,
        offload: OffloadPolicy | Keep | None = KEEP,
        *,
        max_bytes: int | str | None = None,
        max_age: float | str | Keep | None = KEEP,
        inline_bytes: int | str | None = None,
    ) -> None:
        """Change the policies of this segment; otherwise as `fs.set_policy`."""
        path = self.verbs.path
        await _set(
            self.client, path, _change(path, offload, max_bytes, max_age, inline_bytes), guard=self.verbs.guard()
        )
        await self.verbs.refresh()


def _change(path: str, offload: Any, max_bytes: Any, max_age: Any, inline_bytes: Any) -> PolicyChange:
    """What is to change.

    Raises
    ------
    TypeError
        Nothing is, or the offload policy is none.
    """
    if offload is not KEEP and offload is not None:
        offload = OffloadPolicy.of(offload, f"{path}: offload")
    change = PolicyChange(offload, max_bytes, max_age, inline_bytes)
    if change.changes_nothing:
        raise TypeError(f"{path}: give offload, max_bytes, max_age or inline_bytes; nothing was written")
    return change


async def _set(client: Client, path: str, change: PolicyChange, guard: Guard | None = None) -> None:
    """Commit a change of a segment, once it is known to go with its tiers and with the retention of its folder."""
    if isinstance(change.offload, OffloadPolicy):
        if names.is_ledger(path):
            raise ValueError(f"{path} is the memory of a stream, which never moves; nothing was written")
        if change.offload.tier:
            check_tier(client.backend, change.offload.tier, path)
        ledger = await Ledgers(client).load(names.parent(path))
        check_policy(
            path,
            policies_of(path, Header("", 1, offload=change.offload), ledger, client.offload_policy),
            ledger,
            "nothing was written",
        )
    await set_policies(client.segments, path, change, guard)
