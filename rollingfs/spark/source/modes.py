"""What a read does with a malformed record: Spark's three modes. Pure."""

from __future__ import annotations

PERMISSIVE, DROPMALFORMED, FAILFAST = MODES = ("permissive", "dropmalformed", "failfast")
CORRUPT_COLUMN = "_corrupt_record"
"""If the schema has a string column of this name, it takes the malformed records, as text."""
SHOWN_LETTERS_MAX = 200


class MalformedRecordError(ValueError):
    """A record does not fit the columns, and the read is to fail."""


def malformed(record: bytes) -> MalformedRecordError:
    """The error for a record in the mode FAILFAST."""
    text = record.decode(errors="replace")
    shown = text if len(text) <= SHOWN_LETTERS_MAX else f"{text[:SHOWN_LETTERS_MAX]}… ({len(text)} letters)"
    return MalformedRecordError(
        f"a record is malformed, and option mode is FAILFAST: {shown!r}. mode=PERMISSIVE reads what fits, with null in "
        "the place of the rest; mode=DROPMALFORMED leaves such records out"
    )
