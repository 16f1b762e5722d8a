#!/usr/bin/env bash
# An append through fsspec 2026.9.0 replaces the file by FTP, by Jupyter and through a mount of fsspec.fuse: what was in the log is gone, without an error.
#
# Guess: mode "ab" of a filesystem of fsspec appends, as on a disk, S3, Azure or SFTP, or the filesystem refuses it, as webdav4 does; `>>` on a mount of
# fsspec.fuse does what the filesystem below does.
# Seen (2026-11-30): open("ab") of the FTP filesystem sends STOR from byte 0, so the server truncates the file, and that of the Jupyter filesystem puts the new bytes
# as the whole file. fsspec.fuse truncates each file that is opened to write: after `echo >>` or Python's open("ab") the old bytes are NUL, or gone. Nothing fails.
# simplecache, filecache and blockcache over a disk append. pandas.to_csv("ftp://…", mode="a") goes another way, by urllib, and writes nothing at all, without an error.
# Needs Debian 12 and its package index, Python 3.11 and its package index, root and /dev/fuse. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'umount "$work/mount" 2>/dev/null || true; kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq libfuse2 2>apt.log
dpkg -x ./*.deb programs
export FUSE_LIBRARY_PATH
FUSE_LIBRARY_PATH="$(find "$work/programs" -name 'libfuse.so.2*' | sort | sed -n 1p)"
python3 -m venv env
env/bin/pip install -q uv
VIRTUAL_ENV="$work/env" env/bin/uv pip install -q fsspec==2026.9.0 pyftpdlib==2.2.0 jupyter-server==2.21.1 fusepy==3.0.1 pandas==3.1.1 requests
mkdir files mount
free_port() { python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'; }
ftp="$(free_port)" jupyter="$(free_port)"
env/bin/python -m pyftpdlib -i 127.0.0.1 -p "$ftp" -w -d files -u user -P word >ftp.log 2>&1 &
env/bin/python -m jupyter_server --no-browser --allow-root --ip=127.0.0.1 --port="$jupyter" --IdentityProvider.token=word \
    --ServerApp.root_dir="$work/files" >jupyter.log 2>&1 &
env/bin/python -m fsspec.fuse local "$work/files" "$work/mount" >fuse.log 2>&1 &
for port in "$ftp" "$jupyter"; do
    for _ in $(seq 600); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break || sleep 0.1; done
done
for _ in $(seq 300); do mountpoint -q mount && break || sleep 0.1; done

env/bin/python - "$ftp" "$jupyter" <<'PYTHON'
import os, subprocess, sys, time
from importlib.metadata import version

import fsspec, pandas

ftp, jupyter = (int(port) for port in sys.argv[1:])
print({name: version(name) for name in ("fsspec", "pyftpdlib", "jupyter-server", "fusepy", "pandas")})
here, first, second = os.getcwd(), b"1\n2\n3\n", b"4\n"
by_ftp = fsspec.filesystem("ftp", host="127.0.0.1", port=ftp, username="user", password="word")


def by_fsspec(fs, path):
    with fs.open(path, "ab") as file:
        file.write(second)


def by_python():
    with open("mount/log", "ab") as file:
        file.write(second)


def cached(name):
    fs = fsspec.filesystem(name, target_protocol="local", cache_storage=f"{here}/{name}")
    fs.cat_file(f"{here}/files/log")
    by_fsspec(fs, f"{here}/files/log")


ways = {
    "a disk": lambda: by_fsspec(fsspec.filesystem("local"), f"{here}/files/log"),
    **{name: lambda name=name: cached(name) for name in ("simplecache", "filecache", "blockcache")},
    "ftp": lambda: by_fsspec(by_ftp, "/log"),
    "pandas.to_csv, ftp": lambda: pandas.DataFrame({"n": [4]}).to_csv(
        f"ftp://user:word@127.0.0.1:{ftp}/log", mode="a", header=False, index=False
    ),
    "jupyter": lambda: by_fsspec(fsspec.filesystem("jupyter", url=f"http://127.0.0.1:{jupyter}", tok="word"), "log"),
    "fsspec.fuse, echo >>": lambda: subprocess.run("echo 4 >> mount/log", shell=True, check=True),
    "fsspec.fuse, open('ab')": by_python,
}
found = {}
for name, append in ways.items():
    with open("files/log", "wb") as file:
        file.write(first)
    append()
    time.sleep(1)  # close(2) on a mount does not wait for the filesystem below
    with open("files/log", "rb") as file:
        found[name] = file.read()
    print(f"{name}: {found[name]}", flush=True)
lost = {name for name, content in found.items() if content != first + second}
assert lost == set(ways) - {"a disk", "simplecache", "filecache", "blockcache"}, lost
assert all(found[name] == second for name in ("ftp", "jupyter"))
assert all(found[name].lstrip(b"\0") == second for name in ("fsspec.fuse, echo >>", "fsspec.fuse, open('ab')"))
assert found["pandas.to_csv, ftp"] == first
PYTHON
echo "fsspec 2026.9.0: as described"
