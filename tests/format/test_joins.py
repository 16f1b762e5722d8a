"""What may be joined: whole files, blocks of Avro, compressed archives, lines."""

import bz2
import contextlib
import gzip
import io
import lzma
import pickle
import re
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest

from rollingfs.errors import WholeFileError
from rollingfs.format.whole_files import (
    COLUMNS,
    DEEP_BYTES,
    HEAD_BYTES,
    MARKS,
    TAIL_BYTES,
    JoinPart,
    format_of,
    head_bytes,
    lz4_first_bytes,
    unended,
    unjoinable,
)
from tests.support.servers import require_module

require_module("zstandard")
import zstandard

MARKER = b"m" * 16
TEXT = b"line\n"
PIECES = (b"abc", b"def")
"""Text without any line feed may be pieces of one line."""
AVRO = b"Obj\x01" + b"schema\0" * 99 + MARKER + b"\2\2block" + MARKER


XML = b'<?xml version="1.0"?>\n<rows/>\n'


LZ4_TAR, LZ4_STREAM, LZ4_LINES = map(
    bytes.fromhex,
    (
        "04224d186840002800000000000015710000008f6e756d6265727300010049713030303036343408003c3030300800000200041400000200"
        "af003030373333310020309500490402007f757374617200306c00520f0200ffffffffffffffffffffffffffffffffffffffffffffffffff"
        "ffffffffffffffffffffffffffa150000000000000000000",
        "04224d18784088000000000000005371000000a0ffffffff7800000010000100b00a000c000600050008000a0f00e30104000c0000000800"
        "080000000406007100000100000014340071140008000600072600131044002001024c00111c320000450002300011614800510c00080007"
        "4800f0010000000140000000ffffffff0000000071a49bbe00000000",
        "04224d1860408218000000716c696e6520310a0700123207000f0e00ed506e6520320a00000000",
    ),
)
"""Frames that lz4 4.4.5 wrote: of a tar, of an Arrow stream with checksums of blocks, of 40 lines."""


def archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("numbers")
        data = b"".join(b"%d" % number for number in range(100_000))
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


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


def database() -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        made.execute("create table t (a)")
        return made.serialize()


def part(path: str, data: bytes) -> JoinPart:
    head = data[: max(HEAD_BYTES, head_bytes(data[:HEAD_BYTES]))]
    return JoinPart(path, None, (0, len(data)), head, data[-TAIL_BYTES:])


def joined(*contents: bytes, newline: bool = False) -> list[str]:
    return unended([part(f"/{nth}", data) for nth, data in enumerate(contents)], adds_line_feeds=newline)


