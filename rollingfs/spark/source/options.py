"""The options of ``format("rolling")``, each a field with its parser, and the URLs of segments. Pure."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from difflib import get_close_matches
from typing import Any

from rollingfs.errors import SegmentTruncatedError
from rollingfs.policy import RollingPolicy, parse_bytes, parse_seconds
from rollingfs.runtime.values import value_class
from rollingfs.spark.source import formats
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.stream.offsets import EARLIEST, LATEST, ReadPosition, parse_position

Parse = Callable[[str, str], Any]
"""Makes a value of an option's name and text, or raises a `ValueError` that names the option."""


BOTH, READ, BATCH, STREAM, WRITE = "both", "reads", "batch reads", "streams", "writes"
"""Use of an option."""


def option(name: str, parse: Parse, default: Any = None, use: str = READ) -> Any:
    """Return a field of a dataclass that takes the value of an option."""
    return field(default=default, metadata={"name": name, "parse": parse, "use": use})


def by(parse: Callable[[str], Any], least: float | None = None, unit: str = "") -> Parse:
    """Return a value as a function parses it, perhaps of a least size."""

    def checked(name: str, text: str) -> Any:
        try:
            value = parse(text)
        except ValueError as error:
            raise ValueError(f"option {name}: {error}") from error
        if least is not None and value < least:
            raise ValueError(f"option {name} is {text!r}: it must be at least {least}{unit}")
        return value

    return checked


def one_of(choices: Mapping[str, Any]) -> Parse:
    """Return the value of a word of a list, in any case."""

    def chosen(name: str, text: str) -> Any:
        if text.lower() not in choices:
            raise ValueError(f"option {name} is {text.lower()!r}: it must be one of {', '.join(choices)}")
        return choices[text.lower()]

    return chosen


def word(name: str, text: str) -> str:
    """Return a text that is not empty."""
    if not text:
        raise ValueError(f"option {name} is empty: it must be a name")
    return text


truth = one_of({"true": True, "false": False})
size, time_s, count = by(parse_bytes), by(parse_seconds), by(int, 1)
some_bytes = by(parse_bytes, 1, " byte")


logger = logging.getLogger("pyspark_rollingfs")
"""It is not below ``rollingfs``, which does not print: users look for these lines in Spark's log."""

CSV = "csv"
PARTITION_BYTES_DEFAULT = 32 * 1024 * 1024
DELAY_S_DEFAULT = 900.0
POLL_S = 1.0
"""Spark asks a stream a hundred times a second; each look at the store costs requests."""
TASK_MESSAGE_BYTES = 64 * 1024
"""Maximum bytes that a task sends to the driver in its message; a task that writes more uploads them itself."""
BATCH_MESSAGE_BYTES = 8 * 1024 * 1024
"""Maximum bytes in the messages of all tasks of a write."""

_PREFIX = re.compile(r"^(rolling::|rolling\+|rolling(?=[a-z0-9]+:))")
"""What comes before the URL of a store."""
_SPARKS = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode", "provider"})
"""Names that Spark puts next to our options."""
_POLICY = ("max_bytes", "inline_bytes", "max_age")
SPARKS_OWN = (
    "read with rollingfs.spark.read_csv(spark, url, schema) or stream_csv, and JSON with read_json or stream_json; "
    "write with rollingfs.spark.to_csv(rows).write.format('rolling'), and JSON with to_json"
)
"""Advice for formats that Spark's parsers and writers handle."""
NO_TABLE = (
    "Spark does not tell a data source in Python the path and the options of a table: make a view with CREATE "
    "TEMPORARY VIEW name USING rolling OPTIONS (path 'URL', format 'arrow'), "
    "or write FROM table WITH (path='URL', format='arrow')"
)
"""Advice for a user who makes or reads a table."""


class DataLossError(SegmentTruncatedError):
    """Bytes are gone before the query has read them; with ``failOnDataLoss=false`` it goes on without them."""


def _policy(name: str) -> Parse:
    """Take a part of a policy as it is, after a look at it."""

    def checked(text: str) -> str:
        RollingPolicy(**{name: text})  # type: ignore[arg-type]
        return text

    return by(checked)


