#!/usr/bin/env bash
# A mount of GlusterFS 10.3 opens the file that another machine has replaced, while it holds the lock that kept the other out.
#
# Guess: a record lock that the server gives makes a mount look again, as on NFS; so who takes the lock, reads a file by its name
# and renames a new one over it, loses no change of others who do the same.
# Seen (2026-11-29): the locks exclude each other, and in 200 of 200 rounds `open` and `stat` under the lock still have the old file, for a
# second. After chown(2) to no other owner, which asks the server, 200 of 200 have the new file.
# Needs Debian 12 and its package index, Python 3.11, root, private mounts and /dev/fuse. Ends with 0 while this is so.
set -euo pipefail
[ -n "${MOUNTS_ARE_PRIVATE:-}" ] || exec env MOUNTS_ARE_PRIVATE=yes unshare --mount --propagation private bash "$0"
work="$(mktemp -d)"
trap 'umount -l "$work"/one "$work"/other 2>/dev/null || true; kill $(jobs -p) 2>/dev/null || true; wait; umount -l /usr || true; rm -rf "$work"' EXIT
cd "$work" && chmod 755 .
apt-get -o APT::Sandbox::User=root download -qq glusterfs-common=10.3-5 glusterfs-client=10.3-5 libglusterfs0=10.3-5 libgfrpc0=10.3-5 libgfxdr0=10.3-5 \
    libgfapi0=10.3-5 libtirpc3 liburcu8 libaio1
mkdir brick one other
for package in ./*.deb; do dpkg -x "$package" root; done
cat >server <<END
volume disk
type storage/posix
option directory $work/brick
end-volume
volume locks
type features/locks
subvolumes disk
end-volume
volume server
type protocol/server
option transport-type tcp
option transport.socket.bind-address 127.0.0.1
option transport.socket.listen-port 24907
option auth.addr.locks.allow *
subvolumes locks
end-volume
END
cat >client <<END
volume client
type protocol/client
option transport-type tcp
option remote-host 127.0.0.1
option remote-port 24907
option remote-subvolume locks
end-volume
volume reads
type performance/quick-read
subvolumes client
end-volume
volume opens
type performance/open-behind
subvolumes reads
end-volume
volume stats
type performance/md-cache
subvolumes opens
end-volume
END
# the programs look for layers below /usr/lib only
mount -t overlay overlay -o "lowerdir=$work/root/usr:/usr" /usr
/usr/sbin/glusterfsd -N --log-file="$work/server.log" -f "$work/server" &
sleep 2
for mount in one other; do /usr/sbin/glusterfs -N --log-file="$work/$mount.log" -f "$work/client" "$work/$mount" & done
for _ in $(seq 50); do mountpoint -q one && mountpoint -q other && break || sleep 0.2; done

python3 - one other <<'PYTHON'
import fcntl, os, struct, sys

ONE, OTHER = sys.argv[1:]
ROUNDS, WHOLE_FILE = 200, struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def locked(folder, how=fcntl.F_OFD_SETLKW):
    file = open(f"{folder}/lock", "r+b")
    fcntl.fcntl(file, how, WHOLE_FILE)
    return file


def replace(folder, text):
    with open(f"{folder}/new", "w") as file:
        file.write(text)
    os.rename(f"{folder}/new", f"{folder}/file")


def read(folder):
    with open(f"{folder}/file") as file:
        return file.read()


open(f"{ONE}/lock", "w").close()
replace(ONE, "first")
old = new = 0
for number in range(ROUNDS):
    read(OTHER)
    with locked(ONE):
        replace(ONE, str(number))
        try:
            locked(OTHER, fcntl.F_OFD_SETLK)
            sys.exit("the lock of a mount does not keep the other out")
        except BlockingIOError:
            pass
    with locked(OTHER):
        old += read(OTHER) != str(number)
        os.chown(f"{OTHER}/file", -1, -1)
        new += read(OTHER) == str(number)
print(f"under the lock: the old file in {old} of {ROUNDS} rounds; the new file after chown in {new}")
sys.exit(old < ROUNDS // 2 or new < ROUNDS)
PYTHON
