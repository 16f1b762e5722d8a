"""Readers of each format: a file's path in, the numbers that its reader finds out."""

from __future__ import annotations

import io
import pickle
import tarfile
import wave
import zipfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

Read = Callable[[Path], Iterable[Any]]


def of(module: str) -> Any:
    return import_module(module)


def duckdb(text: str) -> Read:
    return lambda path: [row[0] for row in of("duckdb").sql(text.format(path)).fetchall()]


def chdb(kind: str) -> Read:
    text = "select a from file('{}', '{}', 'a Int64')"
    return lambda path: map(int, str(of("chdb").query(text.format(path, kind), "CSV")).split())


def daft(verb: str) -> Read:
    return lambda path: getattr(of("daft"), verb)(str(path)).to_pydict()["a"]


def huggingface(kind: str) -> Read:
    def read(path: Path) -> Iterable[Any]:
        found = of("datasets").load_dataset(kind, data_files=str(path), split="train", streaming=True)
        return [row["a"] for row in found]

    return read


def messages(path: Path) -> Iterable[Any]:
    with path.open("rb") as file:
        return [message.log_time for _, _, message in of("mcap.reader").make_reader(file).iter_messages()]


def streamed_messages(path: Path) -> Iterable[Any]:
    with path.open("rb") as file:
        reader = of("mcap.reader").NonSeekingReader(file)
        return [message.log_time for _, _, message in reader.iter_messages()]


def members(mode: str) -> Read:
    def read(path: Path) -> Iterable[Any]:
        with tarfile.open(path, mode) as archive:
            return [int(name) for name in archive.getnames()]

    return read


def zip_names(path: Path) -> Iterable[Any]:
    with zipfile.ZipFile(path) as archive:
        return [int(name) for name in archive.namelist()]


def sound(path: Path) -> Iterable[Any]:
    with wave.open(str(path)) as file:
        data = file.readframes(file.getnframes())
    return [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]


def packets(module: str) -> Read:
    def read(path: Path) -> Iterable[Any]:
        with path.open("rb") as file:
            return [int(seconds) for seconds, _ in of(module).Reader(file)]

    return read


def packets_by_scapy(path: Path) -> Iterable[Any]:
    return [int(packet.time) for packet in of("scapy.utils").rdpcap(str(path))]


def avro(path: Path) -> Iterable[Any]:
    with path.open("rb") as file:
        return [row["a"] for row in of("fastavro").reader(file)]


def records(path: Path) -> Iterable[Any]:
    with path.open("rb") as file:
        found = of("warcio.archiveiterator").ArchiveIterator(file)
        return [int(one.rec_headers.get_header("WARC-Record-ID")[len("<urn:x:") : -1]) for one in found]


def asdf(path: Path) -> Iterable[Any]:
    with of("asdf").open(path) as file:
        return list(file["a"])


def fits(path: Path) -> Iterable[Any]:
    with of("astropy.io.fits").open(path) as file:
        return [int(value) for unit in file for value in unit.data]


def pixels(path: Path) -> Iterable[Any]:
    with of("PIL.Image").open(path) as image:
        return [image.getpixel((x, 0)) for x in range(image.width)]


def pages(path: Path) -> Iterable[Any]:
    with of("tifffile").TiffFile(path) as file:
        return [int(value) for page in file.pages for value in page.asarray().ravel()]


def vortex(path: Path) -> Iterable[Any]:
    return of("vortex").open(str(path)).to_arrow().read_all()["a"].to_pylist()


def stream_by_duckdb(path: Path) -> Iterable[Any]:
    with of("pyarrow.ipc").open_stream(path.read_bytes()) as rows:
        return [row[0] for row in of("duckdb").from_arrow(rows).fetchall()]


