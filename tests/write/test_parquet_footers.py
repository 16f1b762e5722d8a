"""The footer of a Parquet file in a segment: found with one read, or two."""

from __future__ import annotations

import io
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.format.thrift import MalformedFooterError
from rollingfs.fs.core import core
from rollingfs.write import parquet_footers
from tests.support.servers import require_module

require_module("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

BEFORE = b"before"
"""What was truncated: offsets of the file are not those of the segment."""


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": list(range(100))}), sink)
    return sink.getvalue()


class Reads:
    """A fetcher that notes what is read."""

    def __init__(self, fs: RollingFileSystem) -> None:
        self.fetcher = core(fs).client.fetcher
        self.ranges: list[tuple[int, int]] = []

    async def read(self, view: Any, start: int, end: int) -> bytes:
        self.ranges.append((start, end))
        return bytes(await self.fetcher.read(view, start, end))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("inline_bytes", [0, 100, 10_000])
def test_the_footer_is_the_same_wherever_its_first_read_begins(monkeypatch: Any, parts: int, inline_bytes: int) -> None:
    fs, data = RollingFileSystem("memory"), parquet()
    path = f"/footers/{parts}-{inline_bytes}"
    fs.create(path, RollingPolicy(max_bytes=100_000, inline_bytes=inline_bytes))
    fs.append(path, BEFORE)
    for nth in range(parts):
        fs.append(path, data[len(data) * nth // parts : len(data) * (nth + 1) // parts])
    fs.truncate(path, len(BEFORE))
    view = core(fs).run(core(fs).client.lookup.view(path, fresh=True))
    size = pq.read_metadata(io.BytesIO(data)).serialized_size
    for most in range(0, len(data) + 10, 7):
        monkeypatch.setattr(parquet_footers, "FOOTER_READ_BYTES", max(8, most))
        reads = Reads(fs)
        found = core(fs).run(parquet_footers.footer_of(reads, view))  # type: ignore[arg-type]
        assert found == data[len(data) - 8 - size : -8]
        assert len(reads.ranges) == (1 if reads.ranges[0][0] <= view.length - 8 - size else 2)


def test_what_is_no_parquet_is_refused() -> None:
    fs = RollingFileSystem("memory")
    for data in (b"x", b"some text, no Parquet", b"PAR1", b"12345678PAR1"):
        fs.pipe_file("/footers/text", data)
        view = core(fs).run(core(fs).client.lookup.view("/footers/text", fresh=True))
        with pytest.raises(MalformedFooterError, match="does not end as a Parquet file does"):
            core(fs).run(parquet_footers.footer_of(core(fs).client.fetcher, view))
