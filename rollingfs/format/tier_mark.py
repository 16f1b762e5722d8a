"""The mark at the root of a tier: a small file with an id, which the lines of headers name. Pure."""

from __future__ import annotations

from rollingfs.format import tokens

MARK_FORMAT = "rollingfs-tier 1"
MARK_BYTES_MAX = 4096


def format_mark(identity: str) -> bytes:
    """Return a mark's content."""
    return tokens.seal_text(f"{MARK_FORMAT}\nid {identity}\n".encode())


def parse_mark(data: bytes, name: str) -> str:
    """Return the id that a mark has; "" for an empty mark, which older releases wrote.

    Raises
    ------
    CorruptHeaderError
        The mark is malformed, or a newer release wrote it.
    """
    if not data:
        return ""
    try:
        tokens.check_size(data, MARK_BYTES_MAX)
        lines, end = tokens.split_text(data, MARK_FORMAT)
        kind, word = " ".join(lines).split(" ")
        if kind != "id" or end != len(data):
            raise tokens.Malformed("it has more than an id: upgrade rollingfs to read it")
        return tokens.uuid(word)
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, 0, "", error)