JSON_READERS: dict[str, Read] = {
    "pandas": lambda path: of("pandas").read_json(path, lines=True)["a"].to_list(),
    "polars": lambda path: of("polars").scan_ndjson(path).collect()["a"].to_list(),
    "DuckDB": duckdb("select a from read_json('{}')"),
    "daft": daft("read_json"),
    "HF datasets": huggingface("json"),
}
CSV_READERS: dict[str, Read] = {
    "pandas": lambda path: of("pandas").read_csv(path, header=None)[0].to_list(),
    "polars": lambda path: of("polars").read_csv(path, has_header=False).to_series().to_list(),
    "DuckDB": duckdb("select * from read_csv('{}', header=false)"),
}
STREAM_READERS: dict[str, Read] = {
    "pyarrow": lambda path: of("pyarrow.ipc").open_stream(path.read_bytes()).read_all()["a"].to_pylist(),
    "polars": lambda path: of("polars").read_ipc_stream(io.BytesIO(path.read_bytes()))["a"].to_list(),
    "DuckDB": stream_by_duckdb,
    "chDB": chdb("ArrowStream"),
    "HF datasets": huggingface("arrow"),
}
PARQUET_READERS: dict[str, Read] = {
    "pyarrow": lambda path: of("pyarrow.parquet").read_table(path)["a"].to_pylist(),
    "polars": lambda path: of("polars").read_parquet(path)["a"].to_list(),
    "DuckDB": duckdb("select a from read_parquet('{}')"),
    "daft": daft("read_parquet"),
}
READERS: dict[str, dict[str, Read]] = {
    "JSON lines": JSON_READERS,
    "CSV without a header": CSV_READERS,
    "JSON lines, gzip": JSON_READERS,
    "JSON lines, bzip2": {name: JSON_READERS[name] for name in ("pandas", "daft", "HF datasets")},
    "JSON lines, xz": {name: JSON_READERS[name] for name in ("pandas", "daft", "HF datasets")},
    "JSON lines, padded xz": {"pandas": JSON_READERS["pandas"]},
    "JSON lines, zstd": JSON_READERS,
    "WARC": {"warcio": records},
    "Arrow stream": STREAM_READERS,
    "Arrow stream, joined as one": STREAM_READERS,
    "Arrow stream that grows": STREAM_READERS,
    "Arrow (Feather)": {
        "pyarrow": lambda path: of("pyarrow.feather").read_table(path)["a"].to_pylist(),
        "polars": lambda path: of("polars").read_ipc(path)["a"].to_list(),
    },
    "Parquet": PARQUET_READERS,
    "Parquet, joined as one": PARQUET_READERS,
    "Parquet that grows": PARQUET_READERS,
    "ORC": {"pyarrow": lambda path: of("pyarrow.orc").read_table(path)["a"].to_pylist()},
    "Avro": {"fastavro": avro},
    "Vortex": {"vortex": vortex},
    "MCAP": {"mcap": messages, "mcap (streaming)": streamed_messages},
    "pcap": {"dpkt": packets("dpkt.pcap"), "scapy": packets_by_scapy},
    "pcapng": {"dpkt": packets("dpkt.pcapng"), "scapy": packets_by_scapy},
    "NumPy": {"numpy": lambda path: of("numpy").load(path).tolist()},
    "pickle": {"pickle": lambda path: pickle.loads(path.read_bytes())},
    "MAT": {"scipy": lambda path: of("scipy.io").loadmat(path)["a"].ravel().tolist()},
    "Stata": {"pandas": lambda path: of("pandas").read_stata(path)["a"].to_list()},
    "safetensors": {"safetensors": lambda path: of("safetensors.numpy").load(path.read_bytes())["a"].tolist()},
    "ASDF": {"asdf": asdf},
    "FITS": {"astropy (all units)": fits, "astropy": lambda path: of("astropy.io.fits").getdata(path).tolist()},
    "BigTIFF": {"tifffile": pages},
    "WAV": {"wave": sound},
    "PNG": {"Pillow": pixels},
    "zip": {"zipfile": zip_names},
    "tar": {"tarfile": members("r"), "tarfile (streaming)": members("r|")},
    "tar, gzip": {"tarfile": members("r:gz"), "tarfile (streaming)": members("r|gz")},
    "tar, bzip2": {"tarfile": members("r:bz2")},
    "tar, xz": {"tarfile": members("r:xz")},
}
SUFFIX = {
    "JSON lines, gzip": ".json.gz",
    "JSON lines, bzip2": ".json.bz2",
    "JSON lines, xz": ".json.xz",
    "JSON lines, padded xz": ".json.xz",
    "JSON lines, zstd": ".json.zst",
    "JSON lines": ".json",
    "CSV without a header": ".csv",
}
"""Endings of names by which readers know a format; others get the format's name."""
