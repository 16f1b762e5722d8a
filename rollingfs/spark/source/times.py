"""Text as dates and timestamps by the rules of Spark's casts: how many days or microseconds after 1970. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from rollingfs.spark.source.zones import SHORT_ZONES

Zone = tzinfo

_BLANKS = "".join(map(chr, range(33))) + "\x7f"
"""Spark trims these around a date or a time."""
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_DAY = r"(?P<sign>[+-]?)(?P<year>[0-9]{4,6})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
_TIME = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9].*)?)?)?"
_STAMP = re.compile(_DAY + "(?:[ T]" + _TIME + ")?)?)?", re.DOTALL)
_CLOCK = re.compile(r"(?:T|(?=[0-9]+:))" + _TIME, re.DOTALL)
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
_DAY_US = 86_400_000_000
_DAYS_400_YEARS = 146_097
_OFFSET_S_MAX = 18 * 3600
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def date_days(text: str) -> int | None:
    """The days from 1970-01-01 to a date, or None if Spark's cast does not take the text."""
    found = _DATE.fullmatch(text.strip(_BLANKS))
    if found is None:
        return None
    sign, year, month, day = found.groups()
    return _days(int(sign + year), int(month or 1), int(day or 1))


def timestamp_us(text: str, zone: Zone) -> int | None:
    """The microseconds from 1970 to a time, or None; a time without a zone is one of `zone`."""
    return _stamp(text, zone)


def local_timestamp_us(text: str) -> int | None:
    """The microseconds from 1970 to a time of no zone, or None; a text with a zone is none."""
    return _stamp(text, None)


def with_legacy(parse: Callable[[str], int | None], text: str) -> int | None:
    """What a parser makes of a text, or of the text without the letters GMT, as Spark tries both."""
    found = parse(text)
    return parse(text.replace("GMT", "")) if found is None and "GMT" in text else found


@lru_cache(maxsize=256)
def zone_of(name: str) -> Zone | None:
    """The time zone of an offset, a region or one of Java's short names; None if there is none of the name."""
    name = re.sub(r"^([+-])([0-9]):", r"\g<1>0\2:", SHORT_ZONES.get(name, name))
    name = re.sub(r"^([+-][0-9]{2}):([0-9])$", r"\1:0\2", name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    prefixed = re.fullmatch(r"(?:UTC|GMT|UT)([+-].*)", name)
    offset = _OFFSET.fullmatch(prefixed[1] if prefixed else name)
    if offset:
        sign, hours, minutes, seconds = offset.groups()
        size = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
        if size > _OFFSET_S_MAX or int(minutes or 0) > 59 or int(seconds or 0) > 59 or (len(hours) == 1 and minutes):
            return None
        return timezone(timedelta(seconds=-size if sign == "-" else size))
    if not _REGION.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError
        return None


def _stamp(text: str, zone: Zone | None) -> int | None:
    text = text.strip(_BLANKS)
    found = _STAMP.fullmatch(text)
    clock = None if found or zone is None else _CLOCK.fullmatch(text)
    if clock:
        hour, minute, second, fraction, name = clock.groups()
    elif found:
        hour, minute, second, fraction, name = found.groups()[4:]
    else:
        return None
    if name is not None:
        zone = zone_of(name.strip(_BLANKS)) if zone is not None else None
        if zone is None:
            return None
    if found:
        days = _days(int(found["sign"] + found["year"]), int(found["month"] or 1), int(found["day"] or 1))
    else:
        days = datetime.now(zone).toordinal() - _EPOCH_DAY
    parts = int(hour or 0), int(minute or 0), int(second or 0)
    if days is None or parts[0] > 23 or parts[1] > 59 or parts[2] > 59:
        return None
    seconds = days * 86_400 + parts[0] * 3600 + parts[1] * 60 + parts[2]
    us = (seconds - _offset_s(seconds, zone)) * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])
    return us if -(1 << 63) <= us < 1 << 63 else None


def _days(year: int, month: int, day: int) -> int | None:
    """Days from 1970-01-01, in the Gregorian calendar before 1582 too, and in years that Python's dates lack."""
    cycles, within = divmod(year - 1, 400)
    try:
        return date(within + 1, month, day).toordinal() - _EPOCH_DAY + cycles * _DAYS_400_YEARS
    except ValueError:
        return None


def _offset_s(seconds: int, zone: Zone | None) -> int:
    """The offset of a zone at a local time: the earlier one where a time is there twice or not at all, as in Java."""
    if zone is None or zone is UTC:
        return 0
    try:
        local = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    except OverflowError:
        local = datetime.max if seconds > 0 else datetime.min  # the rules of a zone do not change there
    offset = local.replace(tzinfo=zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())
