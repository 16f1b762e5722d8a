"""The page on joining is what readers do, and `concat` refuses what a reader does not find whole."""

import re

import pytest

from tests.formats.joining import COUNT, PAGE, cells, formats, joins, outcome
from tests.formats.readers import READERS
from tests.support.servers import found_by

LIGHT = {"pandas", "polars", "DuckDB", "pyarrow", "HF datasets", "numpy", "Pillow", "pickle", "wave", "zipfile"}
LIGHT |= {"tarfile", "tarfile (streaming)"}
"""Readers that the extra `test` has. The extra `formats` has the others, for `.ci/nightly`."""
FIRST_FRAME = {(f"JSON lines, {kind}", "daft") for kind in ("bzip2", "xz", "zstd")}
"""daft reads the first frame only. These files join all the same, and the page says so."""
HEAVY = {"Avro", "Vortex", "MCAP", "MAT", "safetensors", "ASDF", "FITS", "BigTIFF"}
"""Formats that no package of the extra `test` writes."""
NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)
CASES = [
    pytest.param(kind, reader, marks=() if reader in LIGHT and kind not in HEAVY else NIGHTLY)
    for kind, readers in READERS.items()
    for reader in readers
]


@pytest.mark.parametrize(("kind", "reader"), CASES)
def test_a_reader_finds_what_the_page_says(kind: str, reader: str) -> None:
    found = found_by(outcome, kind, reader)
    assert found == cells()[kind, reader]


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=NIGHTLY if kind in HEAVY else ()) for kind in READERS])
def test_concat_does_what_the_page_says(kind: str) -> None:
    assert joins(kind) == cells()[kind, ""]


@pytest.mark.parametrize("kind", READERS)
def test_what_readers_find_in_part_is_refused(kind: str) -> None:
    partly = [reader for reader in READERS[kind] if cells()[kind, reader] != "all rows"]
    refused = cells()[kind, ""] == "refused"
    assert refused == bool([reader for reader in partly if (kind, reader) not in FIRST_FRAME])


def test_the_page_counts_the_formats() -> None:
    assert [int(count) for _, count in re.findall(COUNT, PAGE.read_text())] == [formats()]
