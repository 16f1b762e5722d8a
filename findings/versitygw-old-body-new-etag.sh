#!/usr/bin/env bash
# versitygw 1.8.0 (posix --sidecar) answers a GET beside a PUT with the old body and the new ETag.
#
# Guess: a store in which each race of conditional PUTs has one winner is fit for compare-and-swap.
# Seen (2026-11-28): every round of four conditional PUTs has one winner, and some GETs beside them have status 200,
# the bytes of the object before, and the ETag of the object after. A program that changes what it read, and writes it
# on the condition of that ETag, takes back what another one wrote. Without --sidecar it happens as well, but seldom: 1 of
# 300 GETs in one run, none in others.
# Needs Go, Python 3.11 and the package registries. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill "${server:-}" 2>/dev/null || true; chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
GOBIN="$work" GOPATH="$work/go" go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
python3 -m venv venv
venv/bin/pip install --quiet botocore==1.43.117
mkdir data sidecar
port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
./versitygw --access someone --secret something --port "127.0.0.1:$port" --quiet posix --sidecar "$work/sidecar" "$work/data" &
server=$!
venv/bin/python - "$port" <<'PYTHON'
import hashlib, http.client, sys, threading, time
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

port, rounds, key = int(sys.argv[1]), 400, "/bucket/object"


def send(connection, method, path, body=b"", **headers):
    url = f"http://127.0.0.1:{port}{path}"
    request = AWSRequest(method, url, data=body, headers={name.replace("_", "-"): v for name, v in headers.items()})
    S3SigV4Auth(Credentials("someone", "something"), "s3", "us-east-1").add_auth(request)
    connection.request(method, path, body, dict(request.headers))
    answer = connection.getresponse()
    return answer.status, answer.getheader("ETag", "").strip('"'), answer.read()


def connect():
    return http.client.HTTPConnection("127.0.0.1", port, timeout=30)


for _ in range(200):
    try:
        send(connect(), "PUT", "/bucket")
        break
    except OSError:
        time.sleep(0.1)
first, lock, begin, end = connect(), threading.Lock(), threading.Barrier(7), threading.Barrier(7)
token, sent, winners, mixed, reads = send(first, "PUT", key, b"0" * 1024)[1], {}, [], 0, 0
sent[hashlib.md5(b"0" * 1024).hexdigest()] = 1


def write(number):
    connection = connect()
    for turn in range(rounds):
        body = b"%d %d " % (turn, number) + b"." * 1024
        begin.wait()
        status, etag, _ = send(connection, "PUT", key, body, If_Match=f'"{token}"')
        with lock:
            if status == 200:
                winners.append(etag)
        end.wait()


def read(_):
    global mixed, reads
    connection = connect()
    for _ in range(rounds):
        begin.wait()
        status, etag, body = send(connection, "GET", key)
        with lock:
            reads += 1
            mixed += status == 200 and hashlib.md5(body).hexdigest() != etag
        end.wait()


threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(4)]
threads += [threading.Thread(target=read, args=(n,), daemon=True) for n in range(2)]
for thread in threads:
    thread.start()
one_winner = 0
for turn in range(rounds):
    begin.wait()
    end.wait()
    one_winner += len(winners) == 1
    token = winners[0] if winners else send(first, "HEAD", key)[1]
    winners.clear()
print(f"rounds with one winner: {one_winner} of {rounds}; GETs whose bytes are not those of their ETag: {mixed} of {reads}")
sys.exit(0 if one_winner == rounds and mixed else 1)
PYTHON
echo "versitygw 1.8.0: as described"
