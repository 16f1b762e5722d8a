#!/usr/bin/env bash
# open(2) with O_CREAT, without O_EXCL, fails with EEXIST on a mount of MooseFS 3.0.117 while another machine makes that file.
#
# Guess: who opens a file with O_CREAT gets the file, whoever has made it, as POSIX says; so a lock file or a log that several machines open
# with O_CREAT needs no second try.
# Seen (2026-11-29): four programs open 60 names at once. On two mounts 42 to 60 of 240 opens fail with EEXIST, and the next open succeeds; on one mount none fails.
# O_EXCL, link(2) and mkdir(2) have one winner on two mounts, and record locks exclude.
# Needs Debian 12 and its package index, Python 3.11, root and /dev/fuse. Ends with 0 while this is so.
set -euo pipefail
if [ -z "${1:-}" ]; then
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get -o APT::Sandbox::User=root download -qq moosefs-master=3.0.117-1 moosefs-chunkserver=3.0.117-1 moosefs-client=3.0.117-1 libfuse3-3)
    # the server takes no address of the loopback range: a network of its own has another one
    unshare --net --mount --propagation private bash "$0" "$work"
    exit
fi
cd "$1" && work="$1"
trap 'umount -l "$work"/one "$work"/other 2>/dev/null || true; kill $(jobs -p) 2>/dev/null || true; wait' EXIT
ip link set lo up
ip addr add 192.0.2.1/32 dev lo
mkdir meta chunks disk one other
for package in ./*.deb; do dpkg -x "$package" root; done
cp root/var/lib/mfs/metadata.mfs.empty meta/metadata.mfs
echo '* / rw,alldirs,maproot=0' >exports
: >topology
echo "$work/disk" >disks
user=$'WORKING_USER = root\nWORKING_GROUP = root'
cat >master <<END
$user
DATA_PATH = $work/meta
EXPORTS_FILENAME = $work/exports
TOPOLOGY_FILENAME = $work/topology
LOCK_MEMORY = 0
END
cat >chunkserver <<END
$user
DATA_PATH = $work/chunks
HDD_CONF_FILENAME = $work/disks
HDD_LEAVE_SPACE_DEFAULT = 64MiB
MASTER_HOST = 192.0.2.1
END
export LD_LIBRARY_PATH="$work/root/lib/x86_64-linux-gnu:$work/root/usr/lib/x86_64-linux-gnu"
root/usr/sbin/mfsmaster -f -c master start >master.log 2>&1 &
sleep 2
root/usr/sbin/mfschunkserver -f -c chunkserver start >chunks.log 2>&1 &
sleep 2
for mount in one other; do root/usr/bin/mfsmount -f "$work/$mount" -H 192.0.2.1 >"$mount.log" 2>&1 & done
for _ in $(seq 100); do mountpoint -q one && mountpoint -q other && break || sleep 0.2; done
mountpoint -q one && mountpoint -q other

python3 - one other <<'PYTHON'
import collections, errno, multiprocessing, os, sys

ROUNDS, PROGRAMS = 60, 4


def opened(mounts, number, start, answers):
    found = collections.Counter()
    for nth in range(ROUNDS):
        name = f"{mounts[number % 2]}/{'-'.join(mounts)}-{nth}"
        start.wait()
        try:
            os.close(os.open(name, os.O_CREAT | os.O_RDWR))
            found["opened"] += 1
        except FileExistsError as error:
            found[errno.errorcode[error.errno]] += 1
            os.close(os.open(name, os.O_CREAT | os.O_RDWR))
    answers.put(found)


def race(mounts):
    answers, start = multiprocessing.Queue(), multiprocessing.Barrier(PROGRAMS)
    programs = [multiprocessing.Process(target=opened, args=(mounts, number, start, answers)) for number in range(PROGRAMS)]
    for program in programs:
        program.start()
    found = sum((answers.get() for _ in programs), collections.Counter())
    print(f"{PROGRAMS * ROUNDS} opens by {' and '.join(mounts)}:", dict(found))
    return found["EEXIST"]


ONE, OTHER = sys.argv[1:]
two_machines, one_machine = race((ONE, OTHER)), race((ONE, ONE))
sys.exit(two_machines < 5 or one_machine > 0)
PYTHON
