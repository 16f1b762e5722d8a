"""File formats that do not join: of two such files, one behind the other, a reader finds only one. Pure.

Gzip, bzip2, xz and zstd join, and so do Arrow streams, lines of text and of JSON.
"""

from __future__ import annotations

ENDS = {
    b"PAR1": "Parquet",
    b"PARE": "Parquet",
    b"ARROW1": "Arrow (Feather)",
    b"FEA1": "Feather",
    b"LANC": "Lance",
    b"PFA1": "Puffin",
}
BEGINNINGS = {
    b"PK\x03\x04": "zip",
    b"Obj\x01": "Avro",
    b"SQLite format 3\0": "SQLite",
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"CDF\x01": "NetCDF",
    b"CDF\x02": "NetCDF",
    b"CDF\x05": "NetCDF",
    b"\x93NUMPY": "NumPy",
    b"%PDF-": "PDF",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "RAR",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "Microsoft Office",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"GGUF": "GGUF",
}
ORC, ZIP_END, ZIP_END_BYTES = b"ORC", b"PK\x05\x06", 22
TAR, TAR_AT, TAR_BLOCK_BYTES = b"ustar", 257, 512
DUCKDB, DUCKDB_AT = b"DUCK", 8
HEAD_BYTES = TAR_BLOCK_BYTES
TAIL_BYTES = 2 * TAR_BLOCK_BYTES
"""A tar ends with two empty blocks, of 512 bytes each; the ends of all others are shorter, but for a comment in a
zip."""


def format_of(head: bytes, tail: bytes) -> str | None:
    """The format of a file that cannot be joined to others; None if the file may be joined, or nobody can tell.

    Parameters
    ----------
    head, tail
        The first `HEAD_BYTES` and the last `TAIL_BYTES` of the file; all of it if the file is shorter.
    """
    for mark, name in ENDS.items():
        if tail.endswith(mark):
            return name
    for mark, name in BEGINNINGS.items():
        if head.startswith(mark):
            return name
    if tail[-4:-1] == ORC and (head.startswith(ORC) or tail[-5:-4] == bytes([len(ORC)])):
        return "ORC"
    if _ends_a_zip(tail):
        return "zip"
    if head[DUCKDB_AT:].startswith(DUCKDB):
        return "DuckDB"
    if head[TAR_AT:].startswith(TAR) and tail == bytes(TAIL_BYTES):
        return "tar"
    return None


def _ends_a_zip(tail: bytes) -> bool:
    at = tail.rfind(ZIP_END)
    if at < 0 or len(tail) - at < ZIP_END_BYTES:
        return False
    comment_bytes = int.from_bytes(tail[at + ZIP_END_BYTES - 2 : at + ZIP_END_BYTES], "little")
    return at + ZIP_END_BYTES + comment_bytes == len(tail)
