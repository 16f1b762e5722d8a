#!/usr/bin/env bash
# Ceph RGW 18.2.7 refuses a PUT whose If-Match is the ETag that it gave, and takes one whose If-None-Match is that ETag.
#
# Guess: a PUT with If-Match of the newest ETag is taken, with another ETag it is refused; If-None-Match the other way round. So it is
# with GET of the same server, as the HTTP specification has it: an entity tag is a quoted string.
# Seen (2026-11-29): a PUT compares the header's whole text with the ETag as it is kept, without quotes. The quoted ETag is refused (412) by
# If-Match and taken (200) by If-None-Match; without its quotes, which is not HTTP, all is as guessed. GET takes both forms.
# Ceph 16.2.15 of Debian 12 does the same. `If-None-Match: *` and `If-Match: *` hold.
# Needs root, debootstrap, Python 3.11, curl and Debian's package index. Takes some 5 minutes. Ends with 0 while this is so.
set -euo pipefail
[ -n "${INSIDE:-}" ] || exec env INSIDE=yes unshare --mount --propagation private --pid --fork --kill-child bash "$0"
work="$(mktemp -d)"
root="$work/debian"
trap 'kill -9 $(jobs -p) 2>/dev/null || true; umount -l "$root/proc" "$root/dev" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
debootstrap --variant=minbase trixie "$root" >"$work/log"
cp -R /etc/apt/apt.conf.d "$root/etc/apt/"
cp /etc/resolv.conf "$root/etc/"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
inside() { chroot "$root" env CEPH_CONF=/ceph/conf "$@"; }
inside sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    ceph-mon=18.2.7+ds-1+deb13u1 ceph-mgr=18.2.7+ds-1+deb13u1 ceph-osd=18.2.7+ds-1+deb13u1 radosgw=18.2.7+ds-1+deb13u1 \
    ceph-common=18.2.7+ds-1+deb13u1' >>"$work/log" 2>&1

mkdir "$root/ceph"
cat >"$root/ceph/conf" <<'END'
[global]
fsid = 11111111-2222-3333-4444-555555555555
mon host = [v2:127.0.0.1:24920,v1:127.0.0.1:24921]
public network = 127.0.0.0/8
auth cluster required = none
auth service required = none
auth client required = none
osd objectstore = memstore
osd class dir = /usr/lib/x86_64-linux-gnu/rados-classes
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
run dir = /ceph
admin socket = /ceph/$name.$pid.asok
pid file = /ceph/$name.$pid.pid
log file = /ceph/$name.log
mon data = /ceph/mon
mgr data = /ceph/mgr
osd data = /ceph/osd
rgw data = /ceph/rgw
rgw frontends = beast endpoint=127.0.0.1:24922
END
inside bash -euc 'cd /ceph; mkdir mon mgr osd rgw
    monmaptool --create --fsid 11111111-2222-3333-4444-555555555555 --addv a "[v2:127.0.0.1:24920,v1:127.0.0.1:24921]" map
    ceph-mon --mkfs -i a --monmap map; ceph-mon -i a; ceph-mgr -i x
    timeout 60 ceph osd create 11111111-2222-3333-4444-000000000000 0
    ceph-osd -i 0 --mkfs --osd-uuid 11111111-2222-3333-4444-000000000000; ceph-osd -i 0' >>"$work/log" 2>&1
inside radosgw -f -n client.admin --ms-mon-client-mode=crc >>"$work/log" 2>&1 &
url=http://127.0.0.1:24922
for _ in $(seq 120); do curl -s -o /dev/null "$url" && break; sleep 1; done
inside radosgw-admin user create --uid=u --display-name=u --access-key=access --secret-key=secret1secret1 >>"$work/log" 2>&1

# the status of a signed request: METHOD PATH BODY [HEADER]
cat >"$work/ask.py" <<'END'
import hashlib, hmac, http.client, sys, time
method, path, body, *header = sys.argv[1:]
date, hashed = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), hashlib.sha256(body.encode()).hexdigest()
host, scope, signed = "127.0.0.1:24922", f"{date[:8]}/us-east-1/s3/aws4_request", "host;x-amz-content-sha256;x-amz-date"
request = f"{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{hashed}\nx-amz-date:{date}\n\n{signed}\n{hashed}"
text, key = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}", b"AWS4secret1secret1"
for part in [*scope.split("/"), text]:
    key = hmac.new(key, part.encode(), "sha256").digest()
named = {"Authorization": f"AWS4-HMAC-SHA256 Credential=access/{scope}, SignedHeaders={signed}, Signature={key.hex()}"}
named |= {"x-amz-content-sha256": hashed, "x-amz-date": date} | dict(one.split(": ", 1) for one in header)
connection = http.client.HTTPConnection(host)
connection.request(method, path, body.encode(), named)
print(connection.getresponse().status)
END
ask() { python3 "$work/ask.py" "$@"; }
bare="$(printf one | md5sum | cut -d ' ' -f 1)"
quoted="\"$bare\""
[ "$(ask PUT /bucket '')" = 200 ]
seen=""
for condition in "If-Match: $quoted" "If-Match: $bare" 'If-Match: "other"' "If-Match: *" \
    "If-None-Match: $quoted" "If-None-Match: $bare" "If-None-Match: *"; do
    [ "$(ask PUT /bucket/key one)" = 200 ]
    status="$(ask PUT /bucket/key one "$condition")"
    printf 'PUT %-50s %s\n' "$condition" "$status"
    seen="$seen $status"
done
printf 'GET If-Match: quoted %s\n' "$(ask GET /bucket/key '' "If-Match: $quoted")"
[ "$seen" = " 412 200 412 200 200 412 412" ] && [ "$(ask GET /bucket/key '' "If-Match: $quoted")" = 200 ]
