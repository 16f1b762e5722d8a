"""`concat` refuses formats that do not join, by every face, and changes nothing; `as_bytes` joins them."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy, WholeFileError
from tests.support.cli import done, failed
from tests.support.servers import require_module

require_module("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

PACKED = io.BytesIO()
pq.write_table(pa.table({"a": [1, 2, 3]}), PACKED)
PARQUET = PACKED.getvalue()
TEXT = b"line\n"


@pytest.fixture(params=[None, RollingPolicy(max_bytes=100, inline_bytes=0)], ids=["inline", "chunks"])
def folder(request: Any, tmp_path: Any) -> tuple[RollingFileSystem, str]:
    fs, root = RollingFileSystem("file"), f"{tmp_path}/{uuid.uuid4().hex}"
    for name, data in (("a", PARQUET), ("b", PARQUET), ("text", TEXT), ("long", TEXT * 1000)):
        fs.create(f"{root}/{name}", request.param)
        fs.append(f"{root}/{name}", data)
        fs.seal(f"{root}/{name}")
    fs.create(f"{root}/all", request.param)
    return fs, root


def test_two_parquet_files_are_refused_and_stay(folder: Any) -> None:
    fs, root = folder
    sources = [f"{root}/a", f"{root}/b"]
    handle = fs.segment(f"{root}/all")
    for concat in (lambda: fs.concat(f"{root}/all", sources), lambda: handle.concat(sources)):
        with pytest.raises(WholeFileError, match=r"is a Parquet file.*Nothing was joined; as_bytes=True"):
            concat()
        assert fs.info(f"{root}/all")["size"] == 0
        assert all(pq.read_table(path, filesystem=fs).num_rows == 3 for path in sources)
    assert fs.concat(f"{root}/all", sources, as_bytes=True) == 0
    assert fs.cat_file(f"{root}/all") == 2 * PARQUET


def test_one_such_source_among_others_refuses_all(folder: Any) -> None:
    fs, root = folder
    with pytest.raises(WholeFileError, match="/b is"):
        fs.concat(f"{root}/all", [f"{root}/text", f"{root}/b"])
    assert fs.info(f"{root}/text")["sealed"]


def test_text_joins(folder: Any) -> None:
    fs, root = folder
    fs.concat(f"{root}/all", [f"{root}/text", f"{root}/long"])
    assert fs.cat_file(f"{root}/all") == TEXT * 1001


def test_the_bytes_of_a_truncated_source_count(folder: Any) -> None:
    fs, root = folder
    fs.truncate(f"{root}/a", 10)
    with pytest.raises(WholeFileError, match="Parquet"):
        fs.concat(f"{root}/all", [f"{root}/a"])


def test_the_command_refuses_and_leaves_no_target(folder: Any) -> None:
    fs, root = folder
    new, sources = f"{root}/new", (f"{root}/a", f"{root}/b")
    assert "is a Parquet file" in (text := failed("concat", "--create", new, *sources))
    assert "--as-bytes" in text
    assert not fs.exists(new)
    done("concat", "--create", "--as-bytes", new, *sources)
    assert fs.cat_file(new) == 2 * PARQUET
