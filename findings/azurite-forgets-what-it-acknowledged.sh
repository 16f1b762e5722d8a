#!/usr/bin/env bash
# azurite 3.37.0 forgets acknowledged blobs when it is killed within some seconds, though their bytes are on the disk.
#
# Guess: a blob whose PUT was answered by 201 is there after a crash of the server, because its bytes are on the disk.
# Seen (2026-11-29): after a `kill -9` right after the answers, the restarted server answers 404 for some or all of 50 blobs.
# After SIGTERM all are there; after a `kill -9` twenty seconds later, too. The index is in memory, and is saved at times.
# Azure itself is not concerned; a test that restarts azurite sees no durability of its client.
# Needs Node, Python 3.11 and the package registries. Ends with 0 while this is so. AZURITE names a main.js that is there.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill -9 "$(cat "$work/pid" 2>/dev/null)" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
[ -n "${AZURITE:-}" ] || npm install --silent --no-audit --no-fund azurite@3.37.0
python3 -m venv venv
venv/bin/pip install --quiet azure-storage-blob==12.31.1
venv/bin/python - "${AZURITE:-$work/node_modules/azurite/dist/src/blob/main.js}" <<'PYTHON'
import os, pathlib, signal, socket, subprocess, sys, time
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobServiceClient

BLOBS = 50
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def start(data, port):
    command = ["node", sys.argv[1], "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", data, "--silent", "--skipApiVersionCheck"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    pathlib.Path("pid").write_text(str(server.pid))
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        except OSError:
            time.sleep(0.1)


def kept(name, end, after_s):
    """Return how many of the blobs are there after the end of a server, and the files of their bytes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/devstoreaccount1"
    connect = f"AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={url}"
    server = start(name, port)
    container = BlobServiceClient.from_connection_string(connect).get_container_client("container")
    container.create_container()
    for number in range(BLOBS):
        container.upload_blob(f"blob-{number}", b"acknowledged")
    container.close()  # azurite waits for the end of idle connections
    time.sleep(after_s)
    server.send_signal(end)
    server.wait()
    server, found = start(name, port), 0
    container = BlobServiceClient.from_connection_string(connect).get_container_client("container")
    for number in range(BLOBS):
        try:
            found += container.download_blob(f"blob-{number}").readall() == b"acknowledged"
        except ResourceNotFoundError:
            pass
    server.kill()
    server.wait()
    size = sum(file.stat().st_size for file in pathlib.Path(name, "__blobstorage__").rglob("*") if file.is_file())
    print(f"{name}: {found} of {BLOBS} blobs are there, and {size} bytes of them on the disk", flush=True)
    return found, size


soon, size = kept("kill-9-at-once", signal.SIGKILL, 0)
ended, _ = kept("SIGTERM", signal.SIGTERM, 0)
late, _ = kept("kill-9-after-20-seconds", signal.SIGKILL, 20)
sys.exit(0 if soon < ended == late == BLOBS and size else 1)
PYTHON
echo "azurite 3.37.0: as described"
