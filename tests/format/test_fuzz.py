"""Mutants of every kind of file: a parser takes them or raises our error, in bounded time and memory."""

from __future__ import annotations

import json
import random
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from rollingfs.errors import CorruptHeaderError, CorruptLedgerError
from rollingfs.format.asks import ASK_BYTES_MAX, Ask, format_ask, parse_ask
from rollingfs.format.codec import parse_header
from rollingfs.format.header import Chunk
from rollingfs.format.index_codec import PAGE_BYTES_MAX, format_page, parse_page
from rollingfs.format.listing_codec import Row, format_rows, parse_rows
from rollingfs.format.pin_codec import Pin, format_pin, parse_pin
from rollingfs.format.tokens import seal_text
from rollingfs.stream.ledger_codec import parse_ledger

HEADERS = sorted((Path(__file__).parents[1] / "fixtures" / "headers").rglob("*.header")) or sorted(
    path for path in (Path(__file__).parents[1] / "fixtures" / "headers").rglob("*") if path.is_file()
)
UUID = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27"
WORDS = [b"", b"0", b"-1", b"9223372036854775807", b"9223372036854775808", b"%00", b"%", b"../../..", b"../x$chunks/y",
         b"a$header", b"merging", b"deleted", b"at=9999-12-31T23:59:59.999Z", b"at=0000-00-00T00:00:00.000Z",
         b"crc32c=", UUID.encode(), b"\xff", b"\x00", b"tier=cold", b"Page", b"Drop", b"./"]  # fmt: skip
VALUES = [None, True, -1, 2**70, 1e999, float("nan"), "", "../x", "a\0b", "\ud800", [], {}, [[]], {"at": 1}, "9" * 50]
MUTANTS = 400
BYTES_MAX = 64 * 1024 * 1024

CUT = {"rollingfs-cut": 1, "at": 1, "size": 1, "segments": {"p": 1}, "incarnations": {"p": UUID}}
LEDGER = {
    "rollingfs-stream": 1,
    "retention": {"min_bytes": 1, "max_bytes": 5, "every": 600, "align": "x"},
    "offload": {"tier": "cold", "after_age": 5.0},
    "trim": {"done": False, "goals": {"p": [9, UUID]}},
    "subscribers": {
        "b": [
            1.0,
            json.dumps({"rollingfs-cut": 1, "at": 1, "size": 1, "segments": {"p": 1}, "incarnations": {"p": UUID}}),
        ]
    },
    "segments": [["p", UUID], ["q", None]],
    "cuts": [[1.0, 1, 0, 900, 1, 4], [2.0, 2, 1, -1]],
}


def of_words(data: bytes, chance: random.Random) -> bytes:
    """Other words in a text whose checksum is right again."""
    text, end, tail = data.partition(b"\nend crc32c=")
    lines = text.split(b"\n")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(1, len(lines))
        words = lines[at].split(b" ")
        words[chance.randrange(len(words))] = chance.choice(WORDS)
        lines[at] = b" ".join(words)
        if chance.random() < 0.2:
            lines.insert(at, chance.choice(lines[1:]))
    return seal_text(b"\n".join(lines) + b"\n") + tail[10:] if end else data


def of_values(value: object, chance: random.Random) -> object:
    """Another value somewhere in a JSON value."""
    if not isinstance(value, list | dict) or not value or chance.random() < 0.15:
        return chance.choice(VALUES)
    key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    copy = value.copy()
    copy[key] = of_values(copy[key], chance)  # type: ignore[index]
    return copy