@value_class
class Options:
    """The options of a read or write, checked."""

    target_protocol: str
    """Protocol of the backend."""
    paths: tuple[str, ...]
    """Paths and patterns, with the protocol, as the backend understands them."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """It may hold secrets, so it must be in no text that Spark shows or logs."""
    given: frozenset[str] = frozenset()
    """The names of what the user gave, in lower case."""
    transaction: tuple[str, int] | None = None
    """Of a write that takes effect once, however often it is repeated: who counts, and the growing number of it."""
    format: str = option("format", one_of({name: name for name in formats.MODULES}), formats.TEXT, BOTH)
    compression: str = option("compression", one_of({name: name for name in lines.CHOICES}), "auto", BOTH)
    partition_bytes: int = option("partitionBytes", some_bytes, PARTITION_BYTES_DEFAULT)
    fails_on_data_loss: bool = option("failOnDataLoss", truth, True)
    skips_corrupt: bool = option("onCorrupt", one_of({"fail": False, "skip": True}), False)
    starting: ReadPosition = option("startingOffsets", parse_position, ReadPosition(EARLIEST))
    ending: ReadPosition | None = option("endingOffsets", parse_position, None, BATCH)
    """End of a batch; None: the present ends."""
    has_metadata: bool = option("includeMetadata", truth, False)
    """Whether rows have the columns `_offset`, `_segment` and `_commit_time`."""
    has_folder_columns: bool = option("partitionColumns", truth, True)
    """Whether folders like ``day=2026-11-21`` are columns."""
    base_path: str | None = option("basePath", word)
    """The URL of the folder below which folders are columns; None: what the query names."""
    poll_s: float = option("pollInterval", time_s, POLL_S)
    """Seconds between two looks of a stream at the store."""
    subscriber: str | None = option("subscriber", word, None, STREAM)
    """The name under which a stream publishes how far it has read."""
    trigger_bytes_max: int | None = option("maxBytesPerTrigger", some_bytes)
    trigger_records_max: int | None = option("maxRecordsPerTrigger", count)
    """Maximum number of records of a batch of a stream."""
    trigger_bytes_min: int | None = option("minBytesPerTrigger", size)
    """Bytes that a stream waits for, at most `delay_s`, before it makes a batch."""
    delay_s: float = option("maxTriggerDelay", time_s, DELAY_S_DEFAULT)
    task_message_bytes: int = option("taskMessageBytes", size, TASK_MESSAGE_BYTES, WRITE)
    batch_message_bytes: int = option("batchMessageBytes", size, BATCH_MESSAGE_BYTES, WRITE)
    segment_by: str | None = option("segmentBy", word, None, WRITE)
    """The column that names the segment of a row."""
    max_bytes: str | None = option("maxBytes", _policy("max_bytes"), None, WRITE)
    inline_bytes: str | None = option("inlineBytes", _policy("inline_bytes"), None, WRITE)
    max_age: str | None = option("maxAge", _policy("max_age"), None, WRITE)

    def check_use(self, use: str) -> None:
        """Refuse what has no meaning in a use: `BATCH`, `STREAM` or `WRITE`.

        Raises
        ------
        ValueError
            An option is given that would be ignored, or two that limit the batches of a stream.
        """
        fitting = (BOTH, WRITE) if use == WRITE else (BOTH, READ, use)
        given = {name: of_one for name, of_one in sorted(_OWN.items()) if name.lower() in self.given}
        odd = [f"option {name} is for {of_one}" for name, of_one in given.items() if of_one not in fitting]
        if odd:
            state = "; nothing was written" if use == WRITE else ""
            raise ValueError(
                f"{', '.join(odd)}, and {use} would ignore it{state}: leave it out; a view from which you read and "
                "another into which you insert can have different options"
            )
        if use == BATCH and self.starting.name == LATEST:
            raise ValueError("option startingOffsets is 'latest': a batch read would be empty; streams begin there")
        if not self.form.grows and any(one and not one.name for one in (self.starting, self.ending)):
            raise ValueError(
                f"format {self.format!r} is read whole: startingOffsets and endingOffsets take no time and no cut"
            )
        if self.trigger_records_max is not None and not self.form.has_lines:
            raise ValueError(f"option maxRecordsPerTrigger counts lines, and format {self.format!r} has none")
        if self.trigger_records_max is not None and self.trigger_bytes_max is not None:
            raise ValueError("options maxRecordsPerTrigger and maxBytesPerTrigger are both given: give one of them")

    def lose(self, what: str) -> None:
        """Raise for bytes that are gone before they were read, or log that the read goes on, by `failOnDataLoss`.

        Raises
        ------
        DataLossError
            `failOnDataLoss` is true.
        """
        if self.fails_on_data_loss:
            raise DataLossError(f"{what}; option failOnDataLoss=false goes on without them")
        logger.warning("%s; going on without (failOnDataLoss=false)", what)

    @property
    def policy(self) -> dict[str, str]:
        """Return what is given of the policy of new segments, by the names of `RollingPolicy`."""
        return {name: text for name in _POLICY if (text := getattr(self, name)) is not None}

    @property
    def target(self) -> str:
        """Return the path of a write.

        Raises
        ------
        ValueError
            There are several.
        """
        if len(self.paths) != 1:
            raise ValueError(f"a write goes to one segment, but {len(self.paths)} are named; nothing was written")
        return self.paths[0]

    @property
    def form(self) -> formats.Format:
        """Return what the format makes of bytes and rows."""
        return formats.of(self.format)

    def codec(self, path: str) -> str | None:
        """Return the compression with which the segment at a path is read; None: as it is.

        Raises
        ------
        ValueError
            Its name has a compression that cannot be read.
        """
        return lines.codec_of(path, self.compression) if self.form.has_lines else None

    def has_lines(self, path: str) -> bool:
        """Return whether the segment at a path is read by lines from anywhere, as it is."""
        return self.form.has_lines and self.codec(path) is None

    @property
    def target_options(self) -> dict[str, Any]:
        """Return options of the backend, which may be flat or nested under its name."""
        names = {"s3": ("s3", "s3a"), "file": ("file", "local")}.get(self.target_protocol, (self.target_protocol,))
        nested = {key: value for name in names for key, value in _table(self.storage_options.get(name)).items()}
        flat = {key: value for key, value in self.storage_options.items() if key not in {*names, "rolling"}}
        return {**flat, **nested}

    @property
    def rolling_options(self) -> dict[str, Any]:
        """Return options of the rolling filesystem, with the policy of a write."""
        return {**_table(self.storage_options.get("rolling")), **self.policy}


_FIELDS: list[tuple[str, str, Parse, str]] = [
    (one.name, *one.metadata.values()) for one in fields(Options) if one.metadata
]
_OWN = {
    **{name: use for _, name, _, use in _FIELDS},
    **dict.fromkeys(("storage_options", "tiers"), BOTH),
    **dict.fromkeys(("txnAppId", "txnVersion"), WRITE),
}
"""Use of each option."""
READING = frozenset(name.lower() for name, use in _OWN.items() if use != WRITE) - {"format"}
"""Options of a read of text, in lower case, as Spark gives them."""


def parse_options(options: Mapping[str, str]) -> Options:
    """Check the options that Spark hands over.

    Raises
    ------
    ValueError
        An option is unknown, or its value is impossible. The message names it; it never shows `storage_options`.
    """
    given = {key.lower(): value for key, value in options.items()}
    if "location" in given or any(key.startswith("option.") for key in given):  # Spark is making a table
        raise ValueError(f"format('rolling') cannot be a table, and none was made: {NO_TABLE}")
    unknown = sorted(given.keys() - {name.lower() for name in _OWN} - _SPARKS)
    if unknown:
        near = [one for name in unknown for one in get_close_matches(name, map(str.lower, _OWN))]
        hint = ", ".join(one for one in _OWN if one.lower() in near)
        raise ValueError(
            f"format('rolling') has no option {', '.join(unknown)}; {f'near is {hint}; ' if hint else ''}"
            f"it has {', '.join(_OWN)}. "
            f"Options of JSON and CSV are for Spark's own parsers: {SPARKS_OWN}"
        )
    where = parse_urls(_urls(given))
    if given.get("format") == CSV:
        raise ValueError(f"format 'csv' is read and written by Spark itself: {SPARKS_OWN}")
    values = {key: parse(name, given[name.lower()]) for key, name, parse, _ in _FIELDS if name.lower() in given}
    found = Options(
        *where,
        storage_options=_storage_options(given),
        given=frozenset(given),
        transaction=_transaction(given),
        **values,
    )
    if "compression" in given and not found.form.has_lines:
        raise ValueError(f"option compression is for lines, and format {found.format!r} has none")
    if found.ending is not None and found.ending.name == EARLIEST:
        raise ValueError("option endingOffsets is 'earliest': the read would be empty")
    return found


def _transaction(given: Mapping[str, str]) -> tuple[str, int] | None:
    app, version = given.get("txnappid"), given.get("txnversion")
    if app is version is None:
        return None
    if not app or not version or not (version.isascii() and version.isdigit()):
        raise ValueError(
            f"options txnAppId and txnVersion are {app!r} and {version!r}: give both, a name and a whole number"
        )
    return app, int(version)


def parse_urls(urls: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the protocol of some URLs, and their paths.

    Raises
    ------
    ValueError
        They are on several backends, or there are no URLs.
    """
    parsed = [parse_url(url) for url in urls]
    protocols = sorted({protocol for protocol, _ in parsed})
    if len(protocols) != 1:
        raise ValueError(f"all paths must lie on one backend, but they are on {', '.join(protocols) or 'none'}")
    return protocols[0], tuple(path for _, path in parsed)


