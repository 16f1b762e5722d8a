#!/usr/bin/env bash
# A disk by FUSE (bindfs 1.14.7, libfuse 3.14.0) finds no file under a name that was never free, while others rename files to it.
#
# Guess: rename(2) is atomic, so that who opens a name that is always taken gets the old file or the new one; ENOENT
# means that the file is gone.
# Seen (2026-11-29): next to two programs that rename new files to the name, a fifth of the opens fails with ENOENT, up to
# dozens one after another; in the folder that bindfs shows, none does. A client that takes ENOENT for
# "deleted" deletes or makes again what is there.
# Needs Debian 12 and its package index, Python 3.11, root and /dev/fuse. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'umount "$work/shown" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work" && chmod 755 .
apt-get download -qq bindfs=1.14.7-1 libfuse3-3=3.14.0-4
for package in ./*.deb; do dpkg -x "$package" programs; done
mkdir files shown
LD_LIBRARY_PATH="$(dirname "$(find "$work/programs" -name 'libfuse3.so.3' | sed -n 1p)")" programs/usr/bin/bindfs files shown
python3 - files shown <<'PYTHON'
import os, sys, threading, time

SECONDS, BYTES = 4, 3000


def rename(folder, number, ended):
    while not ended.is_set():
        with open(f"{folder}/{number}", "wb") as file:
            file.write(b"x" * BYTES)
        os.rename(f"{folder}/{number}", f"{folder}/name")


def missed(folder):
    with open(f"{folder}/name", "wb") as file:
        file.write(b"x" * BYTES)
    ended = threading.Event()
    writers = [threading.Thread(target=rename, args=(folder, number, ended)) for number in range(2)]
    for writer in writers:
        writer.start()
    opens = denied = row = longest = 0
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s:
        opens += 1
        try:
            os.close(os.open(f"{folder}/name", os.O_RDONLY))
            row = 0
        except FileNotFoundError:
            denied, row = denied + 1, row + 1
            longest = max(longest, row)
    ended.set()
    for writer in writers:
        writer.join()
    print(f"{folder}: ENOENT in {denied} of {opens} opens, at most {longest} one after another", flush=True)
    return denied


below, shown = (missed(folder) for folder in sys.argv[1:])
sys.exit(0 if not below and shown else 1)
PYTHON
echo "bindfs 1.14.7: as described"
