#!/usr/bin/env bash
# webdav4 0.11.0, the WebDAV filesystem of fsspec, takes "p%41" and "pA" for one file: a write to the first replaces the second, and so does a removal.
#
# Guess: a path of fsspec is a name, not a URL, so "%41" in it is three characters; webdav4 quotes it, as it quotes a blank or "ü".
# Seen (2026-11-29): with wsgidav 4.4.0 as the server, "p q", "p+q" and "pü" come back as they were, also by ls. After pipe_file("pA") a pipe_file("p%41")
# replaces the bytes of pA, exists("p%41") says yes though ls never names it, cat_file("p%41") is a KeyError, and rm_file("p%41") removes pA.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q wsgidav==4.4.0 cheroot==11.1.2 "webdav4[fsspec]==0.11.0" fsspec==2026.9.0 httpx==0.28.1
mkdir files
port="$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')"
env/bin/wsgidav --host 127.0.0.1 --port "$port" --root files --auth anonymous -q >server.log 2>&1 &
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break || sleep 0.1; done

env/bin/python - "$port" <<'PYTHON'
import os, sys
from importlib.metadata import version

import fsspec

print({name: version(name) for name in ("webdav4", "wsgidav", "fsspec")})
fs = fsspec.filesystem("webdav", base_url=f"http://127.0.0.1:{sys.argv[1]}")
for name in ("p q", "p+q", "pü"):
    fs.pipe_file(name, name.encode())
    assert fs.cat_file(name) == name.encode() and name in fs.ls("", detail=False) and os.path.exists(f"files/{name}")

fs.pipe_file("pA", b"precious")
fs.pipe_file("p%41", b"other")
found, there, names = fs.cat_file("pA"), fs.exists("p%41"), sorted(fs.ls("", detail=False))
try:
    read = fs.cat_file("p%41")
except KeyError as error:
    read = f"KeyError {error}"
fs.rm_file("p%41")
left = sorted(os.listdir("files"))
print(f"pA has {found} after a write to p%41; exists(p%41) {there}; ls {names}; cat_file(p%41): {read}; after rm_file(p%41): {left}")
assert found == b"other" and there and "p%41" not in names and "KeyError" in str(read) and "pA" not in left
PYTHON
