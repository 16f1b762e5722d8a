#!/usr/bin/env bash
# cloudpathlib 0.26.0 on S3 loses a line that another program appended in the same second, though each appends after the other has closed the file; a reader keeps the old file for ever.
#
# Guess: who appends after another has closed the file has its lines, as on a disk; where the file has changed at the store, cloudpathlib downloads it again or raises OverwriteNewerCloudError.
# Seen (2026-12-01): it compares the time of its copy with "Last-Modified" of S3, which counts whole seconds. Program B appends, A appends, B appends again, within a second: B takes its own
# copy for the newest, and puts that: A's line is gone, and all three succeeded. With 1.2 s between them no line is lost. A reader that has downloaded the file in the second of the
# last change reads the old file five seconds later, too, and as long as its copy is there; a new reader gets the new one.
# Two that have the file open at the same time lose one line at any distance, without OverwriteNewerCloudError.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet uv
VIRTUAL_ENV="$work/venv" venv/bin/uv pip install --quiet 'moto[server,s3]==5.2.5' cloudpathlib==0.26.0 boto3==1.43.117
venv/bin/python - <<'PYTHON'
import socket, subprocess, sys, tempfile, time, urllib.request

from cloudpathlib import S3Client

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{free.getsockname()[1]}"
store = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", url.rpartition(":")[2]], stderr=subprocess.DEVNULL)


def program(name="log"):
    """Return the file as a program of its own has it, with a cache of its own."""
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return S3Client(endpoint_url=url, local_cache_dir=tempfile.mkdtemp(dir="."), **keys).CloudPath(f"s3://bucket/{name}")


def append(path, line):
    with path.open("ab") as file:
        file.write(line)


def begin():
    """Wait for the beginning of a second."""
    time.sleep(1.02 - time.time() % 1)


try:
    for _ in range(300):
        try:
            urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"))
            break
        except OSError:
            time.sleep(0.1)
    program().write_bytes(b"")  # all that is loaded at the first use
    found = {}
    for apart_s in (0, 1.2):
        a, b = program(), program()
        a.write_bytes(b"first\n")
        time.sleep(1.2)
        begin()
        began = int(time.time())
        for path, line in ((b, b"B\n"), (a, b"A\n"), (b, b"B again\n")):
            append(path, line)
            time.sleep(apart_s)
        took = time.time() - began
        found[apart_s] = program().read_bytes()
        print(f"one after another, {apart_s} s apart, {took:.1f} s in all: {found[apart_s]}", flush=True)

    writer, reader = program(), program()
    begin()
    writer.write_bytes(b"old\n")
    reader.read_bytes()
    append(writer, b"new\n")
    time.sleep(5)
    reads = reader.read_bytes(), program().read_bytes()
    print(f"five seconds after the change: the reader that read before {reads[0]}, a new one {reads[1]}", flush=True)

    a, b = program(), program()
    a.write_bytes(b"first\n")
    time.sleep(1.2)
    with a.open("ab") as one, b.open("ab") as two:
        one.write(b"A\n")
        two.write(b"B\n")
        time.sleep(1.2)
    both = program().read_bytes()
    print(f"both open: {both}", flush=True)
finally:
    store.kill()
assert found == {0: b"first\nB\nB again\n", 1.2: b"first\nB\nA\nB again\n"}
assert reads == (b"old\n", b"old\nnew\n") and both in (b"first\nA\n", b"first\nB\n")
PYTHON
echo "cloudpathlib 0.26.0: as described"