def of_bytes(data: bytes, chance: random.Random) -> bytes:
    """Other bytes, or fewer."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randint(0, len(changed))] if chance.random() < 0.3 else changed)


def page(data: bytes) -> object:
    return list(parse_page(data, None, "x"))


CHUNKS = [Chunk(at * 5, 5, f"{at:020d}-5f3a9c21e0b4", 7, 0) for at in range(9)]
ROWS = [Row(name, "t", UUID, 3, "open", 0, 5, 1, 0, 0) for name in "abc"]
TEXTS: dict[str, tuple[list[bytes], Callable[[bytes], object]]] = {
    "header": ([path.read_bytes() for path in HEADERS], lambda data: parse_header(data, "x")),
    "page": ([format_page(CHUNKS)], page),
    "pin": ([format_pin(Pin(UUID, "a/s", "a/t"), "a/s$chunks")], lambda data: parse_pin(data, "a/s$chunks", "x")),
    "ask": ([format_ask(Ask("w", 1, UUID, 1, b"data"))], lambda data: parse_ask(data, "x")),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_mutant_of_a_text_is_taken_or_refused_by_our_error(kind: str) -> None:
    files, parse = TEXTS[kind]
    chance, refusals = random.Random(kind), 0
    for data in [data for data in files if data] * max(1, MUTANTS // len(files)):
        for mutate in (of_words, of_bytes):
            try:
                parse(mutate(data, chance))
            except CorruptHeaderError:
                refusals += 1
    assert refusals > MUTANTS / 4


def test_a_mutant_of_a_ledger_is_taken_or_refused_by_its_error() -> None:
    chance, refusals = random.Random("ledger"), 0
    for _ in range(4 * MUTANTS):
        text = json.dumps(of_values(LEDGER, chance)).encode()
        for data in (text, of_bytes(text, chance)):
            try:
                parse_ledger(data, "x")
            except CorruptLedgerError:
                refusals += 1
    assert refusals > MUTANTS


def test_a_mutant_of_rows_is_taken_or_refused() -> None:
    chance, refusals = random.Random("rows"), 0
    whole = json.loads(zlib.decompress(format_rows(ROWS)))
    for _ in range(2 * MUTANTS):
        packed = zlib.compress(json.dumps(of_values(whole, chance)).encode())
        for data in (packed, of_bytes(packed, chance)):
            try:
                parse_rows(data)
            except ValueError:
                refusals += 1
    assert refusals > MUTANTS


def sealed(text: bytes) -> bytes:
    return seal_text(text)


def greedy_ledger() -> bytes:
    """3,000 segments in 3,000 cuts, of which each differs little from the last."""
    names = [[f"{number}", UUID] for number in range(3000)]
    first = [1.0, 1, *(value for number in range(3000) for value in (number, 1))]
    return json.dumps(LEDGER | {"segments": names, "cuts": [first, *([[2.0, 1]] * 2999)]}).encode()


PAGES = b"".join(b"Page %d 1 index-5f3a9c21e0b4 crc32c=00000000 count=4096 size=9\n" % at for at in range(700))
HEAD = (
    b"rollingfs 1\nsegment " + UUID.encode() + b"\nversion 1\nstate open\nepoch 0\n"
    b"policy max_bytes=1 inline_bytes=1\nstart 0\n"
)
GREEDY: dict[str, tuple[Callable[[], bytes], Callable[[bytes], object]]] = {
    "a ledger of many cuts": (greedy_ledger, lambda data: parse_ledger(data, "x")),
    "a deep ledger": (lambda: b"[" * 10**6, lambda data: parse_ledger(data, "x")),
    "packed zeros": (lambda: zlib.compress(b"0" * 2**26), parse_rows),
    "packed lists": (lambda: zlib.compress(b'{"rollingfs-listing":1,"rows":[' + b"[]," * 2**23), parse_rows),
    "a page 700 times": (lambda: sealed(HEAD + PAGES), lambda data: parse_header(data, "x")),
    "a large header": (lambda: HEAD + bytes(2**22), lambda data: parse_header(data, "x")),
    "a page of many chunks": (
        lambda: sealed(b"rollingfs-index 1\n" + b"".join(b"Chunk %d 1 x\n" % at for at in range(5000))),
        page,
    ),
    "a large page": (lambda: bytes(PAGE_BYTES_MAX + 1), page),
    "a large pin": (lambda: bytes(2**17), TEXTS["pin"][1]),
    "a large ask": (lambda: bytes(2 * ASK_BYTES_MAX), TEXTS["ask"][1]),
}


@pytest.mark.parametrize("kind", GREEDY)
def test_a_small_file_that_asks_for_much_is_refused_in_bounded_memory(kind: str) -> None:
    make, parse = GREEDY[kind]
    data = make()
    tracemalloc.start()
    try:
        with pytest.raises((CorruptHeaderError, ValueError)):
            parse(data)
        assert tracemalloc.get_traced_memory()[1] < BYTES_MAX
    finally:
        tracemalloc.stop()