def lzip(data: bytes) -> bytes:
    """A member of lzip: the older form of xz with another header, and a trailer."""
    options = {"id": lzma.FILTER_LZMA1, "dict_size": 2**16, "lc": 3, "lp": 0, "pb": 2}
    member = b"LZIP\1\x10" + lzma.compress(data, format=lzma.FORMAT_ALONE, filters=[options])[13:]
    sizes = struct.pack("<IQQ", zlib.crc32(data), len(data), len(member) + 20)
    try:
        assert lzma.decompress(member + sizes) == data
    except lzma.LZMAError:
        pytest.skip("this liblzma has no lzip")
    return member + sizes


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, lzip, zstandard.compress])
def test_a_compressed_tar_is_found(compress) -> None:
    with pytest.raises(WholeFileError, match="/1 is a compressed tar file"):
        joined(b"text\n", compress(archive()))
    lines = compress(b"".join(b"line %d\n" % number for number in range(100_000)))
    assert joined(lines, lines) == []
    assert joined(b"", compress(archive())) == []


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\xd4\xc3\xb2\xa1\x02\0\x04\0" + bytes(16), "pcap"),
        (b"\x89MCAP0\r\n" + bytes(30), "MCAP"),
        (b"RIFF\x24\x08\0\0WAVEfmt " + bytes(20), "RIFF (WAV, AVI, WebP)"),
        (b"\x10\0\0\0\0\0\0\0" + b'{"a":1}       ', "safetensors"),
        (bytes(8) + b"DUCK\x40" + bytes(60), "DuckDB"),
        (bytes(128) + b"DICM" + bytes(9), "DICOM"),
        (gzip.compress(b"BAM\x01" + bytes(99), mtime=0), "BAM"),
        (b"\xff\xff\xff\xff\xf0\x01\0\0" + bytes(99), "Arrow stream"),
        (gzip.compress(b"X\n\0\0\0\3" + bytes(99), mtime=0), "R data"),
        (b"\x80\x04\x95\x0b\0\0\0\0\0\0\0}\x94.", "pickle"),
        (bytes(8) + b"DUCK\xe7\x03" + bytes(60), "DuckDB"),
        *((bytes(at) + b"\x89HDF\r\n\x1a\n" + bytes(99), "HDF5") for at in (0, 512, 1024, 2048, 4096)),
        (b"OggS\0\2" + bytes(40), "Ogg"),
        (zlib.compress(TEXT), "zlib"),
        (gzip.compress(b"\xff\xff\xff\xff\xf0\x01\0\0" + bytes(99), mtime=0), "Arrow stream"),
        (bz2.compress(pickle.dumps({"a": 1})), "pickle"),
        (gzip.compress(b"##fileformat=VCFv4.2\n", mtime=0), "VCF"),
        (bytes(344) + b"n+1\0" + bytes(9), "NIfTI"),
        (b"%%MatrixMarket matrix array\n", "Matrix Market"),
        (b"\0\0\0\x20ftypavif", "MP4"),
        (bytes(8192) + b"\x89HDF\r\n\x1a\n" + bytes(99), "HDF5"),
        (bytes(80) + b"\2\0\0\0" + (b"\1" * 48 + b"\0\0") * 2, "STL"),
        (bytes(80) + b"\xff\1\0\0" + (b"\1" * 48 + b"\0\0") * 511, "STL"),
        (bytes(84 + 50 * 99), None),
        (b"solid a\n facet normal 0 0 1\n", "STL"),
        (b"3 2\nw1 0.5 -1.0\n", "word2vec"),
        (b"3 2\nw1 \0\0\x80\x3f\0\0\xc0\x3f\n", "word2vec"),
        (b"3 2\n1 2\n", None),
        (b"# made by x\no a\nv 0.0 1.0 -2e-5\nf 1 1 1\n", "OBJ"),
        (b"v 1.2 of the tool\n", None),
        (b"% a comment\n@RELATION r\n", "ARFF"),
        (b"# a well\n~Version ------\n VERS. 2.0\n", "LAS well log"),
        (b":03000100010203F6\n:00000001FF\n", "Intel HEX"),
        (b"ATOM      1  CA  ALA A   1       1.000   0.000   0.000  1.00", "PDB"),
        (b"HEADER    OXYGEN STORAGE                          22-JUN-83   2DHB\n", "PDB"),
        (b"ATOM feed of news\n", None),
        (b"data_1ABC\n# \n_entry.id   1ABC\n", "mmCIF"),
        (b"c a comment\np cnf 3 2\n", "DIMACS"),
        (b"\xa7\r\r\n" + bytes(12) + b"\xe3", "Python bytecode"),
        (b"\2P" + bytes(510) + b"\1P\1T", "C3D"),
        (lzma.compress(pickle.dumps([1]), format=lzma.FORMAT_ALONE), "pickle"),
        (bytes(32769) + b"CD001\x01" + bytes(99), "ISO 9660"),
        (b"\x33\xed".ljust(510) + b"\x55\xaa" + bytes(32257) + b"CD001\x01" + bytes(99), "ISO 9660"),
        (b"\xff\nG@$\x08\x04\x01\0@\0K", "JPEG XL"),
        (b"\xff\n\x08\x01" + bytes(1405), None),
        (b"IxF2\1\0\0\0\3" + bytes(7) + (b"\0\0\x10" + bytes(5)) * 2 + bytes(40), "Faiss"),
        (b"{L\0\0\0\0\0\0\0\7learner{L", "XGBoost"),
        (b'{"learner":{"attributes":{}}}\n', "XGBoost"),
        (b"tree\nversion=v4\n", "LightGBM"),
        (b"\n\x0e\n\5<unk>\x15\0\0\0\0\x18\2", "SentencePiece"),
        (b"\0\0\x08\1\0\0\0\3\1\2\3", "IDX"),
        (b"tree\nversion=2\n", None),
        (LZ4_TAR, "compressed tar"),
        (LZ4_STREAM, "Arrow stream"),
        (LZ4_LINES, None),
        (XML, "XML document"),
        (gzip.compress(XML, mtime=0), "XML document"),
        (XML + XML, None),
        (b"<kml xmlns='x'>\n</kml>\n", "XML document"),
        (b"<row/>\n", None),
        (b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n", "iCalendar"),
        (b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n" * 2, None),
        (b"BEGIN:VCARD\r\nVERSION:4.0\r\nEND:VCARD\r\n", None),
        (b"\x01\x01a\x05Int64\x01" + bytes(7), "ClickHouse RowBinaryWithNamesAndTypes"),
        (b"\x02\x02id\x01s\x06UInt64\x10Nullable(String)\0", "ClickHouse RowBinaryWithNamesAndTypes"),
        (b"\x01\x03\x01a\x05Int64" + bytes(24), None),
        (b"abcdefgh" * 512, None),
        (bytes(5000), None),
        (b"1234ftyp,moov\n", None),
        (b"GIF89a,BLENDER\n1,2\n", None),
        (b"P4 10 20\n1 2 3\n", None),
        (b"x" * 208 + b"MAP DD\n", None),
        (b"a,b\n1,PAR1", None),
        (b"x\x9cno zlib\n", None),
        (b"item_no,DUCK\n1,2\n", None),
        (b"CRAMER,LASF\n", None),
        (b"GGUFF\n", None),
        (b"\x1f\x8bno gzip\n", None),
        (written(lambda file: pa.parquet.write_table(TABLE, file)), "Parquet"),
        (written(lambda file: pa.orc.write_table(TABLE, file)), "ORC"),
        (written(lambda file: pa.feather.write_feather(TABLE, file)), "Arrow (Feather)"),
        (written(zipped), "zip"),
        (written(lambda file: zipped(file, b"c" * 5000)), "zip"),
        (written(self_extracting), "zip"),
        (written(tarred), "tar"),
        (b"Obj\x01" + bytes(50), "Avro"),
        (database(), "SQLite"),
        *((data, None) for data in (b"", b"x", b"the magic of Parquet is PAR1\n", b"and that of ORC is ORC\n")),
        *((data, None) for data in (b"PK\x05\x06 begins the end of a zip", gzip.compress(b"text", mtime=0))),
        (b'{"a": 1}\n' * 300, None),
    ],
)
def test_a_format_is_told_by_its_marks(data: bytes, name: str | None) -> None:
    found = part("/x", data)
    assert unjoinable(found.head, found.tail) == name


