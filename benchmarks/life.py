"""The life of one segment under upkeep: small appends, ``rollingfs run`` beside them and killed again and again.

``python -m benchmarks.life [--appends 200000] [--kills 10] [--tier]`` starts MinIO, appends 4 KiB each by some threads,
kills the upkeep with SIGKILL on the way, seals, lets one round finish the work, and checks every byte. It prints the
number of objects that are left, and how often a byte was written. With ``--tier``, a policy moves the segment to a tier
in blocks of 16 MiB, while it grows (``run --follow``).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fsspec

from benchmarks.servers import Servers, open_servers
from rollingfs import OffloadPolicy, RollingFileSystem

ROOT = Path(__file__).parent.parent
BUCKET = "life"
URL = f"s3://{BUCKET}/logs/clicks"
APPEND_BYTES = 4096
OBJECTS_MAX = 25
BLOCK = "16MiB"


def record(writer: int, number: int) -> bytes:
    """The bytes of one append: who wrote them, and the how many-th they are."""
    head = f"{writer:04d} {number:09d} ".encode()
    return head + bytes((writer * 31 + number * 7 + index) % 251 for index in range(64)) * 64 + b"\n"


def bytes_of(writer: int, number: int) -> bytes:
    """A record, cut to its size."""
    return record(writer, number)[: APPEND_BYTES - 1] + b"\n"


def options(servers: Servers) -> dict[str, Any]:
    """The options of the filesystem."""
    return {
        **servers.s3fs_options(direct=True),
        "tiers": {"cold": f"s3://{BUCKET}-cold/t"},
        "skip_instance_cache": True,
    }


class Upkeep:
    """``rollingfs run`` in a process of its own."""

    def __init__(self, servers: Servers, arguments: list[str]) -> None:
        given = {f"tiers.cold.root=s3://{BUCKET}-cold/t", f"endpoint_url={servers.direct_url}"}
        given |= {f"key={servers.key}", f"secret={servers.secret}"}
        self.command = [sys.executable, "-m", "rollingfs.cli", "run", f"s3://{BUCKET}", "--readers-grace", "0"]
        self.command += [*arguments, *(word for one in sorted(given) for word in ("--option", one))]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin, or begin again."""
        self.process = subprocess.Popen(self.command, cwd=ROOT, text=True, stdout=subprocess.DEVNULL)

    def end(self, number: int) -> int:
        """Send a signal and wait."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait()


def append_all(fs: RollingFileSystem, appends: int, writers: int, upkeep: Upkeep, kills: int) -> float:
    """Append by several threads, and kill the upkeep on the way; returns the seconds."""
    done, began_s = [0] * writers, time.monotonic()
    errors: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            for number in range(writer, appends, writers):
                fs.append(URL, bytes_of(writer, number))
                done[writer] += 1
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            errors.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    killed = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.5)
        if killed < kills and sum(done) >= (killed + 0.5) * appends / kills:
            killed += 1
            upkeep.end(signal.SIGKILL)
            upkeep.start()
            print(f"{sum(done):,} appends, {time.monotonic() - began_s:.0f} s: kill {killed}", flush=True)
    if errors:
        raise errors[0]
    return time.monotonic() - began_s


def check(fs: RollingFileSystem, appends: int, writers: int) -> None:
    """Every record is there once, whole, and those of a writer in their order."""
    following = list(range(writers))
    with fs.open(URL, "rb", block_size=16 * 2**20) as file:
        for _ in range(appends):
            found = file.read(APPEND_BYTES)
            writer = int(found[:4])
            assert found == bytes_of(writer, following[writer]), f"record {following[writer]} of writer {writer}"
            following[writer] += writers
        assert file.read(1) == b""
    assert all(one >= appends for one in following), following


def objects_of(servers: Servers) -> list[tuple[str, int]]:
    """All objects of both buckets, with their sizes."""
    store = fsspec.filesystem("s3", **servers.s3fs_options(direct=True), skip_instance_cache=True)
    found: list[tuple[str, int]] = []
    for bucket in (BUCKET, f"{BUCKET}-cold"):
        found += [(info["name"], info["size"]) for info in store.find(bucket, detail=True).values()]
    return found


def main() -> None:
    """Run it; the exit code says whether all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--appends", type=int, default=200_000)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--tier", action="store_true")
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with open_servers() as servers:
        store = fsspec.filesystem("s3", **servers.s3fs_options(direct=True), skip_instance_cache=True)
        for bucket in (BUCKET, f"{BUCKET}-cold"):
            store.mkdir(bucket)
        fs = RollingFileSystem("s3", **options(servers))
        fs.create(URL)
        if given.tier:
            policy = OffloadPolicy("cold", block_bytes=BLOCK, max_delay="60s", deletion_lag=0)
            fs.set_policy(f"s3://{BUCKET}/logs", policy)
        upkeep = Upkeep(servers, ["--every", "5s", *(["--follow"] if given.tier else [])])
        upkeep.start()
        seconds = append_all(fs, given.appends, given.writers, upkeep, given.kills)
        print("stopped with", upkeep.end(signal.SIGTERM))
        fs.seal(URL)
        for _ in range(3):  # what a round has dropped, the next collects
            last = Upkeep(servers, ["--once", "--grace", "0"])
            last.start()
            assert last.process is not None
            assert last.process.wait() == 0
        check(fs, given.appends, given.writers)
        segment = fs.segment(URL)
        found = objects_of(servers)
        size = given.appends * APPEND_BYTES
        chunks = [(chunk.length, chunk.tier) for chunk in segment.chunks]
        result = {
            "appends": given.appends,
            "tier": given.tier,
            "kills": given.kills,
            "seconds": round(seconds),
            "bytes": size,
            "objects": len(found),
            "chunks": len(chunks),
            "in_tier": sum(tier == "cold" for _, tier in chunks),
            "sizes": [size for size, _ in chunks],
            "write_amplification": round(1 + segment.rewritten / size, 3),
            "requests": dict(servers.received().requests),
        }
        print(json.dumps(result, indent=1))
        if len(found) > OBJECTS_MAX:
            print("\n".join(f"{size:>12,} {name}" for name, size in found))
            sys.exit(f"{len(found)} objects are more than {OBJECTS_MAX}")


if __name__ == "__main__":
    main()
