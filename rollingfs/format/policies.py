"""How the policies of a live segment change. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rollingfs.format.header import Header
from rollingfs.policy import KEEP, Keep, OffloadPolicy, RollingPolicy


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """The fields of a segment's policies that change; the others stay as they are.

    Parameters
    ----------
    offload
        None to remove the segment's own offload policy.
    max_age
        None for never.
    """

    offload: OffloadPolicy | Keep | None = KEEP
    max_bytes: int | str | None = None
    max_age: float | str | Keep | None = KEEP
    inline_bytes: int | str | None = None
    consolidate: bool | None = None

    @property
    def is_of_offload_alone(self) -> bool:
        """Whether nothing else changes."""
        rolling = (self.max_bytes, self.inline_bytes, self.consolidate)
        return self.max_age is KEEP and all(value is None for value in rolling)

    @property
    def changes_nothing(self) -> bool:
        return self.offload is KEEP and self.is_of_offload_alone

    def of(self, header: Header) -> Header:
        """The header with the change; the header itself if it says all of this already.

        Raises
        ------
        ValueError
            A value is outside its range.
        """
        offload = header.offload if self.offload is KEEP else self.offload
        changed = replace(header, policy=self.rolling(header.policy), offload=_or_none(offload))
        return header if changed == header else changed

    def rolling(self, policy: RollingPolicy) -> RollingPolicy:
        """The rolling policy with the change.

        Raises
        ------
        ValueError
            A value is outside its range.
        """
        return RollingPolicy(
            policy.max_bytes if self.max_bytes is None else self.max_bytes,
            policy.max_age if self.max_age is KEEP else self.max_age,
            policy.inline_bytes if self.inline_bytes is None else self.inline_bytes,
            policy.consolidate if self.consolidate is None else self.consolidate,
        )


def _or_none(policy: OffloadPolicy | None) -> OffloadPolicy | None:
    """A policy that says something."""
    return policy if policy is not None and policy.as_fields() else None
