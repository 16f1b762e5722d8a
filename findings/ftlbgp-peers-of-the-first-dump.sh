#!/usr/bin/env bash
# ftlbgp 1.0.5 (Python) gives the routes of a second BGP table dump in a file to the peers of the first: another AS, another address.
#
# Guess: an MRT file is a row of records (RFC 6396), routers append to it and archives are joined by `cat`; each table dump begins with its peer index
# table, so a reader takes the peers of the table that came last.
# Seen (2026-11-30): each dump alone is right. Of two in a row the second table is not taken ("'tuple' object has no attribute 'append'", in an error record between the routes), and the route
# that AS 65009 announced comes with peer_as 65001 and the address of that peer. bgpdump 1.6.2 takes the table that came last.
# Needs Debian 12, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work" && chmod 755 .
apt-get download -qq bgpdump=1.6.2-2
dpkg -x ./bgpdump*.deb programs
python3 -m venv env
env/bin/pip install --quiet ftlbgp==1.0.5
env/bin/python - <<'PYTHON'
import ipaddress, struct, subprocess
from pathlib import Path

from ftlbgp import BgpParser

TABLE_DUMP_V2, PEER_INDEX_TABLE, RIB_IPV4_UNICAST = 13, 1, 2


def packed(address):
    return ipaddress.ip_address(address).packed


def record(time, subtype, body):
    return struct.pack(">IHHI", time, TABLE_DUMP_V2, subtype, len(body)) + body


def dump(time, prefix, peers):
    """Return a table dump in which each peer announces the prefix, by a path of its own AS."""
    table = packed("10.0.0.1") + struct.pack(">HH", 0, len(peers))
    routes = struct.pack(">IB", 0, 24) + packed(prefix)[:3] + struct.pack(">H", len(peers))
    for number, (address, asn) in enumerate(peers):
        table += b"\x02" + packed(address) * 2 + struct.pack(">I", asn)
        attributes = b"\x40\x01\x01\0" + b"\x40\x02\x06\x02\x01" + struct.pack(">I", asn) + b"\x40\x03\x04" + packed(address)
        routes += struct.pack(">HIH", number, time, len(attributes)) + attributes
    return record(time, PEER_INDEX_TABLE, table) + record(time, RIB_IPV4_UNICAST, routes)


def read(name):
    """Return the peer and the path of each route that ftlbgp and bgpdump find."""
    with BgpParser() as parse:
        records = list(parse(name))
    found = [(record.peer_as, str(ipaddress.ip_address(record.peer_ip)), record.aspath[0]) for record in records if hasattr(record, "aspath")]
    lines = subprocess.run(["programs/usr/bin/bgpdump", "-m", name], check=True, capture_output=True, text=True).stdout.splitlines()
    fields = [line.split("|") for line in lines if line.startswith("TABLE_DUMP2")]
    expected = [(int(line[4]), line[3], int(line[6])) for line in fields]
    print(f"{name}: ftlbgp {found}, bgpdump {expected}")
    return found, expected


first = dump(1_764_500_000, "198.51.100.0", [("192.0.2.1", 65001), ("192.0.2.2", 65002)])
second = dump(1_764_507_200, "203.0.113.0", [("192.0.2.9", 65009)])
PEERS = [(65001, "192.0.2.1", 65001), (65002, "192.0.2.2", 65002), (65009, "192.0.2.9", 65009)]
for name, data, expected in [("first", first, PEERS[:2]), ("second", second, PEERS[2:]), ("both", first + second, PEERS)]:
    Path(name).write_bytes(data)
    found, others = read(name)
    assert others == expected
    assert found == (expected if name != "both" else [*PEERS[:2], (65001, "192.0.2.1", 65009)])
PYTHON
echo "ftlbgp 1.0.5: as described"
