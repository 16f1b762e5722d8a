#!/usr/bin/env bash
# OpenStack Swift 2.38.3 acknowledges several concurrent PUTs with "If-None-Match: *" of one new object.
#
# Guess: "If-None-Match: *" makes a PUT an exclusive create. One after another, the second gets 412; so of eight PUTs at once one gets 201.
# Seen (2026-11-29): the object server compares the condition before it reads the body, and not when the file gets its name. In 12 of 20 rounds of
# eight PUTs, two to four got 201; through S3's API (s3api) up to six of six got 200. Each winner gets its own ETag, and a GET then has
# the bytes of one of them. This takes one replica and one object server, no failure and no partition.
# Needs Python 3.11 and its package index, and a disk with extended attributes below the folder for temporary files. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q swift==2.38.3 pyeclib==1.7.0 setuptools==80.9.0
mkdir -p etc disks/one cache
export SWIFT_DIR="$work/etc"
printf '[swift-hash]\nswift_hash_path_prefix = a\nswift_hash_path_suffix = b\n[storage-policy:0]\nname = one\ndefault = yes\n' >etc/swift.conf
read -r account container object proxy < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(one.getsockname()[1] for one in sockets))')
settings() {
    printf '[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = %s\nworkers = 1\nuser = %s\nswift_dir = %s/etc\nlog_level = CRITICAL\n' "$1" "$(id -un)" "$work"
    printf 'devices = %s/disks\nmount_check = false\ndisable_fallocate = true\nrecon_cache_path = %s/cache\n' "$work" "$work"
}
for kind in account container object; do
    (
        cd etc
        ../env/bin/swift-ring-builder $kind.builder create 4 1 1
        ../env/bin/swift-ring-builder $kind.builder add "r1z1-127.0.0.1:${!kind}/one" 1
        ../env/bin/swift-ring-builder $kind.builder rebalance
    ) >>rings.log
    { settings "${!kind}"; printf '[pipeline:main]\npipeline = %s-server\n[app:%s-server]\nuse = egg:swift#%s\n' $kind $kind $kind; } >etc/$kind.conf
    env/bin/swift-$kind-server etc/$kind.conf >$kind.log 2>&1 &
done
{ settings "$proxy"; printf '[pipeline:main]\npipeline = catch_errors proxy-server\n[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n[filter:catch_errors]\nuse = egg:swift#catch_errors\n'; } >etc/proxy.conf
env/bin/swift-proxy-server etc/proxy.conf >proxy.log 2>&1 &
env/bin/pip list 2>/dev/null | grep '^swift '

env/bin/python - "$proxy" <<'PYTHON'
import collections, hashlib, http.client, sys, threading, time

PORT, ROUNDS, WRITERS = int(sys.argv[1]), 20, 8
EXCLUSIVE = {"If-None-Match": "*"}


def ask(verb, path, body=b"", headers={}):
    link = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    link.request(verb, f"/v1/AUTH_a{path}", body, headers)
    answer = link.getresponse()
    return answer.status, answer.read(), answer.getheader("ETag")


for _ in range(100):
    try:
        if ask("PUT", "/c")[0] in (201, 202):
            break
    except OSError:
        pass
    time.sleep(0.2)
in_turn = [ask("PUT", "/c/in-turn", body, EXCLUSIVE)[0] for body in (b"one", b"other")]
print("one after the other:", in_turn)


def race(number):
    """How many of the writers are told that they have created the object; whether each got its own ETag."""
    told, start = {}, threading.Barrier(WRITERS)

    def create(writer):
        body = b"%d" % writer * 1000
        start.wait()
        told[writer] = (*ask("PUT", f"/c/{number}", body, EXCLUSIVE), hashlib.md5(body).hexdigest())

    threads = [threading.Thread(target=create, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [writer for writer, answer in told.items() if answer[0] == 201]
    assert all(told[one][2].strip('"') == told[one][3] for one in winners)
    assert ask("GET", f"/c/{number}")[1] in [b"%d" % one * 1000 for one in winners]
    return len(winners)


counts = collections.Counter(race(number) for number in range(ROUNDS))
print(f"winners of {WRITERS} at once: rounds", dict(sorted(counts.items())))
sys.exit(in_turn != [201, 412] or sum(rounds for winners, rounds in counts.items() if winners > 1) < 3)
PYTHON
