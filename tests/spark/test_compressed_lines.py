"""Compressed segments of lines, without a session."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pyarrow as pa
import pytest

from rollingfs.spark.source.formats import compression, lines
from rollingfs.spark.source.formats.compression import CompressedError
from rollingfs.spark.source.options import parse_options
from rollingfs.spark.source.segments import SegmentReader, extent_of
from tests.support.spark_source import batch_reader, given, read

PLAIN = b"".join(b"line %d\r\n" % nth for nth in range(3000)) + b"no end"
WANTED = [f"line {nth}" for nth in range(3000)] + ["no end"]


def compressed(codec: str, data: bytes) -> bytes:
    """The data as two members, one behind the other."""
    half = len(data) // 2
    parts = (data[:half], data[half:])
    if codec in ("zstd", "lz4"):
        whole = []
        for part in parts:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, codec) as file:
                file.write(part)
            whole.append(sink.getvalue().to_pybytes())
        return b"".join(whole)
    pack = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[codec]
    return b"".join(map(pack, parts))


ENDINGS = {"gzip": "gz", "bz2": "bz2", "xz": "xz", "zstd": "zst", "lz4": "lz4"}


@pytest.mark.parametrize("codec", list(compression.READABLE))
def test_a_compressed_segment_is_read_by_its_name_and_refused_if_its_bytes_are_others(fs, tmp_path, monkeypatch, codec):
    monkeypatch.setattr(lines, "LOCAL_BLOCK_BYTES", 1000)
    data = compressed(codec, PLAIN)
    named, bare = f"{tmp_path}/a.{ENDINGS[codec]}", f"{tmp_path}/a"
    for path in (named, bare):
        fs.overwrite(path, data)
    assert read(named, partitionBytes="100") == WANTED
    assert read(bare, compression=codec) == WANTED
    fs.overwrite(named, data[:-3])
    with pytest.raises(CompressedError, match=r"a\.\w+: its bytes are not a whole"):
        read(named)
    fs.overwrite(named, b"plain\n")
    with pytest.raises(CompressedError, match=r"a\.\w+: its bytes are not a whole .*compression=none"):
        read(named)
    assert read(named, compression="none") == ["plain"]


@pytest.mark.parametrize("name", ["a.snappy", "a.zip", "a.deflate"])
def test_a_compression_that_cannot_be_read_is_refused_before_any_task_begins(fs, tmp_path, name):
    fs.overwrite(f"{tmp_path}/{name}", b"bytes")
    reader = batch_reader(f"{tmp_path}/{name}")
    with pytest.raises(CompressedError, match=f"{name}: its name says that it is compressed"):
        reader.partitions()


def test_a_part_of_a_compressed_segment_is_refused(fs, tmp_path):
    path = f"{tmp_path}/a.gz"
    fs.overwrite(path, compressed("gzip", PLAIN))
    view = fs._bridge.run(fs._client.lookup.view(path, fresh=True))
    options = parse_options(given(path))
    with pytest.raises(CompressedError, match=r"a\.gz: .*only the whole can be read, and not bytes 0 to 10 of it"):
        options.form.cut(SegmentReader(fs, view), extent_of(view, 0, 10), options)
