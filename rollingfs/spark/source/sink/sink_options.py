"""The options of a write: messages of tasks, the policy of a new segment, routing, a transaction. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Any

from rollingfs.policy import RollingPolicy
from rollingfs.runtime.values import value_class
from rollingfs.spark.source import option
from rollingfs.spark.source.option import Option

TASK_MESSAGE_BYTES = 64 * 1024
"""Maximum bytes that a task sends to the driver in its message; a task that writes more uploads them itself."""
BATCH_MESSAGE_BYTES = 8 * 1024 * 1024
"""Maximum bytes in the messages of all tasks of a write."""

OPTIONS = (
    Option("taskMessageBytes", "task_message_bytes", option.size),
    Option("batchMessageBytes", "batch_message_bytes", option.size),
    Option("segmentBy", "segment_by", option.word),
)


def _checked(field_name: str, text: str) -> str:
    """The text of a part of the policy, after a look at it."""
    given: dict[str, Any] = {field_name: text}
    RollingPolicy(**given)
    return text


POLICY = tuple(
    Option(name, field_name, option.by(partial(_checked, field_name)))
    for name, field_name in (("maxBytes", "max_bytes"), ("inlineBytes", "inline_bytes"), ("maxAge", "max_age"))
)
NAMES = option.named([*OPTIONS, *POLICY]) | {"txnappid": "txnAppId", "txnversion": "txnVersion"}
"""The options of a write, by their names in lower case."""


@value_class
class Transaction:
    """A write that takes effect once, however often it is repeated."""

    app: str
    """Who counts."""
    version: int
    """The number of the write; it grows from one write to the next."""


@value_class
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
    return SinkOptions(
        **option.values(OPTIONS, given), policy=option.values(POLICY, given), transaction=_transaction(given)
    )


def _transaction(given: Mapping[str, str]) -> Transaction | None:
    app, version = given.get("txnappid"), given.get("txnversion")
    if app is None and version is None:
        return None
    if not app or version is None or not (version.isascii() and version.isdigit()):
        raise ValueError(
            f"options txnAppId and txnVersion are {app!r} and {version!r}: give both, a name and a whole number"
        )
    return Transaction(app, int(version))
