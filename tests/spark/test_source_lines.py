"""Lines without a session: JSON by Arrow's reader, or refused with the offset; and compressed segments of lines."""

import bz2
import gzip
import json
import lzma
import re
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import ArrayType, IntegerType, StructType

from rollingfs.spark.source.datasource import RollingDataSource
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.options import parse_options
from rollingfs.spark.source.segments import SegmentReader, extent_of
from tests.support.examples import slowly
from tests.support.spark import SMALL
from tests.support.spark_source import NUMBERS, batch_reader, given, put, read, reader, rows_of, step

WIDE = (
    StructType().add("n", "long").add("s", "string").add("t", "boolean").add("d", "double")
    .add("l", ArrayType(IntegerType())).add("o", StructType().add("x", "short").add("y", "string"))
)  # fmt: skip


def rows(path: Any, schema: StructType, **options: Any) -> list[dict[str, Any]]:
    return rows_of(batch_reader(path, schema, format="json", **options))


@pytest.mark.parametrize("block_bytes", [16, 4096, *slowly(100)])
def test_sound_lines_are_the_rows_of_their_objects(fs, tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(lines, "LOCAL_BLOCK_BYTES", block_bytes)
    objects: list[dict[str, Any]] = [
        {"n": nth, "s": f"é}} {{ {nth}", "t": nth % 2 == 0, "d": nth / 4, "l": [1, None], "o": {"x": nth, "y": None}}
        for nth in range(30)
    ]
    objects += [dict.fromkeys(WIDE.names), {**objects[0], "l": [], "o": {"x": None, "y": "}"}}]
    text = "\r\n \n".join(json.dumps({**one, "more": [1]}, ensure_ascii=False) for one in objects)
    put(fs, tmp_path / "s", b"\xef\xbb\xbf" + text.encode(), SMALL)
    for size in ("40", "1MiB"):
        assert rows(tmp_path / "s", WIDE, partitionBytes=size) == objects


BAD = {
    "null": b"null",
    "a list": b'[{"n": 2}]',
    "a number": b"2",
    "two objects": b'{"n": 2} {"n": 3}',
    "garbage behind": b'{"n": 2} x',
    "cut off": b'{"n": 2',
    "text in a column of numbers": b'{"n": "2"}',
    "a fraction": b'{"n": 2.5}',
    "too large": b'{"n": 9223372036854775808}',
    "twice": b'{"n": 2, "n": 3}',
    "not UTF-8": b'{"s": "\xff"}',
    "a mark within": b'\xef\xbb\xbf{"n": 2}',
    "a zero byte": b'{"n": 2}\0',
    "over two lines": b'{"n":\n2}',
    "two objects, and a blank line": b'{"n": 2} {"n": 3}\n',
    "over two lines, and two in one": b'{"o":\n{}} {"n":2}',
}


@pytest.mark.parametrize("name", BAD)
def test_line_refused_by_arrow_ends_the_query_with_advice(fs, tmp_path, name):
    before = b'{"n": 1}\n\n' * 9
    fs.overwrite(str(tmp_path / "s"), before + BAD[name] + b"\n" + b'{"n": 4}\n' * 9)
    with pytest.raises(ValueError, match=rf"/s: the line at offset {len(before)} is refused") as raised:
        rows(tmp_path / "s", StructType().add("n", "long").add("s", "string"))
    assert "rollingfs.spark.stream_json(spark, url, schema)" in str(raised.value)


def test_stream_ends_at_such_a_line_after_earlier_rows(fs, tmp_path):
    path = tmp_path / "s"
    fs.overwrite(str(path), b'{"n": 1}\n{"n": 2}\n')
    source = reader(path, NUMBERS, format="json")
    found, at = step(source)
    assert found == [1, 2]
    fs.append(str(path), b'{"n": 3}\n{"n": true}\n')
    with pytest.raises(ValueError, match="the line at offset 27 is refused"):
        step(source, at)


REFUSED = (types.TimestampType(), types.TimestampNTZType(), types.DateType(), types.DecimalType(5, 2))
REFUSED += (types.BinaryType(), types.MapType(types.StringType(), types.LongType()), ArrayType(types.DateType()))


@pytest.mark.parametrize("kind", REFUSED, ids=types.DataType.simpleString)
def test_unsupported_arrow_type_is_refused_at_the_plan(tmp_path, kind):
    (tmp_path / "s").write_bytes(b"{}\n")
    for options in ({}, {"partitionColumns": "false"}):
        with pytest.raises(ValueError, match=r"column 'c' is of type .*stream_json\(spark, url, schema\)"):
            rows(tmp_path / "s", StructType().add("c", kind), **options)


def test_without_schema_and_for_writes_the_line_is_named(tmp_path):
    (tmp_path / "s").write_bytes(b'{"n": 1}\n')
    source = RollingDataSource(given(tmp_path / "s", format="json"))
    with pytest.raises(ValueError, match=re.escape("needs .schema(...)") + ".*read_json"):
        source.schema()
    with pytest.raises(ValueError, match=r"rollingfs\.spark\.to_json\(rows\)\.write.*nothing was written"):
        source.writer(NUMBERS, overwrite=False)


def test_blank_segments_have_no_rows(fs, tmp_path):
    fs.overwrite(str(tmp_path / "s"), b"\n  \n\t\n")
    assert rows(tmp_path / "s", NUMBERS) == []


# -- compressed ----------------------------------------------------------------------------------------------------

PLAIN = b"".join(b"line %d\r\n" % nth for nth in range(3000)) + b"no end"
WANTED = [f"line {nth}" for nth in range(3000)] + ["no end"]


def compressed(codec: str, data: bytes) -> bytes:
    """The data as two members, one behind the other."""
    half = len(data) // 2
    parts = (data[:half], data[half:])
    by_arrow = partial(pa.compress, codec=codec, asbytes=True)
    pack = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}.get(codec, by_arrow)
    return b"".join(map(pack, parts))