def parse_url(url: str) -> tuple[str, str]:
    """Return the protocol, and the path with it, of ``rolling::s3://b/x``, ``s3://b/x`` or a local path.

    Raises
    ------
    ValueError
        It names no backend, or no path in it.
    """
    bare = _PREFIX.sub("", url, count=1)
    protocol, colon, path = bare.partition("://")
    if not colon:
        protocol, _, path = bare.partition(":") if bare.startswith("file:/") else ("file", "", bare)
        if not path.startswith("/"):
            raise ValueError(f"{url!r} names no backend: write rolling::s3://bucket/x, s3://bucket/x or file:///x")
    protocol = {"s3a": "s3", "local": "file"}.get(protocol, protocol)
    if protocol == "rolling" or not protocol.replace("+", "").isalnum() or not path.strip("/"):
        raise ValueError(f"{url!r} names no segment: write rolling::s3://bucket/x, s3://bucket/x or file:///x")
    return protocol, path if protocol == "file" else f"{protocol}://{path}"


def _json_object(name: str, example: str, text: str) -> dict[str, Any]:
    """Return the JSON of an option; an error does not show the text, which may hold secrets."""
    try:
        if isinstance(found := json.loads(text), dict):
            return found
        where = f"it is a {type(found).__name__}"
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
    raise ValueError(f"{name} must be a JSON object like {example}: {where}")


def _storage_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the storage options, with the option `tiers` of rollingfs."""
    found = _json_object("storage_options", '{"anon": true}', given.get("storage_options", "{}"))
    if "tiers" not in given:
        return found
    rolling = _table(found.get("rolling"))
    if "tiers" in rolling:
        raise ValueError("the tiers are given twice: by the option tiers, and in storage_options")
    tiers = _json_object("tiers", '{"cold": "s3://b/x"}', given["tiers"])
    return {**found, "rolling": {**rolling, "tiers": tiers}}


def _urls(given: Mapping[str, str]) -> Sequence[str]:
    urls: list[str] = [*json.loads(given.get("paths", "[]")), *([given["path"]] if "path" in given else [])]
    if not urls:
        raise ValueError(
            f"format('rolling') needs a path: give a URL to load(), save() or start(); if this is a table, {NO_TABLE}"
        )
    return urls


def _table(value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ValueError("a value that is nested under a name in storage_options must be a JSON object")
    return dict(value or {})
