"""Formats that do not join are told by their first and last bytes, and nothing else is."""

import gzip
import io
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollingfs.format.whole_files import HEAD_BYTES, TAIL_BYTES, format_of
from tests.support.servers import require_module

require_module("pyarrow")

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet

TABLE = pa.table({"a": list(range(1000)), "b": [str(number) for number in range(1000)]})


def written(write: Callable[[Any], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def zipped(file: io.BytesIO, comment: bytes = b"") -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("name", "text" * 1000)
        archive.comment = comment


def self_extracting(file: io.BytesIO) -> None:
    file.write(b"#!/bin/sh\n" * 300)
    zipped(file, b"comment")


def tarred(file: io.BytesIO) -> None:
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("name"))


def stream(file: io.BytesIO) -> None:
    with pa.ipc.new_stream(file, TABLE.schema) as writer:
        writer.write_table(TABLE)


def found(data: bytes) -> str | None:
    return format_of(data[:HEAD_BYTES], data[-TAIL_BYTES:])


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda file: pa.parquet.write_table(TABLE, file), "Parquet"),
        (lambda file: pa.orc.write_table(TABLE, file), "ORC"),
        (lambda file: pa.feather.write_feather(TABLE, file), "Arrow (Feather)"),
        (zipped, "zip"),
        (lambda file: zipped(file, b"c" * 5000), "zip"),
        (self_extracting, "zip"),
        (tarred, "tar"),
        (lambda file: file.write(b"Obj\x01" + bytes(50)), "Avro"),
    ],
)
def test_a_format_that_does_not_join_is_found(write: Any, name: str) -> None:
    assert found(written(write)) == name


def test_a_database_is_told(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "db")
    database.execute("create table t (a)")
    database.close()
    assert found((tmp_path / "db").read_bytes()) == "SQLite"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"the magic of Parquet is PAR1\n",
        b"and that of ORC is ORC\n",
        b"PK\x05\x06 begins the end of a zip",
        bytes(5000),
        gzip.compress(b"text", mtime=0),
        written(stream),
        b'{"a": 1}\n' * 300,
    ],
)
def test_what_joins_is_not_refused(data: bytes) -> None:
    assert found(data) is None
