#!/usr/bin/env bash
# boto3 1.44.8: a PUT of an open file from a position on is sent again from byte 0, so the object gets the whole file, and put_object succeeds; with awscrt installed the first PUT does so, too.
#
# Guess: put_object(Body=file) sends the bytes from the file's position, as its first PUT does, and a PUT that is sent again, after "503 Slow Down" or a lost answer, has the same bytes.
# Seen (2026-12-01): botocore takes position 0 for the beginning: where a log is sent from its 51st byte on, the first PUT has 50 bytes, the second all 100. upload_part does the same. With
# awscrt (botocore[crt]) the signature begins at 0, and so does each PUT, without any failure. This is so with request_checksum_calculation="when_required", which stores other than AWS
# ask for; with the default, MinIO (by hand) refuses the second PUT by its check sum. upload_fileobj and minio 7.2.20 send the same 50 bytes again; so do azure-storage-blob 12.31.1,
# google-cloud-storage 3.17.1, cos-python-sdk-v5 1.9.44 and python-swiftclient 4.11.0, tried by hand.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet uv
export VIRTUAL_ENV="$work/venv"
venv/bin/uv pip install --quiet 'moto[server,s3]==5.2.5' boto3==1.44.8 botocore==1.44.8 minio==7.2.20
cat >run.py <<'PYTHON'
import http.client, importlib.util, socket, subprocess, sys, threading, time, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from botocore.config import Config
from minio import Minio

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
store = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)


class Network(BaseHTTPRequestHandler):
    """Forward all requests; on demand, answer a PUT by 503, or drop the answer of the store."""

    protocol_version = "HTTP/1.1"
    fault, puts = None, []

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_put = self.command == "PUT"
        fault = Network.fault if is_put else None
        if is_put:
            Network.puts.append(len(body))
            Network.fault = None
        status, headers, content = 503, [], b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
        if fault != "503":
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k != "Expect"})
            answer = connection.getresponse()
            status, headers, content = answer.status, answer.getheaders(), answer.read()
        if fault == "lost":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = forward

    def log_message(self, *_):
        pass


def by_put(file):
    s3.put_object(Bucket="bucket", Key="log", Body=file)


def by_upload(file):
    s3.upload_fileobj(file, "bucket", "log")


def by_part(file):
    upload = {"Bucket": "bucket", "Key": "log", "UploadId": s3.create_multipart_upload(Bucket="bucket", Key="log")["UploadId"]}
    part = {"PartNumber": 1, "ETag": s3.upload_part(Body=file, PartNumber=1, **upload)["ETag"]}
    s3.complete_multipart_upload(MultipartUpload={"Parts": [part]}, **upload)


def by_minio(file):
    Minio(f"127.0.0.1:{network.server_port}", "testing", "testing", secure=False, region="us-east-1").put_object("bucket", "log", file, 50)


network = ThreadingHTTPServer(("127.0.0.1", 0), Network)
threading.Thread(target=network.serve_forever, daemon=True).start()
settings = Config(request_checksum_calculation="when_required")
keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{network.server_port}", config=settings, **keys)
lines = [b"line %04d\n" % number for number in range(10)]
with open("log", "wb") as file:
    file.writelines(lines)
rest, whole, found = b"".join(lines[5:]), b"".join(lines), {}
try:
    for _ in range(300):
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT"))
            break
        except OSError:
            time.sleep(0.1)
    for way in (by_put, by_part, by_upload, by_minio):
        for fault in (None, "503", "lost"):
            if way is by_minio and fault == "lost":
                continue
            with open("log", "rb") as file:
                file.seek(50)
                Network.fault, Network.puts = fault, []
                way(file)
            object = s3.get_object(Bucket="bucket", Key="log")["Body"].read()
            found[way, fault] = object
            print(f"{way.__name__}, fault {fault}: PUTs of {Network.puts} bytes, the object has {len(object)}, from {object[:9]}", flush=True)
finally:
    store.kill()
with_crt = importlib.util.find_spec("awscrt") is not None
assert all(found[way, fault] == whole for way in (by_put, by_part) for fault in ("503", "lost"))
assert all(found[way, None] == (whole if with_crt else rest) for way in (by_put, by_part))
assert all(object == rest for (way, _), object in found.items() if way in (by_upload, by_minio))
PYTHON
venv/bin/python run.py
venv/bin/uv pip install --quiet awscrt==0.38.1
echo "with awscrt:"
venv/bin/python run.py
echo "boto3 1.44.8: as described"
