"""Offload policies: which of three levels counts, and whether a policy goes with a retention. Pure: no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from rollingfs.errors import worded
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.policy import OffloadPolicy, RollingPolicy
from rollingfs.runtime.values import value_class
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.retention import RetentionPolicy


@value_class
class Policies:
    """The policies of a segment or of a folder, and where the offload policy comes from."""

    rolling: RollingPolicy | None
    """The rule by which the segment rolls to a new chunk; for a folder, of new segments in it."""
    segment: OffloadPolicy | None
    """The offload policy of the segment itself; None for a folder."""
    folder: OffloadPolicy | None
    """The policies of the segment's folder and of the folders above it, field by field."""
    filesystem: OffloadPolicy | None
    """The policy of this client."""
    retention: RetentionPolicy | None = None
    """The retention of the folder; None: everything stays."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The source of each field of ``rolling``, ``offload`` and ``retention``: ``segment``, the path of a folder, or
    ``filesystem`` (the options of the client; of a segment, of the client that made it)."""

    @property
    def offload(self) -> OffloadPolicy | None:
        """Return the policy in force: each field of the nearest level, or None."""
        found = None
        for level in (self.segment, self.folder, self.filesystem):
            if level is not None:
                found = level if found is None else found.over(level)
        return found


def policies_of(path: str, header: Header | None, ledger: Ledger, default: OffloadPolicy | None) -> Policies:
    """Return the policies of a segment, or of a folder without a header. The memory of a stream never moves.

    Parameters
    ----------
    ledger
        The ledger of the folder, resolved.
    """
    rolling, own = (None, None) if header is None else (header.policy, header.offload)
    if names.is_ledger(path):
        return Policies(rolling, None, None, None)
    return Policies(rolling, own, ledger.offload, default, ledger.retention)


def check_retention(
    path: str, asked: Asked | None, ledger: Ledger, outcome: str = "nothing was moved", *, is_policy: bool = False
) -> None:
    """Refuse an offload that the retention of a stream makes pointless, or that would undo it.

    Parameters
    ----------
    outcome
        The state after the refusal, for the message.

    Raises
    ------
    ValueError
        The old files would outlive the retention, or retention trims before an offload. The message
        has both numbers.
    """
    retention = ledger.retention
    if retention is None or asked is None:
        return
    chosen, lag_s = asked.chosen, asked.lag_s
    by = " by its policy" if is_policy else ""
    kept_bytes, kept_s = _kept(retention, is_read=not ledger.subscribers)
    if chosen.after_bytes is not None and chosen.after_bytes >= kept_bytes:
        raise ValueError(
            f"{path}: offload{by} begins {chosen.after_bytes} bytes before the end, but the retention of the "
            f"stream keeps only {kept_bytes:.0f} bytes, so nothing would ever be offloaded; {outcome}"
        )
    if lag_s > kept_s:
        raise ValueError(
            f"{path}: {worded(deletion_lag=...)}{by} is {lag_s:.0f} s, but the retention of the stream keeps "
            f"bytes for {kept_s:.0f} s: the old files would outlive them; {outcome}, give a shorter lag"
        )
    if chosen.after_age_s is not None and chosen.after_age_s >= kept_s:
        raise ValueError(
            f"{path}: offload{by} begins after {chosen.after_age_s:.0f} s, but the retention of the stream keeps bytes "
            f"for {kept_s:.0f} s, so nothing would ever be offloaded; {outcome}"
        )


def _kept(retention: RetentionPolicy, *, is_read: bool) -> tuple[float, float]:
    """Return the bytes and the seconds that a retention keeps at most, perhaps endless."""
    age_s, size = retention.max_age, retention.max_bytes
    if is_read:
        age_s, size = retention.of_read or (retention.min_age, retention.min_bytes)
    return math.inf if size is None else size, math.inf if age_s is None else age_s


def check_policy(path: str, policies: Policies, ledger: Ledger, outcome: str) -> None:
    """Refuse a policy that does not go with the retention of a stream; otherwise as `check_retention`."""
    check_retention(path, Asked.by(policies.offload), ledger, outcome, is_policy=True)
