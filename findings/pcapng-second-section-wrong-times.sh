#!/usr/bin/env bash
# dpkt 1.9.8 and scapy 2.8.0 read the second section of a pcapng file by the interfaces of the first: times are wrong by 1,000, packets parsed as another link.
#
# Guess: pcapng is made for this: each section header begins a new list of interfaces, so two captures in a row are one valid file, and a reader that goes
# on after the second header takes the clock and the link type of that section.
# Seen (2026-11-30): a capture of Ethernet in microseconds, and behind it one of raw IP in nanoseconds (`cat`). Each alone is read right by all. Of both, dpkt and scapy
# give the packets of the second the year 55841, without error or warning, and scapy takes their IP header for Ethernet addresses. In the other order of clocks: 1970.
# python-pcapng 2.1.1 and gopacket 1.7.7 (Go) read both sections right.
# Needs Python 3.11, Go and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet dpkt==1.9.8 scapy==2.8.0 python-pcapng==2.1.1
mkdir gopacket
cat > gopacket/main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/gopacket/gopacket/pcapgo"
)

func main() {
	reader, err := pcapgo.NewNgReader(os.Stdin, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	for err == nil {
		_, facts, failure := reader.ReadPacketData()
		if err = failure; err == nil {
			fmt.Println(float64(facts.Timestamp.UnixNano()) / 1e9)
		}
	}
	if err != io.EOF {
		panic(err)
	}
}
GO
export GOPATH="$work/go" GOFLAGS=-modcacherw
(cd gopacket && go mod init reader && go get github.com/gopacket/gopacket/pcapgo@v1.7.7 && go build -o ../reader .) 2>go.log || { cat go.log; exit 1; }

env/bin/python - <<'PYTHON'
import datetime, struct, subprocess, warnings
from importlib.metadata import version

warnings.simplefilter("ignore")
import dpkt
from pcapng import FileScanner
from pcapng.blocks import EnhancedPacket
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

PACKET = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / (b"x" * 18)
FRAMES = {1: bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / PACKET), 101: bytes(PACKET)}  # Ethernet, raw IP


def block(kind, body):
    body += bytes(-len(body) % 4)
    size = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + size + body + size


def capture(link, digits, times):
    """Return a section header, an interface with its clock, and a packet for each time."""
    blocks = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    blocks.append(block(1, struct.pack("<HHI", link, 0, 65535) + struct.pack("<HHB3x", 9, 1, digits) + bytes(4)))
    frame = FRAMES[link]
    for at in times:
        ticks = round(at * 10**digits)
        facts = struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
        blocks.append(block(6, facts + frame))
    return b"".join(blocks)


def read(name):
    """Return what each library reads: the times, and by scapy whether the packet is the one that was sent."""
    found = {}
    with open(name, "rb") as file:
        found["dpkt"] = [float(at) for at, _ in dpkt.pcapng.Reader(file)]
    packets = rdpcap(name)
    found["scapy"] = [float(packet.time) for packet in packets]
    with open(name, "rb") as file:
        found["python-pcapng"] = [one.timestamp for one in FileScanner(file) if isinstance(one, EnhancedPacket)]
    with open(name, "rb") as file:
        lines = subprocess.run(["./reader"], stdin=file, capture_output=True, text=True, check=True).stdout.splitlines()
    found["gopacket"] = [float(line) for line in lines]
    return found, [packet.haslayer(IP) and packet[IP].dst == "10.0.0.2" for packet in packets]


print({name: version(name) for name in ("dpkt", "scapy", "python-pcapng")})
FIRST, SECOND = [1.7e9 + 0.5, 1.7e9 + 1.5], [1.7e9 + 2.5, 1.7e9 + 3.5]
parts = {"ethernet-micro": capture(1, 6, FIRST), "ip-nano": capture(101, 9, SECOND)}
for (name, data), times in zip(parts.items(), (FIRST, SECOND)):
    open(name, "wb").write(data)
    found, whole = read(name)
    assert all(each == times for each in found.values()) and all(whole), (name, found, whole)

open("joined", "wb").write(b"".join(parts.values()))
found, whole = read("joined")
for library, times in found.items():
    print(f"{library}: {times}")
year = 1970 + found["dpkt"][-1] / (365.2425 * 86400)
print(f"year of the second section by dpkt and scapy: {year:.0f}; packets that scapy parses: {whole}")
assert found["python-pcapng"] == found["gopacket"] == FIRST + SECOND
wrong = FIRST + [at * 1000 for at in SECOND]
assert found["dpkt"] == found["scapy"] == wrong and whole == [True, True, False, False]

open("turned", "wb").write(capture(1, 9, FIRST) + capture(1, 6, SECOND))
found, _ = read("turned")
print(f"nanoseconds first, by scapy: {found['scapy']}")
assert found["python-pcapng"] == found["gopacket"] == FIRST + SECOND
assert all(at < 3e6 for library in ("dpkt", "scapy") for at in found[library][2:])
PYTHON
echo "dpkt 1.9.8, scapy 2.8.0: as described"
