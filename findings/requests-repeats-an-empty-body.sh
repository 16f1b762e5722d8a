#!/usr/bin/env bash
# requests 2.34.2, urllib3 2.8.0, niquests 3.21.2 and httpx 0.28.1 repeat a PUT whose body is an iterator with no body at all: the file at the server is empty, and the caller gets 200.
#
# Guess: an iterator gives its bytes once, so a client that follows a 307 or tries again raises an error, as httpx does for a generator (StreamConsumed) and requests for a file
# without seek (UnrewindableBodyError).
# Seen (2026-12-01): a log of 10 lines is uploaded from a generator, to a client with retries. The server takes the body, and answers 503 once, sends the client elsewhere by 307, or keeps the
# file and the connection breaks before the answer. The second PUT is a chunked body of 0 bytes; it gets 200, and the file that was whole is empty. Retry of urllib3 counts PUT as
# idempotent by itself, and a 307 needs no setting. httpx with httpx-retries 0.6.0 does it for iter(), map() and other iterators that are no generators. aiohttp 3.14.5 raises an error for
# 307; aiohttp-retry 2.9.1 sends an empty second PUT after 503, even of a BytesIO.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet requests==2.34.2 urllib3==2.8.0 niquests==3.21.2 httpx==0.28.1 httpx-retries==0.6.0 aiohttp==3.14.5 aiohttp-retry==2.9.1
venv/bin/python - <<'PYTHON'
import asyncio, io, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp_retry, httpx, httpx_retries, niquests, requests, urllib3


class Server(BaseHTTPRequestHandler):
    """Keep the body of each PUT; once, answer 503 or 307 and keep it not, or keep it and break the connection."""

    protocol_version = "HTTP/1.1"
    fault, puts, kept = None, [], None

    def do_PUT(self):
        body = b""
        if "Transfer-Encoding" in self.headers:
            while (head := self.rfile.readline()) and (size := int(head, 16)):
                body += self.rfile.read(size)
                self.rfile.readline()
            if not head:  # the client gave up
                self.close_connection = True
                return
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        fault, Server.fault = Server.fault, None
        Server.puts.append(len(body))
        if fault in (None, "lost"):
            Server.kept = body
        self.close_connection = True
        if fault == "lost":
            return
        self.send_response_only(int(fault or 200))
        if fault == "307":
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/log"
lines = [b"line %04d\n" % number for number in range(10)]
retry = urllib3.Retry(3, status_forcelist=[503])


def generator():
    yield from lines


def by_requests(body):
    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
    return session.put(url, data=body).status_code


def by_urllib3(body):
    return urllib3.PoolManager(retries=retry).request("PUT", url, body=body).status


def by_niquests(body):
    with niquests.Session(retries=niquests.RetryConfiguration(3, status_forcelist=[503])) as session:
        return session.put(url, data=body).status_code


def by_httpx(body):
    transport = httpx_retries.RetryTransport(retry=httpx_retries.Retry(total=3, backoff_factor=0.01))
    with httpx.Client(follow_redirects=True, transport=transport) as client:
        return client.put(url, content=body).status_code


def by_aiohttp_retry(body):
    async def put():
        options = aiohttp_retry.ExponentialRetry(attempts=3, start_timeout=0.01)
        async with aiohttp_retry.RetryClient(retry_options=options) as client, client.put(url, data=body) as answer:
            return answer.status

    return asyncio.run(put())


found = {}
for put, body in [
    (by_requests, generator),
    (by_urllib3, generator),
    (by_niquests, generator),
    (by_httpx, generator),
    (by_httpx, lambda: iter(lines)),
    (by_aiohttp_retry, lambda: io.BytesIO(b"".join(lines))),
]:
    for fault in ("503", "307", "lost"):
        Server.fault, Server.puts, Server.kept = fault, [], None
        given = body()
        name = (put.__name__, type(given).__name__, fault)
        try:
            end = put(given)
        except Exception as error:
            end = type(error).__name__
        found[name] = (end, Server.kept)
        kept = "none" if Server.kept is None else len(Server.kept)
        print(f"{' '.join(name)}: PUTs of {Server.puts} bytes, the file has {kept}; {end}", flush=True)
for (put, body, fault), (end, kept) in found.items():
    if put == "by_httpx" and body == "generator":
        assert end == "StreamConsumed", end
    elif put == "by_aiohttp_retry" and fault != "503":
        assert (end, kept) == (200, b"".join(lines))
    else:
        assert (end, kept) == (200, b""), (put, body, fault)
PYTHON
echo "requests 2.34.2, urllib3 2.8.0, niquests 3.21.2, httpx 0.28.1: as described"
