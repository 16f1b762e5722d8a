#!/usr/bin/env bash
# deltalake 1.6.6 commits one append to S3 twice when the answer of its conditional PUT is lost: its change feed has the rows twice, and rows that another writer has deleted are back.
#
# Guess: a PUT with "If-None-Match: *" that is sent again after a lost answer gets 412 from the object that it made itself, so a table library looks whose commit that is.
# Seen (2026-11-30): the connection breaks after the store has taken version 1. The library sends it again, gets 412, takes the commit for another writer's, and commits the same
# file as version 2, without an error or a warning. A reader of the newest version counts the rows once, load_cdf gives them as inserts of both versions. Where
# another writer deletes the rows before the second PUT, that commits version 3, and they are back, though the delete succeeded and was the later change.
# Lance (pylance 14.0.2), tried by hand, finds its own commit; obstore 0.12.1 raises AlreadyExistsError for the object that it made.
# Needs Python 3.11 and the package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet uv
VIRTUAL_ENV="$work/venv" venv/bin/uv pip install --quiet 'moto[server,s3]==5.2.5' deltalake==1.6.6 pyarrow==26.0.1
venv/bin/python - <<'PYTHON'
import http.client, socket, subprocess, sys, threading, time, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
store = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)


class Network(BaseHTTPRequestHandler):
    """Forward all requests; once, drop the answer of a conditional PUT that the store has taken."""

    protocol_version = "HTTP/1.1"
    to_drop, between, puts = 0, None, []

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        if "If-None-Match" in self.headers:
            Network.puts.append((self.path.rpartition("/")[2], answer.status))
            if Network.to_drop:
                Network.to_drop = 0
                if Network.between:
                    Network.between()
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

    def log_message(self, *_):
        pass


def options(at):
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "aws_region": "us-east-1"}
    return {"aws_endpoint": f"http://127.0.0.1:{at}", "aws_allow_http": "true", **keys}


def rows(url):
    return sorted(DeltaTable(url, storage_options=options(port)).to_pyarrow_table()["n"].to_pylist())


def append_beside(url, between=None):
    """Make a table of 1 and 2, append 3, and lose the first answer; `between` is what another writer does before the library notices."""
    write_deltalake(url, pa.table({"n": [1, 2]}), configuration={"delta.enableChangeDataFeed": "true"}, storage_options=options(port))
    Network.puts, Network.to_drop, Network.between = [], 1, between
    write_deltalake(url, pa.table({"n": [3]}), mode="append", storage_options=options(network.server_port))
    return Network.puts


network = ThreadingHTTPServer(("127.0.0.1", 0), Network)
threading.Thread(target=network.serve_forever, daemon=True).start()
try:
    for _ in range(300):
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT"))
            break
        except OSError:
            time.sleep(0.1)
    alone = append_beside("s3://bucket/alone")
    table = DeltaTable("s3://bucket/alone", storage_options=options(port))
    feed = sorted((row["n"], row["_commit_version"]) for row in pa.table(table.load_cdf(starting_version=1).read_all()).to_pylist())
    print(f"alone: PUTs {alone}, version {table.version()}, rows {rows('s3://bucket/alone')}, change feed {feed}", flush=True)

    def delete():
        DeltaTable("s3://bucket/beside", storage_options=options(port)).delete("n = 3")
        seen.append(rows("s3://bucket/beside"))

    seen = []
    beside = append_beside("s3://bucket/beside", delete)
    seen.append(rows("s3://bucket/beside"))
    print(f"beside a delete: PUTs {beside}, rows {seen[0]} after the delete, {seen[1]} at the end", flush=True)
finally:
    store.kill()
assert [status for _, status in alone] == [200, 412, 200] == [status for _, status in beside]
assert table.version() == 2 and feed == [(3, 1), (3, 2)] and seen == [[1, 2], [1, 2, 3]]
PYTHON
echo "deltalake 1.6.6: as described"
