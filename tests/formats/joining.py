"""Join two files of each format, read them, and write what readers find: `python -m tests.formats.joining [--page]`."""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from rollingfs.errors import WholeFileError
from rollingfs.format import whole_files
from rollingfs.format.whole_files import HEAD_BYTES, TAIL_BYTES, JoinPart, head_bytes, unended
from tests.formats.parts import MAKE, WAYS
from tests.formats.readers import READERS, SUFFIX
from tests.support.pages import table_rows, with_block

FIRST, SECOND = [1, 2, 3], [4, 5, 6]
PAGE = Path(__file__).parents[2] / "docs" / "joining.md"
MARK = "made by python -m tests.formats.joining --page"
COUNT = r"(`concat` refuses )(\d+)(?= formats)"
ANSWERS = {(*FIRST, *SECOND): "all rows", tuple(FIRST): "first only", tuple(SECOND): "last only"}
PACKAGES = {
    "HF datasets": "datasets",
    "DuckDB": "duckdb",
    "chDB": "chdb",
    "vortex": "vortex-data",
    "Pillow": "pillow",
} | dict.fromkeys(("tarfile", "zipfile", "wave", "pickle"), "")
"""Packages whose names are not those of the readers; empty for what is Python's own."""


def outcome(kind: str, reader: str) -> str:
    """Return what a reader finds in two files in a row."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / f"joined{SUFFIX.get(kind, '')}"
        path.write_bytes(WAYS[kind][1](FIRST, SECOND) if kind in WAYS else MAKE[kind](FIRST) + MAKE[kind](SECOND))
        try:
            found = tuple(READERS[kind][reader](path))
        except ModuleNotFoundError:
            raise
        except BaseException as error:  # Rust libraries panic by other classes
            if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Skipped":
                raise
            return "error"
    return ANSWERS.get(found, "other rows")


def joins(kind: str) -> str:
    """Return what `concat` does with two such files, or the way to make one of them."""
    if kind in WAYS:
        return WAYS[kind][0]
    parts = []
    for name, rows in (("first", FIRST), ("second", SECOND)):
        data = MAKE[kind](rows)
        head = data[: max(HEAD_BYTES, head_bytes(data[:HEAD_BYTES]))]
        parts.append(JoinPart(name, None, (0, len(data)), head, data[-TAIL_BYTES:]))
    try:
        unended(parts, adds_line_feeds=False)
    except WholeFileError:
        return "refused"
    return "joins"


def tool(reader: str) -> str:
    reader = reader.partition(" (")[0]
    package = PACKAGES.get(reader, reader)
    return f"{reader} {version(package)}" if package else "Python " + ".".join(map(str, sys.version_info[:2]))


def formats() -> int:
    """Return the number of formats that `concat` refuses."""
    rows = [line for line in whole_files.MARKS.splitlines() if line and not line.startswith("#")]
    names = {whole_files.COLUMNS.split(row)[2] for row in rows}
    return len({*names, "ORC", "zip", "tar", "zlib"})


def table() -> str:
    """Return the table of the page."""
    rows = ["| format | `concat` | readers of two files in a row |", "|---|---|---|"]
    for kind, readers in READERS.items():
        found: dict[str, list[str]] = {}
        for reader in readers:
            found.setdefault(outcome(kind, reader), []).append(reader)
        cell = "; ".join(f"{answer}: {', '.join(names)}" for answer, names in found.items())
        rows.append(f"| {kind} | {joins(kind)} | {cell} |")
    used = sorted({tool(reader) for readers in READERS.values() for reader in readers}, key=str.lower)
    return "\n".join(rows) + f"\n\nThe readers: {', '.join(used)}.\n"


def cells() -> dict[tuple[str, str], str]:
    """Return what the page says of each format and reader, and of `concat` as the reader ``""``."""
    found = {}
    for kind, verdict, outcomes in filter(lambda row: len(row) == 3, table_rows(PAGE.read_text(), MARK)):
        found[kind, ""] = verdict
        for group in outcomes.split("; "):
            answer, _, names = group.partition(": ")
            for reader in READERS[kind]:
                if f", {reader}," in f", {names},":
                    found[kind, reader] = answer
    return found


if __name__ == "__main__":
    if "--page" in sys.argv:
        page = re.sub(COUNT, rf"\g<1>{formats()}", PAGE.read_text())
        PAGE.write_text(with_block(page, MARK, table()))
    else:
        print(table())
