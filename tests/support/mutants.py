"""Hostile files by mutation: `python -m tests.support.mutants KIND [COUNT] [SEED]` parses many of one kind.

A parser takes a mutant or refuses it by its own error, within `CPU_S_MAX` seconds of CPU time and `BYTES_MAX` bytes of
memory beyond what the process had before. The run ends at the first mutant that breaks this, and prints it.
"""

import json
import random
import resource
import signal
import sys
import zlib
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import FrameType

from rollingfs.errors import CorruptHeaderError, CorruptLedgerError
from rollingfs.format import records, tokens
from rollingfs.format.arrow_stream import duration_units
from rollingfs.format.codec import format_header, parse_file, parse_more
from rollingfs.format.crc import crc32c
from rollingfs.format.header import Chunk
from rollingfs.format.listing_codec import Row, format_rows, parse_rows
from rollingfs.format.policies import parse_rolling
from rollingfs.format.side_files import (
    CHECKSUM,
    INCARNATION,
    LAST,
    OFFSET,
    Pin,
    format_page,
    format_pin,
    parse_label,
    parse_page,
    parse_pin,
)
from rollingfs.parquet_footer import chunks as parquet_chunks, footer as parquet_footer
from rollingfs.parquet_footer.footer import JoinedFile, MalformedFooterError, understood
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger_codec import parse_ledger
from tests.support.spark import parquet_file

CPU_S_MAX = 1.0
BYTES_MAX = 64 * 1024 * 1024
FIXTURES = Path(__file__).parents[1] / "fixtures" / "headers" / "v1"
UUID = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27"
WORDS = [b"", b"0", b"-1", b"9223372036854775807", b"9223372036854775808", b"%00", b"%", b"../../..", b"../x$chunks/y",
         b"a$header", b"merging", b"deleted", b"at=9999-12-31T23:59:59.999Z", b"at=0000-00-00T00:00:00.000Z",
         b"crc32c=", UUID.encode(), b"\xff", b"\x00", b"tier=cold", b"Page", b"Drop", b"./"]  # fmt: skip
VALUES = [None, True, -1, 2**70, 1e999, float("nan"), "", "../x", "a\0b", "\ud800", [], {}, [[]], {"at": 1}, "9" * 50,
          False, 0, [0]]  # fmt: skip

CUT = {"rollingfs-cut": 1, "at": 1, "size": 1, "segments": {"p": 1}, "incarnations": {"p": UUID}}
LEDGER = {
    "rollingfs-stream": 1,
    "retention": {"min_bytes": 1, "max_bytes": 5, "every": 600, "align": "x"},
    "offload": {"tier": "cold", "after_age": 5.0},
    "trim": {"done": False, "goals": {"p": [9, UUID]}},
    "subscribers": {"b": [1.0, json.dumps(CUT)]},
    "segments": [["p", UUID], ["q", None]],
    "cuts": [[1.0, 1, 0, 900, 1, 4], [2.0, 2, 1, -1]],
}
CHUNKS = [Chunk(at * 5, 5, f"{at:020d}-5f3a9c21e0b4", 7, 0) for at in range(9)]
ROWS = [Row(name, "t", UUID, 3, "open", 0, 5, 1, 0, 0) for name in "abc"]
LABEL = {INCARNATION: UUID, OFFSET: "5", CHECKSUM: "0000abcd", LAST: "0 5 00000000000000000000-5f3a9c21e0b4"}

TABLES: tuple[dict[str, list[object]], ...] = (
    {"a": [1, 2]},
    {"s": [{"x": [1], "y": None}], "d": [timedelta(seconds=5)], "e": ["text"]},
)
"""Columns of Parquet files."""

Mutate = Callable[[bytes, random.Random], bytes]


# -- mutations -----------------------------------------------------------------------------------------------


def of_bytes(data: bytes, chance: random.Random) -> bytes:
    """Other bytes, or fewer."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randint(0, len(changed))] if chance.random() < 0.3 else changed)


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
    return tokens.seal_text(b"\n".join(lines) + b"\n") + tail[10:] if end else data


def of_records(data: bytes, chance: random.Random) -> bytes:
    """Records behind a header, with other words, whose checksums are right."""
    data += b"".join(_record(chance) for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 9))))
    return data if chance.random() < 0.9 else of_bytes(data, chance)


def _record(chance: random.Random) -> bytes:
    content = chance.randbytes(chance.randint(1, 9))
    words = [b"Record", b"%d" % chance.randint(1, 9), b"w", b"1", b"%d" % len(content), b"2026-11-20T10:00:00.000Z"]
    words.append(b"%08x" % crc32c(content))
    if chance.random() < 0.7:
        words[chance.randrange(1, len(words))] = chance.choice([*WORDS, b"%d" % chance.randint(1, 99)])
    line = b" ".join(words) + b" "
    return line + b"%08x\n" % crc32c(line, crc32c(UUID.encode())) + content


def of_values(data: bytes, chance: random.Random) -> bytes:
    """Another value somewhere in a text of JSON."""
    text = json.dumps(_changed(json.loads(data), chance)).encode()
    return text if chance.random() < 0.8 else of_bytes(text, chance)


def _changed(value: object, chance: random.Random) -> object:
    if not isinstance(value, list | dict) or not value or chance.random() < 0.15:
        return chance.choice(VALUES)
    key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    copy = value.copy()
    copy[key] = _changed(copy[key], chance)  # type: ignore[index]
    return copy


def of_packed(data: bytes, chance: random.Random) -> bytes:
    """Other rows in `$listing`, packed again."""
    packed = zlib.compress(of_values(zlib.decompress(data), chance), 1)
    return packed if chance.random() < 0.8 else of_bytes(packed, chance)


# -- parsers -------------------------------------------------------------------------------------------------


def _header(data: bytes) -> object:
    header, room = parse_file(data, "x")
    if header is not None:
        assert parse_file(format_header(header), "x")[0] == header, "it is not what it says"
        with suppress(CorruptHeaderError):
            parse_more(header, room, data[-100:], "x")
    return header


def _footer(data: bytes) -> object:
    with understood():
        parquet_footer.columns(data)
        parquet_footer.group_rows(data)
        parquet_chunks.live_bytes(data)
        parquet_chunks.gaps(data, 10**6)
        parquet_footer.compressions(data)
        parquet_footer.join([JoinedFile(data, 0), JoinedFile(data, 10**6)])
    parquet_chunks.check_within(data, 10**6)
    return True


def _state(data: bytes) -> object:
    """The state of a header file that a token names, read from the file's end and from a text."""
    records.Mark.of(data[:200].decode("latin-1"))
    return records.mark_of(lambda start, end: data[start:end], len(data))


