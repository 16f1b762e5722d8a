#!/usr/bin/env bash
# A mount of GlusterFS 10.3 opens a file that another machine has just replaced, and then calls it stale when it is read, for a second.
#
# Guess: who opens a name beside another machine's rename over it gets the old file or the new file, and can read it; the kernel looks for
# the name again where a server says ESTALE to open(2).
# Seen (2026-11-29): the mount knows the name by stat(2). After the rename open(2) and fstat(2) succeed, and read(2) fails with ESTALE in 20 of 20 rounds;
# the next open succeeds, too, and its fstat(2) fails with ESTALE, still so after 0.1 s (20 of 20). stat(2) of the name mends that at once: 20 of 20.
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
option transport.socket.listen-port 24908
option auth.addr.locks.allow *
subvolumes locks
end-volume
END
cat >client <<END
volume client
type protocol/client
option transport-type tcp
option remote-host 127.0.0.1
option remote-port 24908
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
import errno, os, sys, time

ONE, OTHER = sys.argv[1:]
ROUNDS, PAUSE_S = 20, 0.1


def replace(name, text):
    with open(f"{ONE}/new", "w") as file:
        file.write(text)
    os.rename(f"{ONE}/new", f"{ONE}/{name}")


def read(name):
    """Return the text of a file, or the call that fails and its error."""
    step, file = "open", None
    try:
        file = os.open(f"{OTHER}/{name}", os.O_RDONLY)
        step = "fstat"
        os.fstat(file)
        step = "read"
        return os.read(file, 100).decode()
    except OSError as error:
        return step, errno.errorcode[error.errno]
    finally:
        if file is not None:
            try:
                os.close(file)
            except OSError:
                pass


first = second = third = 0
for number in range(ROUNDS):
    replace(str(number), "old")
    os.stat(f"{OTHER}/{number}")
    replace(str(number), "new")
    first += read(str(number)) == ("read", "ESTALE")
    time.sleep(PAUSE_S)
    second += read(str(number)) == ("fstat", "ESTALE")
    os.stat(f"{OTHER}/{number}")
    third += read(str(number)) == "new"
print(f"of {ROUNDS} rounds: stale at the first read {first}, at the next open {second}; the new file after stat {third}")
sys.exit(first < ROUNDS // 2 or second < ROUNDS // 2 or third < ROUNDS)
PYTHON
