"""Mutants of every kind of file: a parser takes them or raises its error, in bounded time and memory."""

import json
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from rollingfs.errors import CorruptHeaderError
from rollingfs.format.codec import parse_header
from rollingfs.format.listing_codec import parse_rows
from rollingfs.format.side_files import PAGE_BYTES_MAX
from rollingfs.format.tokens import seal_text
from rollingfs.stream.ledger_codec import parse_ledger
from tests.support.examples import MANY
from tests.support.mutants import BYTES_MAX, KINDS, LEDGER, UUID, try_many

MUTANTS = 400
MUTANTS_OF_CI = 10_000
MUTANTS_OF_NIGHTLY = 10_000_000
"""Two to three hours on two cores: a mutant of each kind takes 1.7 ms of CPU in all."""
RUN_S_MAX = 4 * 3600
"""Far more than a run takes; each mutant has a bound of its own, of CPU time."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutant_is_read_or_refused_by_its_parser(kind: str) -> None:
    refused = try_many(kind, MUTANTS)
    assert refused < MUTANTS
    assert refused > MUTANTS / 4 or not KINDS[kind].refuses


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.timeout(RUN_S_MAX)
@pytest.mark.parametrize("kind", KINDS)
def test_each_of_many_mutants_takes_little_time_and_memory(kind: str) -> None:
    count, seed = (MUTANTS_OF_NIGHTLY, int(time.time())) if MANY else (MUTANTS_OF_CI, 0)
    command = [sys.executable, "-m", "tests.support.mutants", kind, str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert done.returncode == 0, done.stderr
    assert 0 <= int(done.stdout) < count


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
    "a page 700 times": (lambda: seal_text(HEAD + PAGES), lambda data: parse_header(data, "x")),
    "a large header": (lambda: HEAD + bytes(2**22), lambda data: parse_header(data, "x")),
    "a page of many chunks": (
        lambda: seal_text(b"rollingfs-index 1\n" + b"".join(b"Chunk %d 1 x\n" % at for at in range(5000))),
        KINDS["page"].parse,
    ),
    "a large page": (lambda: bytes(PAGE_BYTES_MAX + 1), KINDS["page"].parse),
    "a large pin": (lambda: bytes(2**17), KINDS["pin"].parse),
}


@pytest.mark.parametrize("kind", GREEDY)
def test_a_small_greedy_file_is_refused_in_bounded_memory(kind: str) -> None:
    make, parse = GREEDY[kind]
    data = make()
    tracemalloc.start()
    try:
        with pytest.raises((CorruptHeaderError, ValueError)):
            parse(data)
        assert tracemalloc.get_traced_memory()[1] < BYTES_MAX
    finally:
        tracemalloc.stop()
