"""The options of lines, JSON and CSV: what records look like, and what becomes of malformed ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from rollingfs.spark.source import compression, modes, times
from rollingfs.spark.source.csv_tokens import CsvFormat

OWN = {
    "mode": "mode",
    "columnnameofcorruptrecord": "columnNameOfCorruptRecord",
    "timezone": "timeZone",
    "header": "header",
    "sep": "sep",
    "delimiter": "delimiter",
    "quote": "quote",
    "escape": "escape",
    "nullvalue": "nullValue",
    "compression": "compression",
}
"""Options by their names in lower case, as Spark hands them over. They mean what they mean to `spark.read.csv`."""
READS = frozenset({"mode", "columnnameofcorruptrecord", "timezone"})
"""Those that only a read heeds."""
_FOR = {
    "csv": {"header", "sep", "delimiter", "quote", "escape", "nullvalue"},
    "csv, json": {"mode", "columnnameofcorruptrecord", "timezone"},
    "csv, json, text": {"compression"},
}


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What records look like."""

    mode: str = modes.PERMISSIVE
    corrupt_column: str = modes.CORRUPT_COLUMN
    zone: tzinfo = UTC
    """That of times which name none."""
    csv: CsvFormat = field(default_factory=CsvFormat)
    compression: str = compression.AUTO


def parse_record_options(given: Mapping[str, str], kind: str) -> RecordOptions:
    """Check the options of records; the names are in lower case.

    Raises
    ------
    ValueError
        A value is impossible, or the format `kind` has no such option.
    """
    for formats, names in _FOR.items():
        odd = sorted(OWN[name] for name in names & given.keys())
        if odd and kind not in formats.split(", "):
            raise ValueError(f"option {', '.join(odd)} is for format {formats}, not for {kind}")
    mode = given.get("mode", modes.PERMISSIVE).lower()
    if mode not in modes.MODES:
        raise ValueError(f"option mode is {given['mode']!r}: it must be one of {', '.join(modes.MODES).upper()}")
    zone = times.zone_of(given.get("timezone", "UTC"))
    if zone is None:
        raise ValueError(f"option timeZone is {given['timezone']!r}: there is no such time zone")
    how = given.get("compression", compression.AUTO).lower()
    if how not in compression.CHOICES:
        raise ValueError(f"option compression is {how!r}: it must be one of {', '.join(compression.CHOICES)}")
    corrupt_column = given.get("columnnameofcorruptrecord", modes.CORRUPT_COLUMN)
    return RecordOptions(mode, corrupt_column, zone, _csv(given), how)


def _csv(given: Mapping[str, str]) -> CsvFormat:
    default = CsvFormat()
    if "sep" in given and "delimiter" in given:
        raise ValueError("options sep and delimiter are the same: give one of them")
    sep = given.get("sep", given.get("delimiter", default.sep)).replace("\\t", "\t")
    quote, escape = given.get("quote", default.quote), given.get("escape", default.escape)
    for name, letter, empty in (("sep", sep, False), ("quote", quote, True), ("escape", escape, False)):
        if (len(letter) != 1 or not letter.isascii() or letter in "\r\n") and not (empty and not letter):
            raise ValueError(f"option {name} is {letter!r}: it must be one letter of ASCII, and no line break")
    if sep in (quote, escape):
        raise ValueError(f"option sep is {sep!r}, and so is quote or escape: a field would have no end")
    header = given.get("header", "false").lower()
    if header not in ("true", "false"):
        raise ValueError(f"option header is {given['header']!r}: it must be one of true, false")
    return CsvFormat(sep, quote, escape, given.get("nullvalue", default.null_value), header == "true")
