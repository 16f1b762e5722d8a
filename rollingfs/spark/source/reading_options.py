"""The options that say which part of segments a query reads, and what a stream keeps of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rollingfs.policy import parse_seconds
from rollingfs.spark.source.positions import EARLIEST, LATEST, Position, parse_position

NAMES = {
    "startingoffsets": "startingOffsets",
    "startingoffset": "startingOffset",
    "endingoffsets": "endingOffsets",
    "pollinterval": "pollInterval",
    "subscriber": "subscriber",
    "offsetslocation": "offsetsLocation",
    "includemetadata": "includeMetadata",
    "partitioncolumns": "partitionColumns",
    "basepath": "basePath",
}
"""The options, by their names in lower case. `startingOffset` is the name of `startingOffsets` in release 0.1.0."""
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
    if "startingoffset" in given and "startingoffsets" in given:
        raise ValueError("startingOffset is the old name of option startingOffsets: give one of them")
    starting = given.get("startingoffsets", given.get("startingoffset", EARLIEST))
    ending = parse_position("endingOffsets", given["endingoffsets"]) if "endingoffsets" in given else None
    if ending is not None and ending.name == EARLIEST:
        raise ValueError("option endingOffsets is 'earliest': the read would be empty")
    subscriber = given.get("subscriber")
    if subscriber is not None and not subscriber:
        raise ValueError("option subscriber is empty: it must be a name")
    return ReadingOptions(
        parse_position("startingOffsets", starting),
        ending,
        _poll_s(given["pollinterval"]) if "pollinterval" in given else POLL_S,
        subscriber,
        given.get("offsetslocation"),
        _truth(given, "includemetadata", "false"),
        _truth(given, "partitioncolumns", "true"),
        given.get("basepath"),
    )


def _truth(given: Mapping[str, str], key: str, default: str) -> bool:
    text = given.get(key, default).lower()
    if text not in _TRUTHS:
        raise ValueError(f"option {NAMES[key]} is {text!r}: it must be one of true, false")
    return _TRUTHS[text]


def _poll_s(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ValueError(f"option pollInterval: {error}") from error
