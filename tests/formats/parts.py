"""Small files of each format, with the rows that they hold; two of them, in a row, are what a reader is asked for."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
import tempfile
import wave
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from rollingfs import RollingFileSystem
from tests.support.backends import private_memory

Rows = list[int]
Join = Callable[[Rows, Rows], bytes]


def table(rows: Rows) -> Any:
    return import_module("pyarrow").table({"a": rows})


def lines(rows: Rows) -> bytes:
    return b"".join(b'{"a":%d}\n' % row for row in rows)


def csv(rows: Rows) -> bytes:
    return b"".join(b"%d\n" % row for row in rows)


def arrow_stream(rows: Rows) -> bytes:
    sink = io.BytesIO()
    with import_module("pyarrow.ipc").new_stream(sink, table(rows).schema) as writer:
        writer.write_table(table(rows))
    return sink.getvalue()


def feather(rows: Rows) -> bytes:
    return written(import_module("pyarrow.feather").write_feather, table(rows))


def parquet(rows: Rows) -> bytes:
    return written(import_module("pyarrow.parquet").write_table, table(rows))


def orc(rows: Rows) -> bytes:
    return written(import_module("pyarrow.orc").write_table, table(rows))


def written(write: Callable[[Any, Any], object], content: Any) -> bytes:
    sink = io.BytesIO()
    write(content, sink)
    return sink.getvalue()


def avro(rows: Rows) -> bytes:
    fastavro, sink = import_module("fastavro"), io.BytesIO()
    schema = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": "long"}]}
    fastavro.writer(sink, schema, [{"a": row} for row in rows], sync_marker=b"m" * 16)
    return sink.getvalue()


def tar(rows: Rows) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for row in rows:
            archive.addfile(tarfile.TarInfo(str(row)))
    return sink.getvalue()


def zipped(rows: Rows) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for row in rows:
            archive.writestr(str(row), b"")
    return sink.getvalue()


def pcap(rows: Rows) -> bytes:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 147)
    return head + b"".join(struct.pack("<IIII", row, 0, 1, 1) + b"x" for row in rows)


def pcapng(rows: Rows) -> bytes:
    """Return a section: its header, an interface whose clock counts microseconds, and a packet for each row."""
    blocks = [(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)), (1, struct.pack("<HHI", 147, 0, 65535))]
    blocks += [(6, struct.pack("<IIIII4s", 0, 0, row * 1_000_000, 1, 1, b"x")) for row in rows]
    frame = "<II{0}sI"
    return b"".join(
        struct.pack(frame.format(len(body)), kind, 12 + len(body), body, 12 + len(body)) for kind, body in blocks
    )


def mcap(rows: Rows) -> bytes:
    sink = io.BytesIO()
    writer = import_module("mcap.writer").Writer(sink)
    writer.start()
    schema = writer.register_schema("Row", "jsonschema", b"{}")
    channel = writer.register_channel("rows", "json", schema)
    for row in rows:
        writer.add_message(channel, row, b"{}", row)
    writer.finish()
    return sink.getvalue()


def numpy(rows: Rows) -> bytes:
    module = import_module("numpy")
    return written(lambda content, sink: module.save(sink, content), module.array(rows))


def mat(rows: Rows) -> bytes:
    return written(lambda content, sink: import_module("scipy.io").savemat(sink, {"a": content}), rows)


def stata(rows: Rows) -> bytes:
    frame = import_module("pandas").DataFrame({"a": rows})
    return written(lambda content, sink: content.to_stata(sink, write_index=False, version=118), frame)


def wav(rows: Rows) -> bytes:
    sink = io.BytesIO()
    with wave.open(sink, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(struct.pack(f"<{len(rows)}h", *rows))
    return sink.getvalue()


def bigtiff(rows: Rows) -> bytes:
    tifffile, module, sink = import_module("tifffile"), import_module("numpy"), io.BytesIO()
    tifffile.imwrite(sink, module.array([rows], dtype="uint8"), bigtiff=True)
    return sink.getvalue()


def asdf(rows: Rows) -> bytes:
    return written(lambda content, sink: import_module("asdf").AsdfFile({"a": content}).write_to(sink), rows)


def safetensors(rows: Rows) -> bytes:
    return bytes(import_module("safetensors.numpy").save({"a": import_module("numpy").array(rows)}))


def fits(rows: Rows) -> bytes:
    astropy, module = import_module("astropy.io.fits"), import_module("numpy")
    return written(lambda content, sink: astropy.PrimaryHDU(content).writeto(sink), module.array(rows, dtype="int16"))


def png(rows: Rows) -> bytes:
    image = import_module("PIL.Image").new("L", (len(rows), 1))
    image.putdata(rows)
    return written(lambda content, sink: content.save(sink, "png"), image)


def warc(rows: Rows) -> bytes:
    fields = ("WARC/1.0", "WARC-Type: metadata", "WARC-Record-ID: <urn:x:{}>", "WARC-Date: 2026-01-01T00:00:00Z")
    record = "\r\n".join((*fields, "Content-Length: 0", "", "", "", ""))
    return "".join(record.format(row) for row in rows).encode()


def vortex(rows: Rows) -> bytes:
    with tempfile.TemporaryDirectory() as work:
        import_module("vortex.io").write(import_module("vortex").array(table(rows)), f"{work}/a.vortex")
        return Path(f"{work}/a.vortex").read_bytes()


def by(compress: Callable[[bytes], bytes], make: Callable[[Rows], bytes]) -> Callable[[Rows], bytes]:
    return lambda rows: compress(make(rows))


def zstd(data: bytes) -> bytes:
    return bytes(import_module("zstandard").compress(data))


def as_one(as_format: Literal["parquet", "arrow-stream"], make: Callable[[Rows], bytes]) -> Join:
    """Return two files joined by `concat` to one of their format."""

    def join(first: Rows, second: Rows) -> bytes:
        fs = RollingFileSystem(backend=private_memory())
        for path, rows in (("/x/1", first), ("/x/2", second)):
            fs.pipe_file(path, make(rows))
            fs.seal(path)
        fs.concat("/x/all", ["/x/1", "/x/2"], as_format=as_format, create=True)
        return fs.cat_file("/x/all")

    return join


def grown(append: str) -> Join:
    """Return a file that an append of ours made, and grew."""

    def join(first: Rows, second: Rows) -> bytes:
        fs, module = RollingFileSystem(backend=private_memory()), import_module(append)
        for rows in (first, second):
            module.append(fs, "/x/all", table(rows))
        return fs.cat_file("/x/all")

    return join


WAYS: dict[str, tuple[str, Join]] = {
    "Arrow stream, joined as one": ('`as_format="arrow-stream"`', as_one("arrow-stream", arrow_stream)),
    "Arrow stream that grows": ("`rollingfs.arrow.append`", grown("rollingfs.arrow")),
    "Parquet, joined as one": ('`as_format="parquet"`', as_one("parquet", parquet)),
    "Parquet that grows": ("`rollingfs.parquet.append`", grown("rollingfs.parquet")),
}
"""By kind: the way to make one file of two, and its result."""
MAKE: dict[str, Callable[[Rows], bytes]] = {
    "JSON lines": lines,
    "CSV without a header": csv,
    "JSON lines, gzip": by(gzip.compress, lines),
    "JSON lines, bzip2": by(bz2.compress, lines),
    "JSON lines, xz": by(lzma.compress, lines),
    "JSON lines, padded xz": lambda rows: lzma.compress(lines(rows)) + bytes(4),
    "JSON lines, zstd": by(zstd, lines),
    "WARC": warc,
    "Arrow stream": arrow_stream,
    "Arrow (Feather)": feather,
    "Parquet": parquet,
    "ORC": orc,
    "Avro": avro,
    "Vortex": vortex,
    "MCAP": mcap,
    "pcap": pcap,
    "pcapng": pcapng,
    "NumPy": numpy,
    "pickle": pickle.dumps,
    "MAT": mat,
    "Stata": stata,
    "safetensors": safetensors,
    "ASDF": asdf,
    "FITS": fits,
    "BigTIFF": bigtiff,
    "WAV": wav,
    "PNG": png,
    "zip": zipped,
    "tar": tar,
    "tar, gzip": by(gzip.compress, tar),
    "tar, bzip2": by(bz2.compress, tar),
    "tar, xz": by(lzma.compress, tar),
    "tar, zstd": by(zstd, tar),
}
