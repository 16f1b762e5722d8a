"""What callers give, looked at before anything is done: what is of a wrong kind is refused with path and value."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from rollingfs.policy import RollingPolicy
from rollingfs.transitions import Guard

NOTHING = "nothing was written"


def check_attrs(path: str, attrs: Mapping[str, Any] | None, name: str = "attrs") -> None:
    """Refuse attributes that are neither text nor None.

    Raises
    ------
    TypeError, ValueError
        With the key.
    """
    key: Any
    for key, value in (attrs or {}).items():
        if not isinstance(key, str):
            raise TypeError(f"{path}: the key {key!r} in {name} must be str, not {type(key).__name__}; {NOTHING}")
        if value is not None and not isinstance(value, str):
            raise TypeError(
                f"{path}: the value of {key!r} in {name} must be str, not {type(value).__name__}: "
                f"give {str(value)!r} for {value!r}; {NOTHING}"
            )
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{path}: {key!r}={value!r} in {name} is no valid Unicode; {NOTHING}") from error


def check_offset(path: str, offset: Any, name: str = "offset") -> None:
    """Refuse an offset that is no whole number.

    Raises
    ------
    TypeError
        It is none.
    """
    try:
        operator.index(offset)
    except TypeError as error:
        raise TypeError(f"{path}: {name} is {offset!r}: it must be a whole number of bytes; {NOTHING}") from error


def check_policy(path: str, policy: Any) -> None:
    """Refuse what is no policy.

    Raises
    ------
    TypeError
        It is none.
    """
    if not isinstance(policy, RollingPolicy | None):
        raise TypeError(
            f"{path}: the policy is {policy!r}: it must be a RollingPolicy, as RollingPolicy(max_bytes='1MiB'); "
            f"{NOTHING}"
        )


def guard(
    path: str,
    expected_offset: int | None = None,
    expected_attrs: Mapping[str, str | None] | None = None,
    *,
    segment: str | None = None,
    epoch: int | None = None,
) -> Guard:
    """What an operation insists on, of the right kinds.

    Raises
    ------
    TypeError
        Something is of a wrong kind.
    """
    if expected_offset is not None:
        check_offset(path, expected_offset, "expected_offset")
    check_attrs(path, expected_attrs, "expected_attrs")
    return Guard(segment, epoch, expected_offset, expected_attrs or {})
