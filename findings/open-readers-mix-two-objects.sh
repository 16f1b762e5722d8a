#!/usr/bin/env bash
# A file of S3 that is replaced while it is open reads as a mixture of both objects by pyarrow, obstore, opendal and smart_open, without an error.
#
# Guess: an object is replaced whole, so an open file shows the old object or fails: the reader knows the ETag from its first answer, and If-Match costs nothing.
# Seen (2026-11-30, moto 5.2.5 as the store): s3fs 2026.9.0 raises once the ETag differs. pyarrow 26.0.1 (input file and input stream), obstore 0.12.1
# (open_reader and its fsspec), and after a seek opendal 0.47.12 and smart_open 9.0.2 send ranges without a condition, and return the end of the old
# object with the head of the new. A Parquet file of equal layout that is replaced between two row groups gives rows of both versions by pyarrow.parquet.
# Needs Python 3.11 and the package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet uv  # which finds a botocore for all of them in seconds
VIRTUAL_ENV="$work/venv" venv/bin/uv pip install --quiet 'moto[server,s3]==5.2.5' boto3 opendal==0.47.12 obstore==0.12.1 pyarrow==26.0.1 \
    smart_open==9.0.2 s3fs==2026.9.0
venv/bin/python - <<'PYTHON'
import io, os, socket, subprocess, sys, time, urllib.request

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
url = f"http://127.0.0.1:{port}"
server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
keys = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}
os.environ.update({f"AWS_{name.upper()}": value for name, value in keys.items()} | {"AWS_DEFAULT_REGION": "us-east-1"})

import boto3, obstore, opendal, pyarrow as pa, pyarrow.parquet as pq, s3fs, smart_open
from obstore.fsspec import FsspecStore
from obstore.store import S3Store
from pyarrow.fs import S3FileSystem

SIZE, PIECE, ROWS = 24 * 2**20, 2**20, 100_000
OLD, NEW = b"o" * SIZE, b"n" * SIZE


def in_a_row(file):
    """Read a piece, replace the object, and read on."""
    pieces = [bytes(file.read(PIECE))]
    put(NEW)
    while piece := bytes(file.read(PIECE)):
        pieces.append(piece)
    return b"".join(pieces)


def end_first(file):
    """Read the end, as readers of Parquet and zip do, replace the object, and read the head."""
    file.seek(SIZE - PIECE)
    end = bytes(file.read(PIECE))
    put(NEW)
    file.seek(0)
    return bytes(file.read(PIECE)) + end


def put(body, key="object"):
    client.put_object(Bucket="bucket", Key=key, Body=body)


def parquet(version):
    buffer = io.BytesIO()
    table = pa.table({"n": range(2 * ROWS), "version": pa.array([version] * 2 * ROWS, pa.int64())})
    pq.write_table(table, buffer, row_group_size=ROWS, compression="none", use_dictionary=False)
    return buffer.getvalue()


try:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/moto-api/")
            break
        except OSError:
            time.sleep(0.1)
    client = boto3.client("s3", endpoint_url=url)
    client.create_bucket(Bucket="bucket")
    arrow = S3FileSystem(endpoint_override=url, access_key="testing", secret_key="testing", region="us-east-1")
    plain = {"endpoint": url, "client_options": {"allow_http": True}, **keys}
    readers = {
        "s3fs": lambda: s3fs.S3FileSystem(endpoint_url=url, skip_instance_cache=True).open("bucket/object", "rb"),
        "pyarrow": lambda: arrow.open_input_file("bucket/object"),
        "pyarrow, stream": lambda: arrow.open_input_stream("bucket/object"),
        "obstore": lambda: obstore.open_reader(S3Store("bucket", **plain), "object"),
        "obstore, fsspec": lambda: FsspecStore("s3", **plain).open("bucket/object", "rb"),
        "opendal": lambda: opendal.Operator("s3", bucket="bucket", endpoint=url, **keys).open("object", "rb"),
        "smart_open": lambda: smart_open.open("s3://bucket/object", "rb", transport_params={"client": client}),
    }
    mixed = set()
    for name, reader in readers.items():
        for way in (in_a_row, end_first):
            if (name, way) == ("pyarrow, stream", end_first):
                continue
            put(OLD)
            try:
                read = way(reader())
                found = f"{read.count(b'o'):,} bytes of the old object and {read.count(b'n'):,} of the new"
                if len(set(read)) == 2:
                    mixed.add((name, way.__name__))
            except Exception as error:
                found = f"{type(error).__name__}: {str(error)[:60]}"
            print(f"{name}, {way.__name__}: {found}", flush=True)
    put(parquet(1), "table")
    file = pq.ParquetFile("bucket/table", filesystem=arrow)
    first = file.read_row_group(0)["version"].unique().to_pylist()
    put(parquet(2), "table")
    second = file.read_row_group(1)["version"].unique().to_pylist()
    print(f"pyarrow.parquet: version {first} in the first row group, {second} in the second")
finally:
    server.kill()
both = {(name, way) for name in ("pyarrow", "obstore", "obstore, fsspec") for way in ("in_a_row", "end_first")}
assert mixed >= both | {("pyarrow, stream", "in_a_row"), ("opendal", "end_first"), ("smart_open", "end_first")}, mixed
assert not any(name == "s3fs" for name, _ in mixed) and (first, second) == ([1], [2])
PYTHON
echo "open readers of S3: as described"