ROWS = [COLUMNS.split(line, maxsplit=3) for line in MARKS.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize(("table", "place", "name", "mark"), ROWS)
def test_each_row_of_marks_is_used(table: str, place: str, name: str, mark: str) -> None:
    assert table in ("text", "binary") or (table, place) in (("end", "any"), ("record", "0"))
    if place == "=":
        data = mark.encode().decode("unicode_escape").encode("latin-1")
        assert format_of(data + bytes(HEAD_BYTES - len(data)), b"x" * TAIL_BYTES) is not None
    else:
        assert re.compile(mark.encode()).match(b"") is None
        assert place == "any" or 0 <= int(place) < DEEP_BYTES


@pytest.mark.parametrize("end", range(len(LZ4_LINES) + 1))
def test_a_frame_gives_its_beginning(end: int) -> None:
    lines = b"line 1\nline 2\n" * 20
    assert lines.startswith(lz4_first_bytes(LZ4_LINES[:end], HEAD_BYTES))
    assert lz4_first_bytes(LZ4_LINES, end) == lines[:end]
    assert lz4_first_bytes(LZ4_LINES[:7] + b"\3\0\0\x80abc" + LZ4_LINES[7:], 99) == (b"abc" + lines)[:99]


def test_streams_of_records_may_lose_their_heads() -> None:
    assert format_of(b"\xff\xff\xff\xff\xf0\x01\0\0" + bytes(99), bytes(8)) is None


@pytest.mark.parametrize("contents", [(AVRO, b"text\n"), (b"text\n", AVRO), (AVRO, AVRO), (AVRO, b"\2\2blockXXXX" * 9)])
def test_the_target_counts_like_a_source(contents: tuple[bytes, bytes]) -> None:
    with pytest.raises(WholeFileError, match="Avro file"):
        joined(*contents)


def test_blocks_of_an_avro_file_join_it() -> None:
    assert joined(AVRO, b"\2\2block" + MARKER, b"\2\2other" + MARKER) == []
    assert joined(b"", AVRO, b"") == []


@pytest.mark.parametrize(
    ("contents", "ends"),
    [
        ((b"a,b\n1,2", b"3,4\n"), ["/0"]),
        ((b"a,b\n1,2", b"", b"3,4", b"5,6\n"), ["/0", "/2"]),
        ((b'{"a":1}', b'{"a":2}'), ["/0"]),
        ((b"1,2", b"3,4\n"), ["/0"]),
        ((b"a,b\n1,2\n", b"3,4"), []),
        (PIECES, ["/0"]),
        ((b"\0\1", b"text\n"), []),
        (("sépärät\n".encode("latin-1") * 900 + b"x", b"y\n"), ["/0"]),
    ],
)
def test_lines_need_a_line_feed_between_parts(contents: tuple[bytes, ...], ends: list[str]) -> None:
    assert joined(*contents, newline=True) == ends
    if ends and contents != PIECES:
        with pytest.raises(WholeFileError, match=f"^{ends[0]} is text without a line feed"):
            joined(*contents)
    else:
        assert joined(*contents) == []