ENDINGS = {"gzip": "gz", "bz2": "bz2", "xz": "xz", "zstd": "zst", "lz4": "lz4"}


@pytest.mark.parametrize("codec", list(lines.READABLE))
def test_compressed_segment_is_read_by_name_or_refused(fs, tmp_path, monkeypatch, codec):
    monkeypatch.setattr(lines, "LOCAL_BLOCK_BYTES", 1000)
    data = compressed(codec, PLAIN)
    named, bare = f"{tmp_path}/a.{ENDINGS[codec]}", f"{tmp_path}/a"
    for path in (named, bare):
        fs.overwrite(path, data)
    assert read(named, partitionBytes="100") == WANTED
    assert read(bare, compression=codec) == WANTED
    fs.overwrite(named, data[:-3])
    with pytest.raises(ValueError, match=r"a\.\w+: its bytes are not a whole"):
        read(named)
    fs.overwrite(named, b"plain\n")
    with pytest.raises(ValueError, match=r"a\.\w+: its bytes are not a whole .*compression=none"):
        read(named)
    assert read(named, compression="none") == ["plain"]


@pytest.mark.parametrize("block_bytes", [1, 1000])
def test_byte_order_mark_of_a_compressed_segment_is_dropped(fs, tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(lines, "LOCAL_BLOCK_BYTES", block_bytes)
    path = put(fs, tmp_path / "s.gz", gzip.compress("\ufeffone\n\ufefftwo".encode()))
    assert read(path) == ["one", "\ufefftwo"]


@pytest.mark.parametrize("name", ["a.snappy", "a.zip", "a.deflate"])
def test_unreadable_compression_is_refused_before_any_task(fs, tmp_path, name):
    fs.overwrite(f"{tmp_path}/{name}", b"bytes")
    reader = batch_reader(f"{tmp_path}/{name}")
    with pytest.raises(ValueError, match=f"{name}: its name says that it is compressed"):
        reader.partitions()


def test_a_part_of_a_compressed_segment_is_refused(fs, tmp_path):
    path = f"{tmp_path}/a.gz"
    fs.overwrite(path, compressed("gzip", PLAIN))
    view = fs._bridge.run(fs._client.headers.view(path, fresh=True))
    options = parse_options(given(path))
    with pytest.raises(ValueError, match=r"a\.gz: .*only the whole can be read, and not bytes 0 to 10 of it"):
        options.form.cut(SegmentReader(fs, view), extent_of(view, 0, 10), 100, "gzip")
