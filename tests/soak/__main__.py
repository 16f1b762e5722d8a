"""Processes that do all verbs, killed, stopped and interrupted at random: `python -m tests.soak disk --minutes 10`.

At the end every byte of the place is compared with what the processes were told. See `check`.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.servers import LATENCY_MS, post, toxiproxy
from rollingfs import OffloadPolicy
from tests.soak.check import Told, broken, growth
from tests.soak.plan import Place, read_notes
from tests.support import clouds, seaweed, servers
from tests.support.schedules import eventually

WORKERS = 8
SAFE = 1
"""Workers that no signal meets: their memory must not grow."""
BETWEEN_SIGNALS_S = 0.4
STOPPED_S = (0.05, 0.3, 1.0, 7.0)
"""How long SIGSTOP lasts; the longest is more than the age at which others take a merge over."""
OFFLOAD, TAIL_S_MAX = OffloadPolicy("cold", after_bytes="256KiB"), 60.0
"""What a round of upkeep finds to do in the logs."""
START_S_MAX = END_S_MAX = 180
SHOWN_MAX = 20
RESET_SHARE, RESET_AFTER_MS = 0.1, 200
"""Connections of the far store that end without an answer, and when."""


@contextlib.contextmanager
def far_server() -> Iterator[dict[str, Any]]:
    """MinIO behind a proxy with the latency of S3, which breaks some connections; gives the storage options for it."""
    with servers.minio_server() as options, toxiproxy(options["endpoint_url"], LATENCY_MS) as (url, settings_url):
        reset = {"type": "reset_peer", "toxicity": RESET_SHARE, "attributes": {"timeout": RESET_AFTER_MS}}
        post(f"{settings_url}/toxics", reset)
        yield options | {"endpoint_url": url}


STORES: dict[str, tuple[str, Callable[[Any], str], Callable[[], contextlib.AbstractContextManager[Any]]]] = {
    "seaweed": ("s3", servers.new_bucket, seaweed.seaweed_server),
    "minio": ("s3", servers.new_bucket, servers.minio_server),
    "far": ("s3", servers.new_bucket, far_server),
    "azurite": ("az", clouds.new_container, clouds.azurite_server),
    "fake_google": ("gs", clouds.new_google_bucket, clouds.fake_google_server),
}
"""The protocol of each, what makes a bucket on it, and a server."""


def soak(place: Place, seconds: float, seed: int) -> Counter[str]:
    """Let workers work for so long, meet them with signals, and wait until they have ended; how many signals."""
    chance, started, counts = random.Random(seed), 0, Counter[str]()
    fs = place.open()
    for path in (*place.logs, place.merged):
        fs.create(path)
    fs.set_policy(place.folder, OFFLOAD, max_age=TAIL_S_MAX, consolidate=True)
    workers: list[subprocess.Popen[bytes]] = []
    try:
        while started < WORKERS:
            workers.append(_start(place, seed, started))
            started += 1
        eventually(lambda: len({writer for writer, _ in read_notes(place)}) == WORKERS, START_S_MAX)  # all are at work
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(chance.random() * 2 * BETWEEN_SIGNALS_S)
            index = chance.randrange(SAFE, WORKERS)
            kind = chance.choice((signal.SIGKILL, signal.SIGSTOP, signal.SIGSTOP, signal.SIGINT))
            counts[kind.name] += 1
            if not _meet(workers[index], kind, chance):
                workers[index] = _start(place, seed, started)
                started += 1
        place.stop.touch()
        for worker in workers:
            worker.wait(END_S_MAX)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return counts


def _start(place: Place, seed: int, number: int) -> subprocess.Popen[bytes]:
    name = f"worker-{seed}-{number}"
    with Path(place.notes, f"{name}.log").open("wb") as log:
        command = [sys.executable, "-m", "tests.soak.worker", place.dump(), name]
        return subprocess.Popen(command, stdout=log, stderr=log)


def _meet(worker: subprocess.Popen[bytes], kind: signal.Signals, chance: random.Random) -> bool:
    """Send a signal; False if the process has ended."""
    worker.send_signal(kind)
    if kind is signal.SIGSTOP:
        time.sleep(chance.choice(STOPPED_S))
        worker.send_signal(signal.SIGCONT)
    if kind is signal.SIGKILL:
        worker.wait()
    return worker.poll() is None


@contextlib.contextmanager
def place_of(kind: str, options: dict[str, Any] | None = None) -> Iterator[Place]:
    """A new place on a disk, or on a server: of these options, or one that is started for it."""
    with contextlib.ExitStack() as stack:
        notes = stack.enter_context(tempfile.TemporaryDirectory(prefix="rollingfs-soak-"))
        if kind == "disk":
            yield Place("file", f"{notes}/data", {}, notes)
            return
        protocol, new_folder, server = STORES[kind]
        options = options or stack.enter_context(server())
        yield Place(protocol, f"{new_folder(options)}/data", options, notes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("place", choices=("disk", *STORES))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, help="copy notes and a disk's files here if a promise was broken")
    given = parser.parse_args()
    with place_of(given.place) as place:
        signals = soak(place, given.minutes * 60, given.seed)
        found = [*broken(place), *growth(place)]
        told = Told(place)
        if found and given.keep is not None:
            shutil.copytree(place.notes, given.keep, dirs_exist_ok=True)
    counts = f"{len(told.tried)} appends tried, {len(told.acked)} acknowledged, {len(told.void)} void"
    print(f"{given.place}, seed {given.seed}: {counts}; signals {dict(signals)}; refused {dict(told.refused)}")
    print(*found[:SHOWN_MAX], f"{len(found)} promises broken", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    sys.exit(main())
