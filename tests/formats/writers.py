"""Writers that add to a file twice, and what a reader finds: `python -m tests.formats.writers [--page]`."""

from __future__ import annotations

import bz2
import csv
import gzip
import inspect
import io
import lzma
import pickle
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from rollingfs import RollingFileSystem
from tests.formats.joining import ANSWERS, FIRST, PAGE, SECOND
from tests.formats.parts import lines, table
from tests.formats.readers import CSV_READERS, JSON_READERS, PARQUET_READERS, READERS, STREAM_READERS
from tests.support.backends import private_memory
from tests.support.pages import table_rows, with_block

PATH = "/rows"
MARK = "made by python -m tests.formats.writers --page"
RECIPE = "made of append_avro of tests/formats/writers.py"
SCHEMA = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": "long"}]}
Rows = list[int]
Write = Callable[[Any, Rows], object]


def append_avro(fs: RollingFileSystem, path: str, rows: list[dict[str, Any]]) -> None:
    """Append a block of Avro, or the header and a block to the empty file."""
    import fastavro

    head = fs.cat_file(path, 0, 64 * 1024)
    buffer = io.BytesIO(head)
    buffer.seek(0, 2)
    fastavro.writer(buffer, SCHEMA, rows)
    fs.append(path, buffer.getvalue()[len(head) :], expected_offset=None if head else 0)


def frame(module: str, rows: Rows) -> Any:
    return import_module(module).DataFrame({"a": rows})


def add_zip(file: Any, rows: Rows) -> None:
    with zipfile.ZipFile(file, "a") as archive:
        for row in rows:
            archive.writestr(str(row), b"")


def add_tar(file: Any, rows: Rows) -> None:
    with tarfile.open(fileobj=file, mode="a") as archive:
        for row in rows:
            archive.addfile(tarfile.TarInfo(str(row)))


def add_stream(file: Any, rows: Rows) -> None:
    with import_module("pyarrow.ipc").new_stream(file, table(rows).schema) as writer:
        writer.write_table(table(rows))


def compressed(module: Any) -> Write:
    def write(file: Any, rows: Rows) -> None:
        with module.open(file, "ab") as inner:
            inner.write(lines(rows))

    return write


def of(module: str, verb: str) -> Any:
    return getattr(import_module(module), verb)


def each(load: Callable[[Any], Any]) -> Callable[[Path], Iterable[Any]]:
    """Return a reader that loads one value after the other."""

    def read(path: Path) -> Iterable[Any]:
        with path.open("rb") as file:
            while file.tell() < path.stat().st_size:
                yield from load(file)

    return read


ON_A_FILE: dict[str, tuple[Write, Callable[[Path], Iterable[Any]]]] = {
    "`csv.writer(io.TextIOWrapper(file)).writerows(…)`": (
        lambda file, rows: csv.writer(io.TextIOWrapper(file, newline="", write_through=True)).writerows(
            [row] for row in rows
        ),
        CSV_READERS["pandas"],
    ),
    "pandas `to_csv(file, header=False, index=False)`": (
        lambda file, rows: frame("pandas", rows).to_csv(file, header=False, index=False),
        CSV_READERS["pandas"],
    ),
    'pandas `to_json(file, orient="records", lines=True)`': (
        lambda file, rows: frame("pandas", rows).to_json(file, orient="records", lines=True),
        JSON_READERS["pandas"],
    ),
    "polars `write_csv(file, include_header=False)`": (
        lambda file, rows: frame("polars", rows).write_csv(file, include_header=False),
        CSV_READERS["polars"],
    ),
    "polars `write_ndjson(file)`": (
        lambda file, rows: frame("polars", rows).write_ndjson(file),
        JSON_READERS["polars"],
    ),
    '`gzip.open(file, "ab")`': (compressed(gzip), JSON_READERS["pandas"]),
    '`bz2.open(file, "ab")`': (compressed(bz2), JSON_READERS["pandas"]),
    '`lzma.open(file, "ab")`': (compressed(lzma), JSON_READERS["pandas"]),
    "`pickle.dump(rows, file)`, read by `load` in a loop": (
        lambda file, rows: pickle.dump(rows, file),
        each(pickle.load),
    ),
    "`numpy.save(file, rows)`, read by `load` in a loop": (
        lambda file, rows: of("numpy", "save")(file, rows),
        each(lambda file: of("numpy", "load")(file).tolist()),
    ),
    "`pyarrow.ipc.new_stream(file, schema)`": (add_stream, STREAM_READERS["pyarrow"]),
    "`pyarrow.parquet.write_table(rows, file)`": (
        lambda file, rows: of("pyarrow.parquet", "write_table")(table(rows), file),
        PARQUET_READERS["pyarrow"],
    ),
    "`fastavro.writer(file, schema, rows)`": (
        lambda file, rows: of("fastavro", "writer")(file, SCHEMA, [{"a": row} for row in rows]),
        READERS["Avro"]["fastavro"],
    ),
    '`zipfile.ZipFile(file, "a")`': (add_zip, READERS["zip"]["zipfile"]),
    '`tarfile.open(fileobj=file, mode="a")`': (add_tar, READERS["tar"]["tarfile"]),
}
"""By the line that is written: the writer on a file that is open by ``"ab"``, and the reader."""


def outcome(line: str) -> str:
    """Return what is in a file that a writer has added to twice."""
    write, read = ON_A_FILE[line]
    fs = RollingFileSystem(backend=private_memory())
    try:
        for rows in (FIRST, SECOND):
            with fs.open(PATH, "ab") as file:
                write(file, rows)
    except ModuleNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001 - the error of any library is its answer
        return f"refused by the writer ({type(error).__name__})"
    return found(fs.cat_file(PATH), read)


def found(data: bytes, read: Callable[[Path], Iterable[Any]]) -> str:
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / ("a.gz" if data[:2] == b"\x1f\x8b" else "a.bz2" if data[:3] == b"BZh" else "a")
        path = path.with_suffix(".xz") if data[:5] == b"\xfd7zXZ" else path
        path.write_bytes(data)
        try:
            return ANSWERS.get(tuple(read(path)), "other rows")
        except ModuleNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001
            return f"not readable ({type(error).__name__})"


def recipe() -> str:
    """Return the code of the page that appends to an Avro file."""
    code = re.sub(r'(?<=\) -> None:\n)    """.*\n    import fastavro\n\n', "", inspect.getsource(append_avro))
    return f"```python not-run: tests/formats/test_writers.py runs it\nimport io\n\nimport fastavro\n\n\n{code}```\n"


def page_block() -> str:
    """Return the table of the page."""
    groups: dict[str, list[str]] = {}
    for line in ON_A_FILE:
        groups.setdefault(outcome(line), []).append(line)
    rows = ["| a reader finds | writers |", "|---|---|"]
    rows += [f"| {answer} | {' · '.join(group)} |" for answer, group in groups.items()]
    return "\n".join(rows) + "\n"


def shown() -> dict[str, str]:
    """Return what the page says of each writer."""
    rows = table_rows(PAGE.read_text(), MARK)
    return {line: answer for answer, group in rows for line in group.split(" · ")}


if __name__ == "__main__":
    if "--page" in sys.argv:
        page = with_block(PAGE.read_text(), MARK, page_block())
        PAGE.write_text(with_block(page, RECIPE, recipe()))
    else:
        print(page_block(), recipe())
