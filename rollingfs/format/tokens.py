"""The words of header lines: numbers, times, names, ``key=value`` fields. Pure."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from rollingfs.errors import CorruptHeaderError
from rollingfs.format.crc import crc32c
from rollingfs.format.header import OFFSET_MAX, TIER_PATH_BYTES_MAX, Phase
from rollingfs.format.names import CHUNKS_SUFFIX, check_reference, check_relative_name
from rollingfs.policy import check_alias

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
_TO_ESCAPE = re.compile(r"[%\x00-\x20\x7f]")
END = b"\nend crc32c="
"""The last line of a text begins so."""
END_BYTES = len(END) + 8 + 2
"""Its bytes, with the line break before it and the blank line."""
_ESCAPED = re.compile(r"%([01][0-9a-f]|20|25|7f)")  # no other escape, so that a text has one form


SHOWN_CHARACTERS_MAX = 200
"""An error shows no more of a line."""
TIMES_KEPT_MAX = 256
"""The texts of times are kept: a segment's headers have many in common."""
WORDS_KEPT_MAX = 256
"""So are escaped words, above all the ids of writers."""


class Malformed(ValueError):
    """A line or a file breaks a rule of the format; the message names it."""


@functools.lru_cache(WORDS_KEPT_MAX)
def quote(text: str) -> str:
    """Escape the characters that end a word or a line, and ``%``."""
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02x}", text)


def unquote(word: str) -> str:
    """Return the inverse of `quote`."""
    if len(_ESCAPED.findall(word)) != word.count("%"):
        raise Malformed("has a '%' that escapes nothing")
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), word)


@functools.lru_cache(TIMES_KEPT_MAX)
def format_time(at_ms: int) -> str:
    """Return a time, milliseconds since 1970, as ISO 8601 in UTC.

    Raises
    ------
    ValueError
        The time is outside the years 1 to 9999.
    """
    second, ms = divmod(at_ms, 1000)
    try:
        return f"{_format_second(second)}.{ms:03}Z"
    except OverflowError as error:
        raise ValueError(f"{at_ms} ms since 1970 is not a time that a header can hold") from error


@functools.lru_cache(maxsize=1)  # a writer's next record is often of the same second
def _format_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).replace(tzinfo=None).isoformat()


@functools.lru_cache(maxsize=64)  # most lines of a header name the time of one commit
def parse_time(word: str) -> int:
    """Return the inverse of `format_time`."""
    if not _TIME.fullmatch(word):
        raise Malformed(f"{word!r} is not a time")
    return parse_shaped_time(word)


def parse_shaped_time(word: str) -> int:
    """Parse a word that is known to have the shape of a time, as `parse_time` does."""
    try:
        since = datetime.fromisoformat(word) - _EPOCH
    except ValueError as error:
        raise Malformed(f"{word!r} is not a time") from error
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def number(word: str) -> int:
    if not _NUMBER.fullmatch(word) or (found := int(word)) > OFFSET_MAX:
        raise Malformed(f"{word!r} is not a number")
    return found


def _shaped(pattern: str, what: str) -> Callable[[str], str]:
    shape = re.compile(pattern)

    def parse(word: str) -> str:
        if not shape.fullmatch(word):
            raise Malformed(f"{word!r} is not {what}")
        return word

    return parse


alias = check_alias
key = _shaped(r"[0-9a-f]{12}", "a key of 12 hexadecimal digits")
uuid = _shaped(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "a uuid")
_hex8 = _shaped(r"[0-9a-f]{8}", "a checksum of 8 hexadecimal digits")


def crc(word: str) -> int:
    return int(_hex8(word), 16)


def phase(word: str) -> Phase:
    try:
        return Phase(word)
    except ValueError as error:
        raise Malformed(f"state {word!r} is unknown: written by a newer rollingfs? upgrade to read it") from error


def reference(word: str) -> str:
    found = unquote(word)
    try:
        check_reference(found)
    except ValueError as error:
        raise Malformed(f"reference {found!r} {error}") from error
    return found


def segment_path(word: str) -> str:
    """Return the path of another segment, relative to a folder."""
    return check_relative_name(unquote(word))


