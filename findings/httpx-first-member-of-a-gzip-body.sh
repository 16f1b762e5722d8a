#!/usr/bin/env bash
# httpx 0.28.1 and httpx2 2.16.2 give the first gzip member of a body, and nothing at all if that is empty, without an error.
#
# Guess: the coding gzip is the format of RFC 1952 (RFC 9110), whose files have one or more members; so a client decodes all that a server sends with
# `Content-Encoding: gzip`, as an object store sends a log that was appended to or joined, or it says that it cannot.
# Seen (2026-11-30): of a body of two members the first, by httpx and httpx2 in each case, in one write, in chunks and by iter_lines(); an empty member first: 0 bytes, status 200.
# requests 2.34.2, aiohttp 3.14.5 and niquests 3.21.2 give everything; curl refuses such a body by name; primp 2.0.1, tried by hand, fails or gives the first.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet httpx==0.28.1 httpx2==2.16.2 requests==2.34.2 aiohttp==3.14.5 niquests==3.21.2 pycurl==7.49.0
env/bin/python - <<'PYTHON'
import asyncio, gzip, io, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp, httpx, httpx2, niquests, pycurl, requests


def lines(start, end):
    return "".join(f'{{"n":{n},"text":"some words of line {n}"}}\n' for n in range(start, end)).encode()


FIRST, MORE = lines(0, 1000), lines(1000, 3000)
WHOLE = FIRST + MORE
BODIES = {
    "one": [gzip.compress(WHOLE)],
    "two": [gzip.compress(FIRST), gzip.compress(MORE)],
    "empty": [gzip.compress(b""), gzip.compress(FIRST), gzip.compress(MORE)],
}


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        _, name, way = self.path.split("/")
        members = BODIES[name]
        self.send_response(200)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        if way == "whole":
            self.send_header("Content-Length", str(sum(map(len, members))))
            self.end_headers()
            self.wfile.write(b"".join(members))
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for member in [*members, b""]:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(member), member))
                time.sleep(0.05)
        except OSError:  # the client refused the body and left
            self.close_connection = True

    def log_message(self, *words):
        pass


def by_lines(client):
    def read(url):
        with client.stream("GET", url) as response:
            return "".join(f"{line}\n" for line in response.iter_lines()).encode()

    return read


def by_aiohttp(url):
    async def read():
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return await response.read()

    return asyncio.run(read())


def by_curl(url):
    out, curl = io.BytesIO(), pycurl.Curl()
    for option, value in ((curl.URL, url), (curl.ACCEPT_ENCODING, "gzip"), (curl.WRITEDATA, out)):
        curl.setopt(option, value)
    try:
        curl.perform()
    finally:
        curl.close()
    return out.getvalue()


SILENT = {
    "httpx": lambda url: httpx.get(url).content,
    "httpx, lines": by_lines(httpx),
    "httpx2": lambda url: httpx2.get(url).content,
    "httpx2, lines": by_lines(httpx2),
}
RIGHT = {
    "requests": lambda url: requests.get(url).content,
    "aiohttp": by_aiohttp,
    "niquests": lambda url: niquests.get(url).content,
}


def read(reader, url):
    try:
        return reader(url)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:70]


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
for name in BODIES:
    for way in ("whole", "chunks"):
        url = f"http://127.0.0.1:{server.server_port}/{name}/{way}"
        found = {reader: read(of, url) for reader, of in {**SILENT, **RIGHT, "curl": by_curl}.items()}
        print(name, way, {reader: data if isinstance(data, str) else len(data) for reader, data in found.items()})
        expected = {"one": WHOLE, "two": FIRST, "empty": b""}[name]
        assert all(found[reader] == WHOLE for reader in RIGHT)
        assert all(found[reader] == expected for reader in SILENT)
        assert found["curl"] == WHOLE if name == "one" else isinstance(found["curl"], str)
server.shutdown()
PYTHON
echo "httpx 0.28.1, httpx2 2.16.2: as described"
