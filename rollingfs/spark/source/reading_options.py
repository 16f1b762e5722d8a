"""The options that say which part of segments a query reads, and what a stream keeps of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rollingfs.policy import parse_bytes, parse_seconds
from rollingfs.spark.source.positions import EARLIEST, LATEST, Position, parse_position

NAMES = {
    "startingoffsets": "startingOffsets",
    "endingoffsets": "endingOffsets",
    "pollinterval": "pollInterval",
    "maxrecordspertrigger": "maxRecordsPerTrigger",
    "minbytespertrigger": "minBytesPerTrigger",
    "maxtriggerdelay": "maxTriggerDelay",
    "subscriber": "subscriber",
    "offsetslocation": "offsetsLocation",
    "includemetadata": "includeMetadata",
    "partitioncolumns": "partitionColumns",
    "basepath": "basePath",
}
"""The options, by their names in lower case."""
T = TypeVar("T")

DELAY_S_DEFAULT = 900.0
_TRUTHS = {"true": True, "false": False}
POLL_S = 1.0
"""Spark asks a stream a hundred times a second; each look at the store costs requests."""


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """What to read, checked."""

    starting: Position = field(default_factory=lambda: Position(EARLIEST))
    ending: Position | None = None
    """Where a batch ends; None: at the present ends."""
    poll_s: float = POLL_S
    """Seconds between two looks of a stream at the store."""
    subscriber: str | None = None
    """The name under which a stream publishes how far it has read."""
    offsets_location: str | None = None
    """The URL of the folder that keeps bases of a stream's offsets."""
    has_metadata: bool = False
    """Whether rows have the columns `_offset`, `_segment` and `_commit_time`."""
    has_folder_columns: bool = True
    """Whether folders like ``day=2026-11-21`` are columns."""
    base_path: str | None = None
    """The URL of the folder below which folders are columns; None: what the query names."""
    trigger_records_max: int | None = None
    """Maximum number of records of a batch of a stream."""
    trigger_bytes_min: int | None = None
    """Bytes that a stream waits for, at most `delay_s`, before it makes a batch."""
    delay_s: float = DELAY_S_DEFAULT

    def check_batch(self) -> None:
        """Refuse options of streams in a batch read.

        Raises
        ------
        ValueError
            An option has no meaning there.
        """
        if self.starting.name == LATEST:
            raise ValueError("option startingOffsets is 'latest': a batch read would be empty; streams begin there")
        for name, value in (("subscriber", self.subscriber), ("offsetsLocation", self.offsets_location)):
            if value is not None:
                raise ValueError(f"option {name} is for streams: a batch read remembers nothing")

    def check_stream(self) -> None:
        """Refuse options of batch reads in a stream.

        Raises
        ------
        ValueError
            An option has no meaning there.
        """
        if self.ending is not None:
            raise ValueError(
                "option endingOffsets is for batch reads: a stream has no end; read with spark.read, "
                "or stop at the present ends with Trigger.AvailableNow"
            )


def parse_reading(given: Mapping[str, str]) -> ReadingOptions:
    """Check the options that Spark hands over, with their names in lower case.

    Raises
    ------
    ValueError
        A value is impossible; the message names the option.
    """
    starting = given.get("startingoffsets", EARLIEST)
    ending = parse_position("endingOffsets", given["endingoffsets"]) if "endingoffsets" in given else None
    if ending is not None and ending.name == EARLIEST:
        raise ValueError("option endingOffsets is 'earliest': the read would be empty")
    subscriber = given.get("subscriber")
    if subscriber is not None and not subscriber:
        raise ValueError("option subscriber is empty: it must be a name")
    least, delay_s = given.get("minbytespertrigger"), _seconds("maxTriggerDelay", given.get("maxtriggerdelay"))
    return ReadingOptions(
        parse_position("startingOffsets", starting),
        ending,
        _poll_s(given),
        subscriber,
        given.get("offsetslocation"),
        _truth(given, "includemetadata", "false"),
        _truth(given, "partitioncolumns", "true"),
        given.get("basepath"),
        _count(given.get("maxrecordspertrigger")),
        None if least is None else _parsed("minBytesPerTrigger", parse_bytes, least),
        DELAY_S_DEFAULT if delay_s is None else delay_s,
    )


def _truth(given: Mapping[str, str], key: str, default: str) -> bool:
    text = given.get(key, default).lower()
    if text not in _TRUTHS:
        raise ValueError(f"option {NAMES[key]} is {text!r}: it must be one of true, false")
    return _TRUTHS[text]


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise ValueError(f"option maxRecordsPerTrigger is {text!r}: it must be a number of records, at least 1")
    return int(text)


def _poll_s(given: Mapping[str, str]) -> float:
    seconds = _seconds("pollInterval", given.get("pollinterval"))
    return POLL_S if seconds is None else seconds


def _seconds(option: str, text: str | None) -> float | None:
    return None if text is None else _parsed(option, parse_seconds, text)


def _parsed(option: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"option {option}: {error}") from error
