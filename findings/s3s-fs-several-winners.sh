#!/usr/bin/env bash
# s3s-fs 0.14.1 lets several conditional PUTs of one key win, of one new key and of one ETag; each gets 200.
#
# Guess: a server that refuses a PUT with `If-None-Match: *` on a key that is there has one winner of several at once.
# Seen (2026-11-29): one after another, both conditions are honoured (412). Of 16 clients that send at once, several get 200 in
# most of 30 rounds, with `If-None-Match: *` and with `If-Match`: it looks, and then writes. The others' objects are gone.
# Needs Rust, Python 3.11 and the package registries. Ends with 0 while this is so. S3S_FS names a program that is there.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
[ -n "${S3S_FS:-}" ] || cargo install --quiet --locked --root "$work" s3s-fs@0.14.1 --no-default-features --features binary
python3 -m venv venv
venv/bin/pip install --quiet botocore==1.43.117
mkdir data
port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
"${S3S_FS:-$work/bin/s3s-fs}" --host 127.0.0.1 --port "$port" --access-key someone --secret-key something data > s3s.log 2>&1 &
server=$!
venv/bin/python - "$port" <<'PYTHON'
import contextlib, http.client, sys, threading, time
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

port, rounds, clients = int(sys.argv[1]), 30, 16


def send(connection, method, path, body=b"", **headers):
    url = f"http://127.0.0.1:{port}{path}"
    request = AWSRequest(method, url, data=body, headers={name.replace("_", "-"): v for name, v in headers.items()})
    S3SigV4Auth(Credentials("someone", "something"), "s3", "us-east-1").add_auth(request)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it answers a refusal before the body has arrived
        connection.request(method, path, body, dict(request.headers))
    answer = connection.getresponse()
    return answer.status, answer.getheader("ETag", ""), answer.read()


def connect():
    return http.client.HTTPConnection("127.0.0.1", port, timeout=30)


for _ in range(200):
    try:
        send(connect(), "PUT", "/bucket")
        break
    except OSError:
        time.sleep(0.1)
send(connect(), "PUT", "/bucket/there", b"old")
assert send(connect(), "PUT", "/bucket/there", b"new", If_None_Match="*")[0] == 412
assert send(connect(), "PUT", "/bucket/there", b"new", If_Match='"00000000000000000000000000000000"')[0] == 412
conditions = {"create": lambda turn: {"If_None_Match": "*"}, "replace": lambda turn: {"If_Match": tokens[turn]}}
tokens = [send(connect(), "PUT", f"/bucket/replace-{turn}", b"first")[1] for turn in range(rounds)]
begin, end = threading.Barrier(clients + 1, timeout=60), threading.Barrier(clients + 1, timeout=60)
winners, lock = [], threading.Lock()


def race(number):
    for name, condition in conditions.items():
        for turn in range(rounds):
            connection = connect()
            connection.connect()
            begin.wait()
            status, _, _ = send(connection, "PUT", f"/bucket/{name}-{turn}", b"%d" % number * 512, **condition(turn))
            with lock:
                if status == 200:
                    winners.append(number)
            end.wait()


for number in range(clients):
    threading.Thread(target=race, args=(number,), daemon=True).start()
several = {}
for name in conditions:
    counts = []
    for _ in range(rounds):
        begin.wait()
        end.wait()
        counts.append(len(winners))
        winners.clear()
    several[name] = sum(count > 1 for count in counts)
    print(f"{name}: several winners in {several[name]} of {rounds} rounds, at most {max(counts)} of {clients}")
sys.exit(0 if all(several.values()) else 1)
PYTHON
echo "s3s-fs 0.14.1: as described"
