"""Pins, rows, cuts and memories of streams as 0.2.0 wrote them: every release from then on must read them.

NEVER regenerate or change a file under ``fixtures/files``; `test_header_fixtures` holds the headers and index pages.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollingfs import OffloadPolicy, RetentionPolicy, StreamCut
from rollingfs.format.listing_codec import Row, format_rows, parse_rows
from rollingfs.format.side_files import Pin, format_pin, parse_pin
from rollingfs.stream.ledger_codec import Goal, Ledger, format_ledger, parse_ledger

FOLDER = Path(__file__).parents[1] / "fixtures" / "files"
SEGMENT, PLAIN = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27", 'plain 1800000000 "5d41402abc4b2a76"'
TXN = "c0ffee00-0000-4000-8000-000000000001"
CUT = StreamCut({"part-0": 1800, "part ä": 5}, 1_800_000_000.5, 3000, {"part-0": SEGMENT, "part ä": PLAIN})
LATER = StreamCut({"part-0": 2000}, 1_800_000_600.0, 3200, {"part-0": SEGMENT})
ROWS = {
    "part-0": Row(
        "part-0", '"5d41402a"', SEGMENT, 42, "open", 1048576, 75497477, 2, 1_800_000_000_000, 1_800_000_005_125
    )
}
FILES: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "pin": (
        Pin(TXN, "a/2026/01", "a/b/2026 year", SEGMENT),
        lambda pin: format_pin(pin, "a/2026/01$chunks"),
        lambda data: parse_pin(data, "a/2026/01$chunks", "pin"),
    ),
    "rows": (ROWS, lambda rows: format_rows(rows.values()), parse_rows),
    "cut": (CUT, lambda cut: str(cut).encode(), lambda data: StreamCut.parse(data.decode())),
    "ledger": (
        Ledger(
            RetentionPolicy.by_size(1000, 5000),
            (CUT, LATER),
            {"billing": (CUT, 1_800_000_001.0)},
            {"part-0": Goal(900, SEGMENT)},
            False,
            OffloadPolicy("cold", 2**30, "7d"),
        ),
        format_ledger,
        lambda data: parse_ledger(data, "ledger"),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_release_020_reads_as_then(name: str) -> None:
    value, format_file, parse_file = FILES[name]
    data = (FOLDER / name).read_bytes()
    assert parse_file(data) == value
    assert name == "rows" or format_file(value) == data, "zlib may compress otherwise"


def test_every_file_is_described() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(FILES)
