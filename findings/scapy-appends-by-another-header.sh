#!/usr/bin/env bash
# scapy 2.8.0 (Python) appends to a pcap file without a look at its header: microseconds to a file of nanoseconds, so that times shrink by 1,000 within their second, and its own byte order to a file of the other, so that packets are gone.
#
# Guess: `wrpcap(name, packets, append=True)` ("append packets to the capture file instead of truncating it") writes by the header that is there, as libpcap does, or raises.
# Seen (2026-12-01): four packets, a quarter of a second after each other, appended to four of `tcpdump --nano` kind (scapy with nano=True writes the same header). scapy and dpkt 1.9.8 read eight packets,
# and the last four 250,000 nanoseconds after each other instead of 250,000,000. In a file of the other byte order (captured by a router) the four that were appended are read as one packet of another year;
# in a file of packets without Ethernet the appended are read as IP, from 8.0.69.0; a pcapng file, as Wireshark writes by default, has its first four. With a file of the usual header all eight are right. Writing never warns; of the byte order and the pcapng
# file a reader warns of damage. Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet scapy==2.8.0 dpkt==1.9.8
env/bin/python - <<'PYTHON'
import sys
import warnings
from decimal import Decimal
from pathlib import Path

import dpkt
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import rdpcap, wrpcap, wrpcapng

BEGIN = 1_700_000_000
OTHER = ">" if sys.byteorder == "little" else "<"
warnings.simplefilter("error")


def packets(begin):
    made = []
    for n in range(4):
        packet = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / Raw(bytes([n]))
        packet.time = Decimal(begin) + n * Decimal("0.25")
        made.append(packet)
    return made


first = [0.0, 0.25, 0.5, 0.75]
right = first + [100 + time for time in first]
for what, header, expected in (
    ("usual", {}, right),
    ("nanoseconds", {"nano": True}, first + [100.0, 100.00025, 100.0005, 100.00075]),
    ("other byte order", {"endianness": OTHER}, None),
):
    wrpcap(what, packets(BEGIN), **header)
    wrpcap(what, packets(BEGIN + 100), append=True)
    by_scapy = [round(float(packet.time) - BEGIN, 6) for packet in rdpcap(what)]
    with Path(what).open("rb") as file:
        by_dpkt = [round(float(time) - BEGIN, 6) for time, _ in dpkt.pcap.Reader(file)]
    print(f"{what}: scapy {by_scapy}, dpkt {by_dpkt}")
    for seen in by_scapy, by_dpkt:
        if expected is not None:
            assert seen == expected
        else:
            assert seen[:4] == first and len(seen) == 5 and abs(seen[4]) > 86_400
wrpcap("without Ethernet", [packet[IP] for packet in packets(BEGIN)])
wrpcap("without Ethernet", packets(BEGIN + 100), append=True)
sources = [packet[IP].src for packet in rdpcap("without Ethernet")]
print(f"without Ethernet: {sources}")
assert sources == ["10.0.0.1"] * 4 + ["8.0.69.0"] * 4
wrpcapng("pcapng", packets(BEGIN))
wrpcap("pcapng", packets(BEGIN + 100), append=True)
print(f"pcapng: {len(rdpcap('pcapng'))} packets")
assert len(rdpcap("pcapng")) == 4
PYTHON
echo "scapy 2.8.0: as described"
