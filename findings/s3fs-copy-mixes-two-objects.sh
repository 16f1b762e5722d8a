#!/usr/bin/env bash
# s3fs 2026.9.0: copy() of an object of more than 150 MiB, which is replaced meanwhile, makes one of the first part of the old and the rest of the new object, without an error.
#
# Guess: a copy at the store is the old object or the new one, as CopyObject is; one in parts names the ETag of the source with each part (x-amz-copy-source-if-match), as boto3 does.
# Seen (2026-12-01): s3fs copies in parts of 50 MiB from 150 MiB on, and names no ETag. Another program puts a new object of the same size after the first part: the copy has 50 MiB of the
# old and 105 MiB of the new one, and copy() succeeds; so does mv(), which then deletes the new object. boto3 1.43.117 sends the ETag with each part;
# by hand with MinIO, its copy fails (412), and so does compose_object of minio 7.2.20. rclone 1.76.0 copyto (a copy_cutoff of 5M, by hand) mixes as s3fs does, and ends with 0.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet uv
VIRTUAL_ENV="$work/venv" venv/bin/uv pip install --quiet 'moto[server,s3]==5.2.5' s3fs==2026.9.0 fsspec==2026.9.0 boto3==1.43.117 botocore==1.43.117
venv/bin/python - <<'PYTHON'
import http.client, socket, subprocess, sys, threading, time, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from s3fs import S3FileSystem

MIB = 2**20
SIZE = 155 * MIB
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
store = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}


def client(at):
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{at}", **keys)


def put(letter):
    client(port).put_object(Bucket="bucket", Key="source", Body=letter * SIZE)


class Network(BaseHTTPRequestHandler):
    """Forward all requests; another program puts a new object after the first part of a copy."""

    protocol_version = "HTTP/1.1"
    is_to_come, conditions, lock = False, [], threading.Lock()

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with Network.lock:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            if "partNumber" in self.path:
                Network.conditions.append("x-amz-copy-source-if-match" in self.headers)
                if Network.is_to_come:
                    Network.is_to_come = False
                    put(b"b")
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

    def log_message(self, *_):
        pass


network = ThreadingHTTPServer(("127.0.0.1", 0), Network)
threading.Thread(target=network.serve_forever, daemon=True).start()
s3fs = S3FileSystem(key="testing", secret="testing", endpoint_url=f"http://127.0.0.1:{network.server_port}")
try:
    for _ in range(300):
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT"))
            break
        except OSError:
            time.sleep(0.1)
    for copy in (s3fs.copy, s3fs.mv):
        put(b"a")
        Network.is_to_come, Network.conditions = True, []
        copy("bucket/source", "bucket/copy")
        made = client(port).get_object(Bucket="bucket", Key="copy")["Body"].read()
        found = {letter: made.count(letter) // MIB for letter in (b"a", b"b")}
        print(f"s3fs.{copy.__name__.strip('_')}: {len(Network.conditions)} parts, {sum(Network.conditions)} with a condition; MiB by letter: {found}", flush=True)
        assert found == {b"a": 50, b"b": 105} and len(made) == SIZE and not any(Network.conditions)
    put(b"a")
    Network.conditions = []
    client(network.server_port).copy({"Bucket": "bucket", "Key": "source"}, "bucket", "copy")
    print(f"boto3: {len(Network.conditions)} parts, {sum(Network.conditions)} with a condition", flush=True)
    assert len(Network.conditions) > 1 and all(Network.conditions)
finally:
    store.kill()
PYTHON
echo "s3fs 2026.9.0: as described"
