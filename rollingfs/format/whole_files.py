"""File formats that do not join: of two such files in a row, a reader finds a single file, or fails. Pure.

Sources: the signatures in the specifications and in the readers of the formats. `docs/joining.md` has the behaviour of
readers.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from importlib import import_module
from io import BytesIO
from typing import Any

AVRO, AVRO_MARKER_BYTES = "Avro", 16
"""Each block of an Avro file ends with the marker that its header ends with."""
ARROW_STREAM = "Arrow stream"
ENDS = {
    b"PAR1": "Parquet",
    b"PARE": "Parquet",
    b"ARROW1": "Arrow (Feather)",
    b"FEA1": "Feather",
    b"LANC": "Lance",
    b"PFA1": "Puffin",
    b"VTXF": "Vortex",
}
BEGINNINGS = {
    b"PK\x03\x04": "zip",
    b"Obj\x01": AVRO,
    b"SQLite format 3\0": "SQLite",
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"\x0e\x03\x13\x01": "HDF4",
    b"CDF\x01": "NetCDF",
    b"CDF\x02": "NetCDF",
    b"CDF\x05": "NetCDF",
    b"\x93NUMPY": "NumPy",
    b"%PDF-": "PDF",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "RAR",
    b"MSCF\0\0\0\0": "Cabinet",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "Microsoft Office",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"\xff\xd8\xff": "JPEG",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "BigTIFF",
    b"MM\0+": "BigTIFF",
    b"\x1a\x45\xdf\xa3": "Matroska",
    b"\x89MCAP0\r\n": "MCAP",
    b"#ROSBAG V": "rosbag",
    b"#ASDF ": "ASDF",
    b"SIMPLE  =": "FITS",
    b"\xa1\xb2\xc3\xd4": "pcap",
    b"\xd4\xc3\xb2\xa1": "pcap",
    b"\xa1\xb2\x3c\x4d": "pcap",
    b"\x4d\x3c\xb2\xa1": "pcap",
    b"MATLAB 5.0 MAT-file": "MAT",
    b"<stata_dta>": "Stata",
    b"$FL2@(#)": "SPSS",
    b"$FL3@(#)": "SPSS",
    b"RDX2\n": "R data",
    b"X\n\0\0\0": "R data",
    b"RDX3\n": "R data",
    b"SEQ\x06": "Hadoop SequenceFile",
    b"CRAM\x02": "CRAM",
    b"CRAM\x03": "CRAM",
    b"BAM\x01": "BAM",
    b"BCF\x02": "BCF",
    b"PMTiles\x03": "PMTiles",
    b"fgb\x03": "FlatGeobuf",
    b"\0\0\x27\x0a\0\0\0\0": "shapefile",
    b"\0asm": "WebAssembly",
    b"\x7fELF": "ELF",
    b"\x1f\x9d": "compress (.Z)",
    b"age-encryption.org/": "age",
    b"ElfFile\0": "Windows event log",
    b"LPKSHHRH": "systemd journal",
    b"VTXF": "Vortex",
}
INSIDE = (
    (4, re.compile(rb"ftyp"), "MP4"),
    (8, re.compile(rb"DUCK[\x01-\xff]\0{3}"), "DuckDB"),  # the version follows, a small number of 8 bytes
    (0, re.compile(rb"fLaC[\0\x80]\0\0\x22"), "FLAC"),
    (0, re.compile(rb"GGUF[\x01-\x09]\0\0\0"), "GGUF"),
    (0, re.compile(rb"LASF.{20}\x01[\0-\x04]", re.DOTALL), "LAS"),
    (128, re.compile(rb"DICM"), "DICOM"),
    (0, re.compile(rb"(RIFF|RIFX|RF64)....(WAVE|AVI |WEBP)", re.DOTALL), "RIFF (WAV, AVI, WebP)"),
    (0, re.compile(rb"FORM....AIF[FC]", re.DOTALL), "AIFF"),
    (0, re.compile(rb"[\x71-\x73][\x01\x02]\x01\0"), "Stata"),
    (0, re.compile(rb".{4}\0{4}\{\s*\"", re.DOTALL), "safetensors"),
)
"""At a place in the head: what stands there."""
NOT_JOINED = (
    (0, re.compile(rb"\xff{4}..\0\0", re.DOTALL), ARROW_STREAM),
    (0, re.compile(rb"\x80[\x02-\x05][\x95c}\]K\x8c\x58(]"), "pickle"),
)
"""Formats of records in a row, whose usual readers end after the first. Their heads may be cut off at a record."""
ORC, ZIP_END, ZIP_END_BYTES = b"ORC", b"PK\x05\x06", 22
TAR, TAR_AT, TAR_BLOCK_BYTES = b"ustar", 257, 512
HEAD_BYTES = TAR_BLOCK_BYTES
TAIL_BYTES = 2 * TAR_BLOCK_BYTES
"""A tar ends with two empty blocks, of 512 bytes each; the ends of all others are shorter, but for a comment in a
zip."""
GZIP, BZIP2, XZ, ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
BLOCKED_BYTES = {BZIP2: 1024 * 1024, ZSTD: 160 * 1024}
"""Bytes that a compressed file may take before it gives the first byte: a block of 900,000 bytes; or of 128 KiB."""


def format_of(head: bytes, tail: bytes) -> str | None:
    """Return the format of a file of which no part is such a file, or None.

    Parameters
    ----------
    head, tail
        The first `HEAD_BYTES` or more and the last `TAIL_BYTES` of the file; all of it if the file is shorter.
    """
    for mark, name in ENDS.items():
        if tail.endswith(mark):
            return name
    if found := _begun(head):
        return found
    if tail[-4:-1] == ORC and (head.startswith(ORC) or tail[-5:-4] == bytes([len(ORC)])):
        return "ORC"
    if _ends_a_zip(tail):
        return "zip"
    if head[TAR_AT:].startswith(TAR) and tail == bytes(TAIL_BYTES):
        return "tar"
    inner = decompressed(head)
    if inner[TAR_AT:].startswith(TAR):
        return "compressed tar"
    return _begun(inner)


def unjoinable(head: bytes, tail: bytes) -> str | None:
    """Return the format of a file whose usual readers would not find what is joined to it; None for any other."""
    return format_of(head, tail) or next((name for at, mark, name in NOT_JOINED if mark.match(head, at)), None)


def head_bytes(head: bytes) -> int:
    """Return the number of bytes that `unjoinable` needs of a file that begins with `head`."""
    return next((size for mark, size in BLOCKED_BYTES.items() if head.startswith(mark)), HEAD_BYTES)


def decompressed(head: bytes) -> bytes:
    """Return the first bytes, `HEAD_BYTES` at most, of compressed data.

    It is empty if the data is not compressed, or not understood.

    zstd needs Python 3.14 or the package zstandard; without either, it is not understood.
    """
    try:
        if head.startswith(GZIP):
            return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
        if head.startswith(BZIP2):
            return bz2.BZ2Decompressor().decompress(head, HEAD_BYTES)
        if head.startswith(XZ):
            return lzma.LZMADecompressor().decompress(head, HEAD_BYTES)
    except (zlib.error, OSError, lzma.LZMAError, EOFError):
        return b""  # it only begins like one
    return _of_zstd(head) if head.startswith(ZSTD) else b""


def _of_zstd(head: bytes) -> bytes:
    for module in ("compression.zstd", "zstandard"):
        try:
            zstd: Any = import_module(module)
        except ImportError:
            continue
        decoder = zstd.ZstdDecompressor()
        try:
            if module == "zstandard":
                return bytes(decoder.stream_reader(BytesIO(head)).read(HEAD_BYTES))
            return bytes(decoder.decompress(head, HEAD_BYTES))
        except zstd.ZstdError:
            return b""  # it only begins like one
    return b""


def _begun(head: bytes) -> str | None:
    found = (name for mark, name in BEGINNINGS.items() if head.startswith(mark))
    return next(found, None) or next((name for at, mark, name in INSIDE if mark.match(head, at)), None)


def _ends_a_zip(tail: bytes) -> bool:
    at = tail.rfind(ZIP_END)
    if at < 0 or len(tail) - at < ZIP_END_BYTES:
        return False
    comment_bytes = int.from_bytes(tail[at + ZIP_END_BYTES - 2 : at + ZIP_END_BYTES], "little")
    return at + ZIP_END_BYTES + comment_bytes == len(tail)