@cache
def _footers() -> list[bytes]:
    """Of real Parquet files; the last has an Arrow schema with durations."""
    import pyarrow as pa

    files = [parquet_file(pa.table(columns), row_group_size=1) for columns in TABLES]
    return [file[-8 - int.from_bytes(file[-8:-4], "little") : -8] for file in files]


@cache
def _schemas() -> list[bytes]:
    """Arrow's schemas, as the footers of Parquet files have them."""
    import pyarrow as pa

    return [b64encode(pa.table(columns).schema.serialize().to_pybytes()) for columns in TABLES]


def _units(data: bytes) -> object:
    with understood():
        return duration_units(data)


@cache
def headers() -> list[bytes]:
    return [data for path in sorted(FIXTURES.glob("*.header")) if (data := path.read_bytes())]


def _open_headers() -> list[bytes]:
    return [data for data in headers() if b"\nstate open\n" in data and UUID.encode() in data]


def _json(value: object) -> Callable[[], list[bytes]]:
    return lambda: [json.dumps(value).encode()]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file or text that others may have written."""

    samples: Callable[[], list[bytes]]
    mutations: tuple[Mutate, ...]
    parse: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    """How the parser refuses."""
    refuses: bool = True
    """Whether it refuses anything; what others say beside the bytes of an object counts as missing instead."""


KINDS = {
    "header": Kind(headers, (of_words, of_bytes), _header, (CorruptHeaderError,)),
    "records": Kind(_open_headers, (of_records,), _header, (CorruptHeaderError,)),
    "state": Kind(_open_headers, (of_records, of_bytes), _state, (ValueError,), refuses=False),
    "page": Kind(
        lambda: [format_page(CHUNKS)],
        (of_words, of_bytes),
        lambda data: list(parse_page(data, None, "x")),
        (CorruptHeaderError,),
    ),
    "pin": Kind(
        lambda: [format_pin(Pin(UUID, "a/s", "a/t", UUID), "a/s$chunks")],
        (of_words, of_bytes),
        lambda data: parse_pin(data, "a/s$chunks", "x"),
        (CorruptHeaderError,),
    ),
    "ledger": Kind(_json(LEDGER), (of_values,), lambda data: parse_ledger(data, "x"), (CorruptLedgerError,)),
    "rows": Kind(lambda: [format_rows(ROWS)], (of_packed,), parse_rows, (ValueError,)),
    "cut": Kind(
        _json(CUT), (of_values,), lambda data: StreamCut.parse(data.decode("latin-1")), (ValueError, TypeError)
    ),
    "policy": Kind(
        _json({"max_bytes": 9, "max_age": 5.0, "consolidate": True}),
        (of_values,),
        lambda data: parse_rolling(data.decode("latin-1")),
        (ValueError, TypeError),
    ),
    "label": Kind(
        _json(LABEL),
        (of_bytes,),
        lambda data: parse_label({key: data.decode("latin-1") for key in LABEL}),
        (),
        refuses=False,
    ),
    "footer": Kind(_footers, (of_bytes,), _footer, (MalformedFooterError,)),
    "schema": Kind(_schemas, (of_bytes,), _units, (MalformedFooterError,)),
}


# -- runs ----------------------------------------------------------------------------------------------------


def mutant(kind: Kind, chance: random.Random) -> bytes:
    """One mutant of one of the samples."""
    return chance.choice(kind.mutations)(chance.choice(kind.samples()), chance)


def try_many(name: str, count: int, seed: int = 0) -> int:
    """Parse some mutants of a kind; the number of those that were refused."""
    kind, chance, refused = KINDS[name], random.Random(f"{name} {seed}"), 0
    for _ in range(count):
        data = mutant(kind, chance)
        try:
            kind.parse(data)
        except kind.errors:
            refused += 1
        except BaseException:
            print(f"{name}, seed {seed}: {data!r}", file=sys.stderr)
            raise
    return refused


class TookTooLongError(BaseException):
    """A parser has used more CPU time than a small file may cost."""


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TookTooLongError


def main() -> None:
    name, count, seed = (*sys.argv[1:], *("1000", "0")[len(sys.argv) - 2 :])
    try_many(name, 500)  # what is made once is there
    kind, parse = KINDS[name], KINDS[name].parse
    with open("/proc/self/statm") as sizes:
        used = int(sizes.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + BYTES_MAX, -1))
    signal.signal(signal.SIGVTALRM, _too_long)

    def timed(data: bytes) -> object:
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
        return parse(data)

    KINDS[name] = replace(kind, parse=timed)
    print(try_many(name, int(count), int(seed)))


if __name__ == "__main__":
    main()
