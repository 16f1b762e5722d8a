"""How the text of an option becomes a value. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rollingfs.policy import parse_bytes, parse_seconds
from rollingfs.runtime.values import value_class

Parse = Callable[[str, str], Any]
"""Makes a value of an option's name and text, or raises a `ValueError` that names the option."""


@value_class
class Option:
    """An option, and the field of a class of options that takes its value."""

    name: str
    field: str
    parse: Parse


def named(options: Iterable[Option]) -> dict[str, str]:
    """The names of options, by their names in lower case, as Spark hands them over."""
    return {one.name.lower(): one.name for one in options}


def values(options: Iterable[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """The values of the options that are given, by field.

    Raises
    ------
    ValueError
        A value is impossible; the message names the option.
    """
    there = [(one, given[one.name.lower()]) for one in options if one.name.lower() in given]
    return {one.field: one.parse(one.name, text) for one, text in there}


def by(parse: Callable[[str], Any], least: float | None = None, unit: str = "") -> Parse:
    """A value as a function parses it, perhaps of a least size."""

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
    """The value of one of some words, in any case."""

    def chosen(name: str, text: str) -> Any:
        if text.lower() not in choices:
            raise ValueError(f"option {name} is {text.lower()!r}: it must be one of {', '.join(choices)}")
        return choices[text.lower()]

    return chosen


def word(name: str, text: str) -> str:
    """A text that is not empty."""
    if not text:
        raise ValueError(f"option {name} is empty: it must be a name")
    return text


truth = one_of({"true": True, "false": False})
size, time_s, count = by(parse_bytes), by(parse_seconds), by(int, 1)
some_bytes = by(parse_bytes, 1, " byte")