def tier_path(word: str) -> str:
    """Return the path by which the files of a segment were put into a tier; only compared with others."""
    found = unquote(word)
    if not found or len(found.encode()) > TIER_PATH_BYTES_MAX:
        raise Malformed(f"{found[:SHOWN_CHARACTERS_MAX]!r} is no path of a segment with files in a tier")
    return found


def quote_path(path: str) -> str:
    """Return the inverse of `segment_path`; refuses a path that no reader would take."""
    return quote(check_relative_name(path))


def quote_reference(reference: str) -> str:
    """Escape a reference; refuse a reference that no reader would take."""
    try:
        check_reference(f"{reference}x" if reference.endswith(CHUNKS_SUFFIX + "/") else reference)
    except ValueError as error:
        raise ValueError(f"reference {reference!r} {error}") from error
    return quote(reference)


def drop_target(word: str) -> str:
    if word == "./":
        return word
    if not word.endswith("/"):
        return reference(word)
    if not word.endswith(CHUNKS_SUFFIX + "/"):
        raise Malformed(f"{word!r} is not a chunk folder")
    return reference(word + "x")[:-1]


def exactly(words: Sequence[str], count: int) -> Sequence[str]:
    if len(words) != count:
        raise Malformed(f"has {len(words)} words where {count} belong")
    return words


def fields(words: Iterable[str], parsers: Mapping[str, Callable[[str], Any]], *, strict: bool = True) -> dict[str, Any]:
    """Return the ``key=value`` words of a line; `strict` refuses unknown keys."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in found:
            raise Malformed(f"word {word!r} is not key=value, or comes twice")
        if key in parsers:
            found[key] = parsers[key](value)
        elif strict:
            raise Malformed(f"field {key!r} is unknown: written by a newer rollingfs? upgrade to read it")
    return found


def need(fields: dict[str, Any], *keys: str) -> None:
    for key in keys:
        if key not in fields:
            raise Malformed(f"lacks {key}=")


def seal_text(text: bytes) -> bytes:
    """Add the end line, whose checksum covers everything before it."""
    return text + b"end crc32c=%08x\n\n" % crc32c(text)


def check_size(data: bytes, bytes_max: int) -> None:
    """Refuse a file that is longer than its kind may be, before anything of it is parsed."""
    if len(data) > bytes_max:
        raise Malformed(f"it has more than {bytes_max} bytes, which are the most that a file of this kind has")


def check_first(data: bytes, first: str) -> None:
    """Refuse a file with another first line."""
    if not data.startswith(first.encode() + b"\n"):
        start = data[:40].split(b"\n")[0].decode(errors="replace")
        if re.fullmatch(first[:-1] + "([2-9]|[1-9][0-9]+)", start):
            raise Malformed(f"format {start!r} is too new for this release, which reads {first!r}: upgrade rollingfs")
        raise Malformed(f"it begins with {start!r} where {first!r} belongs: restore it as rollingfs wrote it")


def split_text(data: bytes, first: str) -> tuple[list[str], int]:
    """Return the lines between the first and the end line, and their end.

    The checksum of the end line is checked.
    """
    check_first(data, first)
    end = data.find(END)
    if end < 0 or len(data) < end + END_BYTES:
        raise Malformed("it is truncated: the end line is missing")
    text, rest = data[: end + 1], data[end + len(END) : end + END_BYTES]
    if rest[8:] != b"\n\n" or crc(rest[:8].decode(errors="replace")) != crc32c(text):
        raise Malformed("the text does not have the checksum that its end line says")
    try:
        return text.decode().split("\n")[1:-1], end + END_BYTES
    except UnicodeDecodeError as error:
        raise Malformed("it is not UTF-8") from error


def corrupt(name: str, position: int, line: str, error: Exception) -> NoReturn:
    why = "parts are missing" if isinstance(error, IndexError) else str(error)
    shown = repr(line) if len(line) <= SHOWN_CHARACTERS_MAX else f"{line[:SHOWN_CHARACTERS_MAX]!r}..."
    where = f", line {position} ({shown})" if position else ""
    raise CorruptHeaderError(f"{name}{where}: {why}") from error


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ValueError
        It is malformed. The message is the rest of a sentence, without words of Python.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not JSON: byte {error.start} is no text") from error
    except RecursionError as error:
        raise ValueError("it is not as it was written: its lists are nested too deeply") from error
    except ValueError as error:
        raise ValueError("it is not as it was written: a number has too many digits") from error
