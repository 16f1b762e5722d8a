"""Pins: the small files by which another segment says that it refers to chunks in this folder. Pure.

A pin is written into a chunk folder before a concat or rename gives its chunks to another segment; only the
folder's own collection removes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rollingfs.format import names, tokens

PIN_FORMAT = "rollingfs-pin 1"


@dataclass(frozen=True, slots=True)
class Pin:
    """Who may refer to the chunks of a folder, and by which transaction."""

    txn: str
    source: str
    """Path of the segment that gave its entries away."""
    target: str
    """Path of the segment that took them."""


def pin_path(folder: str, txn: str) -> str:
    """The file of a transaction's pin in a chunk folder."""
    return f"{folder}/{names.PIN_PREFIX}{txn}"


def format_pin(pin: Pin, folder: str) -> bytes:
    """A pin's content; paths are relative to where the folder lies, so that a tree can be moved whole."""
    home = names.parent(folder)
    source, target = (tokens.quote(names.relative(home, path)) for path in (pin.source, pin.target))
    return tokens.seal_text(f"{PIN_FORMAT}\ntxn {pin.txn}\nsource {source}\ntarget {target}\n".encode())


def parse_pin(data: bytes, folder: str, name: str) -> Pin:
    """Read a pin.

    Raises
    ------
    CorruptHeaderError
        It is malformed, or written by a newer release.
    """
    position, line = 0, ""
    found: dict[str, Any] = {}
    try:
        text_lines, end = tokens.split_text(data, PIN_FORMAT)
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            kind, word = line.split(" ")
            if kind not in ("txn", "source", "target") or kind in found:
                raise tokens.Malformed(f"line kind {kind!r} is unknown or comes twice: upgrade rollingfs to read it")
            found[kind] = (
                tokens.uuid(word) if kind == "txn" else names.climb(names.parent(folder), tokens.unquote(word))
            )
        position, line = 0, ""
        tokens.need(found, "txn", "source", "target")
        if end != len(data):
            raise tokens.Malformed("it has bytes after its end")
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, position, line, error)
    return Pin(**found)
