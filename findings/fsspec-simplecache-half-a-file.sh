#!/usr/bin/env bash
# simplecache of fsspec 2026.9.0 gives half a file, without an error, after a download that failed or was killed, and beside one that another process has begun.
#
# Guess: a cache keeps a file when it has all of it: after a download that raised, the next open downloads again; one beside a download waits or downloads, too.
# Seen (2026-11-30): it downloads to the name by which it later finds the file. A connection that breaks in the middle raises ClientPayloadError; each later read by that
# cache_storage, in that process or another, gives the first 4 of 8 MiB, for ever. The same after a `kill -9`, and for a second process that opens the file while
# the first still downloads, as workers of one job do. filecache and blockcache, which keep a list of what they have, give 8 MiB each time.
# Its "ab" appends to the copy that it keeps, and puts that back: a line that another program has appended since is gone.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q fsspec==2026.9.0 aiohttp==3.14.5 requests
env/bin/python - <<'PYTHON'
import os, socket, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec

SIZE = 8 * 2**20
READ = """
import sys, fsspec
url, cache = sys.argv[1:]
with fsspec.open(f"{cache}::{url}", "rb", **{cache: {"cache_storage": cache + "-files"}}) as file:
    print(len(file.read()))
"""


class Server(BaseHTTPRequestHandler):
    """A file of 8 MiB; in its midst the first download is cut, or waits."""

    protocol_version, cut, half, go_on = "HTTP/1.1", False, threading.Event(), threading.Event()

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(SIZE))
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        first = not Server.half.is_set()
        try:
            self.wfile.write(bytes(SIZE // 2))
            Server.half.set()
            if first and Server.cut:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if first:
                Server.go_on.wait(120)
            self.wfile.write(bytes(SIZE // 2))
        except OSError:  # the reader was killed
            self.close_connection = True

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()


def start(cache):
    command = [sys.executable, "-c", READ, f"http://127.0.0.1:{server.server_port}/{way}", cache]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(reader):
    out, err = reader.communicate(timeout=180)
    return int(out) if out else err.strip().splitlines()[-1].split(":")[0].split(".")[-1]


def half_there():
    """Wait until the first reader has written something of its half."""
    Server.half.wait(120)
    for _ in range(100):
        if any(os.path.getsize(os.path.join(folder, name)) > 2**20 for folder, _, names in os.walk(f"{cache}-files") for name in names):
            break
        threading.Event().wait(0.1)


found = {}
for cache in ("simplecache", "filecache", "blockcache"):
    for way in ("cut", "killed", "beside"):
        Server.cut = way == "cut"
        Server.half.clear()
        Server.go_on.clear()
        subprocess.run(["rm", "-rf", f"{cache}-files"], check=True)
        first = start(cache)
        if way == "killed":
            half_there()
            first.kill()
            first.communicate()
            second = end(start(cache))
        elif way == "beside":
            half_there()
            reader = start(cache)
            threading.Timer(10, Server.go_on.set).start()
            second = end(reader)
            Server.go_on.set()
            end(first)
        else:
            print(f"{cache}, cut: the first read ends by {end(first)}")
            second = end(start(cache))
        Server.go_on.set()
        found[cache, way] = second
        print(f"{cache}, {way}: the second read gives {second:,} bytes", flush=True)

log = os.path.abspath("log")
cached = fsspec.filesystem("simplecache", target_protocol="local", cache_storage=os.path.abspath("logs"))
with open(log, "wb") as file:
    file.write(b"first\n")
with cached.open(log) as file:
    file.read()
with open(log, "ab") as file:
    file.write(b"another program's\n")
with cached.open(log, "ab") as file:
    file.write(b"mine\n")
with open(log, "rb") as file:
    lines = file.read()
print(f"simplecache, ab: {lines}")
assert all(0 < found["simplecache", way] <= SIZE // 2 for way in ("cut", "killed", "beside")), found
assert all(found[cache, way] == SIZE for cache in ("filecache", "blockcache") for way in ("cut", "killed", "beside")), found
assert lines == b"first\nmine\n"
PYTHON
echo "simplecache of fsspec 2026.9.0: as described"
