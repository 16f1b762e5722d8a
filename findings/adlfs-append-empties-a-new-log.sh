#!/usr/bin/env bash
# Two programs that open one new file with "ab" by adlfs 2026.8.0 (Azure): the later one empties it, and the lines that the first has written are gone, without an error.
#
# Guess: an append blob is made for several writers; "ab" makes it on the condition that there is none, as open(2) with O_CREAT does, and each block then goes to its end.
# Seen (2026-11-30, azurite 3.37.0 as the store): adlfs asks whether the blob is there, and then sends Put Blob without a condition, which replaces what another has made
# since. Of 8 programs that each append a line to one new log at the same moment, 44 and 97 of 320 lines were gone, in 16 and 21 of 40 rounds, though each close() succeeded. On
# a log that was there before, none was lost. Put Blob with "If-None-Match: *", which azure-storage-blob offers, has one winner.
# Needs Node, Python 3.11 and the package registries. Ends with 0 while this is so. AZURITE names a main.js that is there.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
[ -n "${AZURITE:-}" ] || npm install --silent --no-audit --no-fund azurite@3.37.0
python3 -m venv venv
venv/bin/pip install --quiet uv
VIRTUAL_ENV="$work/venv" venv/bin/uv pip install --quiet adlfs==2026.8.0 fsspec==2026.9.0
port="$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')"
node "${AZURITE:-$work/node_modules/azurite/dist/src/blob/main.js}" --blobHost 127.0.0.1 --blobPort "$port" -l data --silent --skipApiVersionCheck >azurite.log 2>&1 &
for _ in $(seq 600); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break || sleep 0.1; done
cat >race.py <<'PYTHON'
import multiprocessing, sys

import adlfs

WRITERS, ROUNDS = 8, 20
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # azurite's own, for everybody
CONNECTION = f"AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:{sys.argv[1]}/devstoreaccount1;"


def connect():
    return adlfs.AzureBlobFileSystem(connection_string=CONNECTION, skip_instance_cache=True)


def write(number, begin, failed):
    fs = connect()
    fs.exists("container/none")
    for name in ("new", "old"):
        for turn in range(ROUNDS):
            begin.wait(60)
            try:
                with fs.open(f"container/{name}-{turn}", "ab") as file:
                    file.write(b"%d\n" % number)
            except Exception as error:
                failed.put(f"{name}-{turn}: {error!r:.100}")


if __name__ == "__main__":
    fs = connect()
    fs.mkdir("container")
    for turn in range(ROUNDS):
        with fs.open(f"container/old-{turn}", "ab") as file:
            file.write(b"first\n")
    context = multiprocessing.get_context("spawn")
    begin, failed = context.Barrier(WRITERS), context.Queue()
    writers = [context.Process(target=write, args=(number, begin, failed)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    failures = [] if failed.empty() else [failed.get()]
    fs = connect()
    lost = {}
    for name, before in (("new", 0), ("old", 1)):
        missing = [WRITERS + before - len(fs.cat_file(f"container/{name}-{turn}").split()) for turn in range(ROUNDS)]
        lost[name] = sum(missing)
        print(f"{name} log: lines gone in {sum(map(bool, missing))} of {ROUNDS} rounds, {sum(missing)} of {WRITERS * ROUNDS} in all, errors {failures}")
    sys.exit(0 if lost["new"] and not lost["old"] and not failures else 1)
PYTHON
venv/bin/python race.py "$port"
echo "adlfs 2026.8.0: as described"
