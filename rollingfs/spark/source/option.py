"""Conversion of the text of an option to the value of a field. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any

from rollingfs.policy import parse_bytes, parse_seconds

Parse = Callable[[str, str], Any]
"""Makes a value of an option's name and text, or raises a `ValueError` that names the option."""


BOTH, READ, BATCH, STREAM, WRITE = "both", "reads", "batch reads", "streams", "writes"
"""Use of an option."""


def option(name: str, parse: Parse, default: Any = None, use: str = READ) -> Any:
    """Return a field of a dataclass that takes the value of an option."""
    return field(default=default, metadata={"name": name, "parse": parse, "use": use})


def uses(kind: type) -> dict[str, str]:
    """Return what a class's options are for, by name."""
    return {one.metadata["name"]: one.metadata["use"] for one in fields(kind) if one.metadata}


def values(kind: type, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the options that are given, by field.

    Raises
    ------
    ValueError
        A value is impossible; the message names the option.
    """
    found = [(one.name, one.metadata) for one in fields(kind) if one.metadata]
    texts = [(name, of_one, given.get(of_one["name"].lower())) for name, of_one in found]
    return {name: of_one["parse"](of_one["name"], text) for name, of_one, text in texts if text is not None}


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
