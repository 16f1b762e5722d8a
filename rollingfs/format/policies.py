"""Changes of the policies of a segment or folder, and the text of a folder's rolling policy. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rollingfs.format.header import Header
from rollingfs.format.tokens import read_json
from rollingfs.policy import KEEP, ROLLING_FIELDS, Keep, OffloadPolicy, RollingPolicy
from rollingfs.runtime.values import value_class

ROLLING_ATTR = "rollingfs.rolling"
"""The attribute of the memory of a stream that has the folder's fields of the rolling policy."""

Fields = Mapping[str, Any]
"""Some fields of a rolling policy, by name."""


def format_rolling(fields: Fields) -> str:
    """Return the fields of a folder as the value of `ROLLING_ATTR`."""
    return json.dumps(dict(fields), sort_keys=True, separators=(",", ":"))


def parse_rolling(text: str) -> dict[str, Any]:
    """Return the inverse of `format_rolling`.

    Raises
    ------
    ValueError
        It is not a text of such fields.
    """
    try:
        found = read_json(text)
        if isinstance(found, dict) and found.keys() <= {*ROLLING_FIELDS}:
            return checked(found)
    except ArithmeticError as error:
        raise ValueError(f"{text[:80]!r}: a number has too many digits") from error
    raise ValueError(f"{text[:80]!r} does not map some of {', '.join(ROLLING_FIELDS)}")


def checked(fields: Fields) -> dict[str, Any]:
    """Return the fields with their values in bytes and seconds.

    Raises
    ------
    ValueError, TypeError
        A value is outside its range.
    """
    policy = RollingPolicy(**fields)
    return {name: getattr(policy, name) for name in fields}


@value_class
class PolicyChange:
    """The fields of a segment's policies that change; the others stay as they are.

    Parameters
    ----------
    offload
        None to remove the segment's own offload policy.
    max_age
        None for never.
    inherit
        The names of fields that are no longer the segment's own.
    base
        The policy that they are inherited from.
    """

    offload: OffloadPolicy | Keep | None = KEEP
    max_bytes: int | str | None = None
    max_age: float | str | Keep | None = KEEP
    inline_bytes: int | str | None = None
    consolidate: bool | None = None
    inherit: tuple[str, ...] = ()
    base: RollingPolicy = RollingPolicy()

    def __post_init__(self) -> None:
        unknown = [name for name in self.inherit if name not in ROLLING_FIELDS or name in self.given]
        if unknown:
            known = ", ".join(ROLLING_FIELDS)
            raise ValueError(f"inherit names {', '.join(unknown)}: it takes some of {known} that are not given as well")

    @property
    def given(self) -> dict[str, Any]:
        """Return the fields of the rolling policy that are given."""
        fields = {"max_bytes": self.max_bytes, "inline_bytes": self.inline_bytes, "consolidate": self.consolidate}
        age = {} if self.max_age is KEEP else {"max_age": self.max_age}
        return age | {name: value for name, value in fields.items() if value is not None}

    @property
    def changes_nothing(self) -> bool:
        return self.offload is KEEP and not self.given and not self.inherit

    def of_folder(self, fields: Fields) -> dict[str, Any]:
        """Return a folder's fields of the rolling policy with the change.

        Raises
        ------
        ValueError
            A value is outside its range.
        """
        return checked({name: value for name, value in {**fields, **self.given}.items() if name not in self.inherit})

    def of(self, header: Header) -> Header:
        """Return the header with the change, or the header itself without a change.

        Raises
        ------
        ValueError
            A value is outside its range.
        """
        offload = header.offload if self.offload is KEEP else self.offload
        offload = offload if offload is not None and offload.as_fields() else None
        changed = replace(header, policy=self.rolling(header.policy), offload=offload)
        return header if changed == header and changed.policy.own == header.policy.own else changed

    def rolling(self, policy: RollingPolicy) -> RollingPolicy:
        """Return the rolling policy with the change.

        Raises
        ------
        ValueError
            A value is outside its range.
        """
        inherited = {name: getattr(self.base, name) for name in self.inherit}
        own = (policy.own | self.given.keys()).difference(self.inherit)
        return RollingPolicy(**{**policy.as_fields(), **inherited, **self.given}, own=own)
