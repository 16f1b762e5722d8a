"""What a client of an older release makes of a header with lines that it does not know."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rollingfs.format import codec, tokens
from rollingfs.format.codec import format_header, parse_header
from rollingfs.format.header import Header
from rollingfs.format.transitions import stamp

NOW_MS = 1_795_168_800_000
KINDS = ("asks", "carries", "carried")
"""The lines that it does not know."""


def for_an_older_client(header: Header) -> Header:
    """The header as a client reads it that does not know the lines of asks."""
    kept = [f"asks {header.asks.base} {header.asks.version}"] if header.asks else []
    kept += [f"carries {header.segment} {header.carried_since}"] if header.carried_since else []
    kept += map(codec.format_carried, header.carried)
    own = tuple(line for line in header.commits if line.offset is None)
    unknown = (*kept, *header.unknown)
    found = dataclasses.replace(header, asks=None, commits=own, carried_since=0, unknown=unknown)
    found.check()
    return found


def as_an_older_client(header: Header, writer: str, number: int, change: Callable[[Header], Header]) -> Header:
    """A commit by such a client, as others then read it; it keeps no unknown lines in a new incarnation."""
    base = for_an_older_client(header)
    found = parse_header(format_header(stamp(change(base), base, writer, number, NOW_MS)), "file")
    assert found is not None
    return found


def as_shown(data: bytes) -> bytes:
    """The content of a header's file in which no client knows those lines: then a client of today is an older one."""
    return _renamed(data, {kind: f"unknown-{kind}" for kind in KINDS})


def as_written(data: bytes) -> bytes:
    """What such a client has made of that content, with the lines as they were."""
    return _renamed(data, {f"unknown-{kind}": kind for kind in KINDS})


def _renamed(data: bytes, kinds: dict[str, str]) -> bytes:
    text, end, rest = data.partition(b"end crc32c=")
    if not end:
        return data
    lines = [line.partition(" ") for line in text.decode().split("\n")]
    named = "\n".join("".join((kinds.get(kind, kind), *words)) for kind, *words in lines)
    return tokens.seal_text(named.encode()) + rest[len("00000000\n\n") :]
