"""The options of a write: messages of tasks, the policy of a new segment, routing, a transaction. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollingfs.policy import RollingPolicy, parse_bytes

TASK_MESSAGE_BYTES = 64 * 1024
"""Maximum bytes that a task sends to the driver in its message; a task that writes more uploads them itself."""
BATCH_MESSAGE_BYTES = 8 * 1024 * 1024
"""Maximum bytes in the messages of all tasks of a write."""

NAMES = {
    "taskmessagebytes": "taskMessageBytes",
    "batchmessagebytes": "batchMessageBytes",
    "maxbytes": "maxBytes",
    "inlinebytes": "inlineBytes",
    "maxage": "maxAge",
    "segmentby": "segmentBy",
    "txnappid": "txnAppId",
    "txnversion": "txnVersion",
}
"""The options of a write, by their names in lower case."""
_POLICY = {"maxbytes": "max_bytes", "inlinebytes": "inline_bytes", "maxage": "max_age"}


@dataclass(frozen=True, slots=True)
class Transaction:
    """A write that takes effect once, however often it is repeated."""

    app: str
    """Who counts."""
    version: int
    """The number of the write; it grows from one write to the next."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, checked."""

    task_message_bytes: int = TASK_MESSAGE_BYTES
    batch_message_bytes: int = BATCH_MESSAGE_BYTES
    policy: Mapping[str, str] = field(default_factory=dict)
    """What is given of the policy, by the names of `RollingPolicy`."""
    segment_by: str | None = None
    """The column that names the segment of a row."""
    transaction: Transaction | None = None


def parse(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write, given by their names in lower case.

    Raises
    ------
    ValueError
        A value is impossible. The message names the option.
    """
    policy: dict[str, Any] = {_POLICY[key]: given[key] for key in _POLICY if key in given}
    for key, name in _POLICY.items():
        if name in policy:
            try:
                RollingPolicy(**{name: policy[name]})
            except ValueError as error:
                raise ValueError(f"option {NAMES[key]}: {error}") from error
    segment_by = given.get("segmentby")
    if segment_by == "":
        raise ValueError("option segmentBy is empty: it must name a column")
    return SinkOptions(
        _bytes(given, "taskmessagebytes", TASK_MESSAGE_BYTES),
        _bytes(given, "batchmessagebytes", BATCH_MESSAGE_BYTES),
        policy,
        segment_by,
        _transaction(given),
    )


def _bytes(given: Mapping[str, str], key: str, default: int) -> int:
    try:
        return parse_bytes(given.get(key, default))
    except ValueError as error:
        raise ValueError(f"option {NAMES[key]}: {error}") from error


def _transaction(given: Mapping[str, str]) -> Transaction | None:
    app, version = given.get("txnappid"), given.get("txnversion")
    if app is None and version is None:
        return None
    if not app or version is None or not (version.isascii() and version.isdigit()):
        raise ValueError(
            f"options txnAppId and txnVersion are {app!r} and {version!r}: give both, a name and a whole number"
        )
    return Transaction(app, int(version))
