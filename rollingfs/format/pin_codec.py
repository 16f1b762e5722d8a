"""Pins: small files in a chunk folder for references of other segments. Pure.

A concat or rename writes the pin before it gives the folder's chunks to another segment. Only the folder's own
collection removes the pin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rollingfs.format import names, tokens
from rollingfs.runtime.values import value_class

PIN_FORMAT = "rollingfs-pin 1"
PIN_BYTES_MAX = 64 * 1024
FIELDS = ("txn", "source", "incarnation", "target")


@value_class
class Pin:
    """The segments that may refer to the chunks of a folder, and the transaction that moves the entries."""

    txn: str
    source: str
    """Path of the segment that gives its entries away; "" if it is above the root, after a move of the tree."""
    target: str
    """Path of the segment that takes them; "" likewise."""
    incarnation: str
    """Incarnation of the source, whose header shows whether the transaction took place."""

    def folded(self) -> Pin:
        """Return this pin with the paths as disks compare them that ignore case."""
        return replace(self, source=names.folded(self.source), target=names.folded(self.target))


def pin_path(folder: str, txn: str) -> str:
    """Return the path of a transaction's pin in a chunk folder."""
    return f"{folder}/{names.PIN_PREFIX}{txn}"


def format_pin(pin: Pin, folder: str) -> bytes:
    """Return a pin's content, with paths relative to the chunk folder's parent."""
    home = names.parent(folder)
    source, target = (tokens.quote(names.relative(home, path)) for path in (pin.source, pin.target))
    text = f"{PIN_FORMAT}\ntxn {pin.txn}\nsource {source}\nincarnation {pin.incarnation}\ntarget {target}\n"
    return tokens.seal_text(text.encode())


def parse_pin(data: bytes, folder: str, name: str) -> Pin:
    """Read a pin.

    Raises
    ------
    CorruptHeaderError
        The pin is malformed, or a newer release wrote it.
    """
    position, line = 0, ""
    found: dict[str, Any] = {}
    try:
        tokens.check_size(data, PIN_BYTES_MAX)
        text_lines, end = tokens.split_text(data, PIN_FORMAT)
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            kind, word = line.split(" ")
            if kind not in FIELDS or kind in found:
                raise tokens.Malformed(f"line kind {kind!r} is unknown or comes twice: upgrade rollingfs to read it")
            is_path = kind in ("source", "target")
            found[kind] = _path(folder, tokens.segment_path(word)) if is_path else tokens.uuid(word)
        position, line = 0, ""
        tokens.need(found, *FIELDS)
        if end != len(data):
            raise tokens.Malformed("it has bytes after its end")
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, position, line, error)
    return Pin(**found)


def _path(folder: str, relative: str) -> str:
    """Return a path of a pin; "" for a path above the root of the store."""
    return names.find(names.parent(folder), relative) or ""
