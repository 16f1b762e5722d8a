#!/usr/bin/env bash
# A `with` block that ends by an exception publishes what it had written: opendal, pyarrow, cloudpathlib and s3fs.
#
# Guess: a writer of an object store that is left by an exception aborts, because an object appears whole or not at all.
# Seen (2026-11-28, moto 5.2.5 as the store): obstore 0.12.1 and smart_open 9.0.2 leave no object. opendal 0.47.12 (S3 and
# a disk), pyarrow 26.0.1, cloudpathlib 0.26.0 and s3fs 2026.9.0 finish the upload, so that readers take the first part of
# a file for the whole, and an object that was there before is replaced by that part. No library raises anything for it.
# Needs Python 3.11 and the package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet uv  # which finds a botocore for all of them in seconds
VIRTUAL_ENV="$work/venv" venv/bin/uv pip install --quiet 'moto[server,s3]==5.2.5' boto3 opendal==0.47.12 obstore==0.12.1 pyarrow==26.0.1 \
    smart_open==9.0.2 cloudpathlib==0.26.0 s3fs==2026.9.0
venv/bin/python - "$work" <<'PYTHON'
import os, socket, subprocess, sys, time, urllib.request

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
url = f"http://127.0.0.1:{port}"
server = subprocess.Popen(
    [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
)
keys = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}
os.environ.update({f"AWS_{name.upper()}": value for name, value in keys.items()} | {"AWS_DEFAULT_REGION": "us-east-1"})

import boto3, cloudpathlib, obstore, opendal, s3fs, smart_open
from obstore.store import S3Store
from pyarrow.fs import S3FileSystem

WHOLE, PART = b"w" * 2000, b"p" * 1000
try:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/moto-api/")
            break
        except OSError:
            time.sleep(0.1)
    client = boto3.client("s3", endpoint_url=url)
    client.create_bucket(Bucket="bucket")
    cloud = opendal.Operator("s3", bucket="bucket", endpoint=url, **keys)
    disk = opendal.Operator("fs", root=sys.argv[1])
    arrow = S3FileSystem(endpoint_override=url, access_key="testing", secret_key="testing", region="us-east-1")
    store = S3Store("bucket", endpoint=url, client_options={"allow_http": True}, **keys)
    paths, files = cloudpathlib.S3Client(endpoint_url=url), s3fs.S3FileSystem(endpoint_url=url)
    writers = {
        "opendal": lambda: cloud.open("opendal", "wb"),
        "opendal, disk": lambda: disk.open("opendal, disk", "wb"),
        "pyarrow": lambda: arrow.open_output_stream("bucket/pyarrow"),
        "cloudpathlib": lambda: paths.CloudPath("s3://bucket/cloudpathlib").open("wb"),
        "s3fs": lambda: files.open("bucket/s3fs", "wb"),
        "obstore": lambda: obstore.open_writer(store, "obstore"),
        "smart_open": lambda: smart_open.open("s3://bucket/smart_open", "wb", transport_params={"client": client}),
    }
    published = set()
    for name, writer in writers.items():
        if name.endswith("disk"):
            open(name, "wb").write(WHOLE)
        else:
            client.put_object(Bucket="bucket", Key=name, Body=WHOLE)
        try:
            with writer() as file:
                file.write(PART)
                raise InterruptedError
        except InterruptedError:
            pass
        left = open(name, "rb").read() if name.endswith("disk") else client.get_object(Bucket="bucket", Key=name)["Body"].read()
        assert left in (WHOLE, PART), (name, len(left))
        print(f"{name}: {len(left)} bytes of 2,000")
        if left == PART:
            published.add(name)
    assert published == {"opendal", "opendal, disk", "pyarrow", "cloudpathlib", "s3fs"}, published
finally:
    server.kill()
PYTHON
