"""The options that say which part of segments a query reads, and what a stream keeps of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from rollingfs.runtime.values import value_class
from rollingfs.spark.source import option
from rollingfs.spark.source.option import Option
from rollingfs.spark.source.positions import EARLIEST, LATEST, Position, parse_position

OPTIONS = (
    Option("startingOffsets", "starting", parse_position),
    Option("endingOffsets", "ending", parse_position),
    Option("pollInterval", "poll_s", option.time_s),
    Option("maxRecordsPerTrigger", "trigger_records_max", option.count),
    Option("minBytesPerTrigger", "trigger_bytes_min", option.size),
    Option("maxTriggerDelay", "delay_s", option.time_s),
    Option("subscriber", "subscriber", option.word),
    Option("includeMetadata", "has_metadata", option.truth),
    Option("partitionColumns", "has_folder_columns", option.truth),
    Option("basePath", "base_path", option.word),
)
DELAY_S_DEFAULT = 900.0
POLL_S = 1.0
"""Spark asks a stream a hundred times a second; each look at the store costs requests."""


@value_class
class ReadingOptions:
    """What to read, checked."""

    starting: Position = field(default_factory=lambda: Position(EARLIEST))
    ending: Position | None = None
    """Where a batch ends; None: at the present ends."""
    poll_s: float = POLL_S
    """Seconds between two looks of a stream at the store."""
    subscriber: str | None = None
    """The name under which a stream publishes how far it has read."""
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
        if self.subscriber is not None:
            raise ValueError("option subscriber is for streams: a batch read remembers nothing")

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
    found = ReadingOptions(**option.values(OPTIONS, given))
    if found.ending is not None and found.ending.name == EARLIEST:
        raise ValueError("option endingOffsets is 'earliest': the read would be empty")
    return found
