"""Checks of arguments: refuse a value of a wrong kind before anything is done."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from typing import Any

from rollingfs.policy import RollingPolicy

NOTHING = "nothing was written"
Attrs = Mapping[str, str | None] | None
"""Attributes of a segment; None as a value removes the attribute, or asserts that it is not there."""
CREATE = "create"
OVERWRITE = "overwrite"
WRITE_MODES = ("wb", "xb", "ab")
"""Of `open`."""


def check_attrs(path: str, attrs: Mapping[str, Any] | None, name: str = "attrs") -> None:
    """Refuse attributes that are neither text nor None.

    Raises
    ------
    TypeError, ValueError
        With the key.
    """
    if attrs is None:
        return
    if not isinstance(attrs, Mapping):
        raise TypeError(f"{path}: {name} is {attrs!r}: it must be a dictionary, as {{'batch': '1'}}; {NOTHING}")
    key: Any
    for key, value in attrs.items():
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
            raise ValueError(f"{path}: {key!r}={value!r} in {name} is not valid Unicode; {NOTHING}") from error


def check_switches(**given: Any) -> None:
    """Refuse a value that is neither True nor False: text like ``"no"`` would count as True.

    Raises
    ------
    TypeError
        With the option's name.
    """
    for name, value in given.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}: it must be true or false")


def local_path(**given: Any) -> str:
    """The local path that is the value of an option.

    Raises
    ------
    TypeError, ValueError
        With the option's name.
    """
    [(name, value)] = given.items()
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} is {value!r}: it must be the path of a local file or folder, or a truth")
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "://" in path:
        raise ValueError(f"{name} is {value!r}: it must be the path of a local file or folder, or a truth")
    return os.path.expanduser(path)


def check_seconds(**given: Any) -> None:
    """Refuse a value that is not a number of at least 0 seconds.

    Raises
    ------
    TypeError, ValueError
        With the option's name.
    """
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}: it must be a number of seconds")
        if not value >= 0:
            raise ValueError(f"{name} is {value!r}: it must be at least 0 seconds")


def check_offset(path: str, offset: Any, name: str = "offset") -> None:
    """Refuse an offset that is not a whole number.

    Raises
    ------
    TypeError
        It is not.
    """
    try:
        operator.index(offset)
    except TypeError as error:
        raise TypeError(f"{path}: {name} is {offset!r}: it must be a whole number of bytes; {NOTHING}") from error


def check_policy(path: str, policy: Any) -> None:
    """Refuse a value that is not a policy.

    Raises
    ------
    TypeError
        It is not.
    """
    if not isinstance(policy, RollingPolicy | None):
        raise TypeError(
            f"{path}: the policy is {policy!r}: it must be a RollingPolicy, as RollingPolicy(max_bytes='1MiB'); "
            f"{NOTHING}"
        )


def creates_only(mode: str, path: str) -> bool:
    """Whether a mode of `pipe_file` or `put_file` refuses to replace an existing file.

    Raises
    ------
    ValueError
        There is no such mode.
    """
    if mode not in (CREATE, OVERWRITE):
        raise ValueError(f"{path}: mode {mode!r} must be {OVERWRITE!r} or {CREATE!r}; nothing was written")
    return mode == CREATE
