"""Attack `rollingfs ship`: logrotate each second, shippers that are killed and stopped, a store that is cut off.

A line that a file had must be in the segment once, in order.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.servers import post, toxiproxy
from rollingfs import RollingFileSystem
from tests.support.debian import LOGROTATE, libraries
from tests.support.servers import aws_environment, new_bucket

MODES = {
    "create": "create",
    "copytruncate": "copytruncate",
    "dateext": "create\ndateext\ndateformat -%Y%m%d-%s",
    "compress": "create\ncompress",
    "delaycompress": "create\ncompress\ndelaycompress",
    "maxsize": "create\nmaxsize 20k",
    "copytruncate-compress": "copytruncate\ncompress\ndateext\ndateformat -%Y%m%d-%s",
}
"""Settings of logrotate."""
SETTINGS = """{log} {{
rotate 1000
missingok
{mode}
postrotate
  touch {log}.reopen; while [ -e {log}.reopen ]; do sleep 0.01; done
endscript
}}
"""
CUT = {"enabled": False}
TOXICS = (
    {"type": "reset_peer", "stream": "downstream", "attributes": {"timeout": 0}},
    {"type": "limit_data", "stream": "downstream", "attributes": {"bytes": 100}},
    {"type": "timeout", "stream": "downstream", "attributes": {"timeout": 100}},
    {"type": "latency", "stream": "downstream", "attributes": {"latency": 300, "jitter": 300}},
)
"""What the proxy does to answers: a reset, an end after some bytes, no answer, a late answer."""
LATENCY_MS = 5
SHIPPERS = 2
BURST_LINES, BETWEEN_BURSTS_S = 60, 0.025
PAD_BYTES_MAX = 200
ROTATION_S = 1.0
SIGNAL_S_MAX, STOPPED_S_MAX, FAULT_S_MAX = 4.0, 2.0, 2.0
END_S = 180


def line(number: int) -> bytes:
    """Return a line, whose length depends on its number."""
    return b"%08d %s" % (number, b"x" * (number * 7919 % PAD_BYTES_MAX))


@dataclass(frozen=True)
class Place:
    """A segment, and what faults its store can have."""

    target: str
    environment: dict[str, str]
    fs: RollingFileSystem
    path: str
    proxy: str | None = None
    """URL of the settings of the proxy before the store."""

    def command(self, *words: str) -> list[str]:
        """Return a command of rollingfs."""
        return [sys.executable, "-m", "rollingfs.cli", *words]


class Writer(threading.Thread):
    """Writes numbered lines, and opens its file anew when logrotate asks for it."""

    def __init__(self, log: Path, chance: random.Random) -> None:
        super().__init__()
        self.log, self.chance, self.count, self.is_over = log, chance, 0, False

    def run(self) -> None:
        asked = Path(f"{self.log}.reopen")
        file = self.log.open("ab", buffering=0)
        while not self.is_over:
            for _ in range(self.chance.randrange(BURST_LINES)):
                file.write(line(self.count) + b"\n")
                self.count += 1
            time.sleep(self.chance.random() * 2 * BETWEEN_BURSTS_S)
            if asked.exists():
                file.close()
                file = self.log.open("ab", buffering=0)
                asked.unlink()
        file.close()


class Rotation:
    """Debian's logrotate of a log."""

    def __init__(self, log: Path, mode: str) -> None:
        root = LOGROTATE.installed()
        self.log, self.cuts = log, "copytruncate" in mode
        settings = Path(f"{log.parent}.conf")
        settings.write_text(SETTINGS.format(log=log, mode=MODES[mode]))
        force = [] if mode == "maxsize" else ["--force"]
        self.command = [f"{root}/usr/sbin/logrotate", *force, "--state", f"{log.parent}.state", str(settings)]
        self.environment = os.environ | libraries(root)
        self.kept: set[bytes] = set()
        """Lines that a copy has, where others are destroyed by `copytruncate` itself."""

    def rotate(self) -> None:
        """Rotate, and read the newest copy."""
        done = subprocess.run(self.command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or "already exists" in done.stderr, done.stderr
        copies = [path for path in self.log.parent.iterdir() if path != self.log and path.suffix != ".reopen"]
        if self.cuts and copies:
            self.keep(max(copies, key=lambda path: path.stat().st_mtime_ns))

    def keep(self, path: Path) -> None:
        """Note the whole lines of a file."""
        data = path.read_bytes()
        self.kept.update((gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")[:-1])


class Attack:
    """A log, its writer, its rotation, and two shippers."""

    def __init__(self, place: Place, mode: str, folder: Path, seed: int) -> None:
        self.place, self.chance = place, random.Random(seed)
        self.log = folder / "logs" / "app.log"
        self.log.parent.mkdir()
        self.writer, self.rotation = Writer(self.log, random.Random(seed)), Rotation(self.log, mode)
        self.folder = folder
        self.shippers: list[subprocess.Popen[bytes] | None] = [None] * SHIPPERS
        self.acts = Counter[str]()
        self.words = [str(self.log), place.target, "--into", "--commit-on", "0.2s,64KiB"]

    def run(self, seconds: float) -> None:
        """Attack for so long, then ship what is left."""
        with (self.folder / "said").open("ab") as self.said:
            self._run(seconds)
            words = self.place.command("ship", "--once", *self.words)
            subprocess.run(words, env=self._environment, stdout=self.said, stderr=self.said, check=True, timeout=END_S)

    def _run(self, seconds: float) -> None:
        begin_s = time.monotonic()
        due = dict.fromkeys((self._rotate, self._signal, self._fault), begin_s + ROTATION_S)
        self.writer.start()
        try:
            while (now_s := time.monotonic()) < begin_s + seconds:
                for act, at_s in due.items():
                    if now_s >= at_s:
                        due[act] = now_s + act()
                time.sleep(0.02)
        finally:
            self.writer.is_over = True
            self.writer.join()
            self._heal()
            for shipper in filter(None, self.shippers):
                shipper.kill()
                shipper.wait()

    def wrong(self) -> list[str]:
        """Return what is wrong with the segment."""
        written = {line(number) for number in range(self.writer.count)}
        found = self.place.fs.cat_file(self.place.path).split(b"\n")[:-1]
        counted = Counter(found)
        if self.rotation.cuts:
            self.rotation.keep(self.log)
        lost = sorted((self.rotation.kept & written if self.rotation.cuts else written) - counted.keys())
        numbers = [int(one[:8]) for one in found if one in written]
        doubled = sum(times - 1 for times in counted.values())
        torn = [one for one in counted if one not in written]
        self.acts.update(lines=len(written), found=len(found), lost=len(lost), doubled=doubled, torn=len(torn))
        checked = subprocess.run(
            self.place.command("verify", self.place.target), env=self._environment, capture_output=True, text=True
        )
        return [
            *(f"lost: {one!r}" for one in lost),
            *(f"{times} times: {one!r}" for one, times in counted.items() if times > 1),
            *(f"torn: {one!r}" for one in torn if not self.rotation.cuts),
            *(["not in order"] if numbers != sorted(numbers) else []),
            *([checked.stdout + checked.stderr] if checked.returncode else []),
        ]

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | self.place.environment

    # -- acts, each gives the time until the next ---------------------------------------------------------------

    def _rotate(self) -> float:
        self.rotation.rotate()
        self.acts["rotations"] += 1
        return ROTATION_S

    def _signal(self) -> float:
        """Start a shipper that does not run; kill, end, stop or wake that which does."""
        number = self.chance.randrange(SHIPPERS)
        shipper = self.shippers[number]
        if shipper is None or shipper.poll() is not None:
            command = self.place.command("ship", *self.words)
            self.shippers[number] = subprocess.Popen(command, env=self._environment, stdout=self.said, stderr=self.said)
            return self.chance.random() * SIGNAL_S_MAX
        kind = self.chance.choices((signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM), (3, 2, 1))[0]
        self.acts[kind.name] += 1
        shipper.send_signal(kind)
        if kind is signal.SIGSTOP:
            threading.Timer(self.chance.random() * STOPPED_S_MAX, shipper.send_signal, [signal.SIGCONT]).start()
        return self.chance.random() * SIGNAL_S_MAX / 2

    def _fault(self) -> float:
        """Heal the store, or begin a fault."""
        if self.place.proxy is None:
            return END_S
        if self._heal():
            return self.chance.random() * FAULT_S_MAX
        self.acts["faults"] += 1
        toxic = self.chance.choice((None, *TOXICS))
        if toxic is None:
            post(self.place.proxy, CUT)
        else:
            post(f"{self.place.proxy}/toxics", toxic | {"name": "fault"})
        return self.chance.random() * FAULT_S_MAX

    def _heal(self) -> bool:
        """End a fault; False if there was none."""
        if self.place.proxy is None or self.acts["faults"] == self.acts["healed"]:
            return False
        self.acts["healed"] += 1
        post(self.place.proxy, {"enabled": True})
        removal = urllib.request.Request(f"{self.place.proxy}/toxics/fault", method="DELETE")
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(removal, timeout=10):
            pass
        return True


@contextlib.contextmanager
def place_of(kind: str, folder: Path, options: dict[str, Any]) -> Iterator[Place]:
    """A segment that is missing: on a disk, SeaweedFS, or MinIO with toxiproxy before it."""
    if kind == "disk":
        yield Place(f"{folder}/out/app", {}, RollingFileSystem("file"), f"{folder}/out/app")
        return
    path, url = f"{new_bucket(options)}/app", options["endpoint_url"]
    with toxiproxy(url, LATENCY_MS) if kind == "minio" else contextlib.nullcontext((url, None)) as (url, proxy):
        keys = aws_environment(options | {"endpoint_url": url})
        fs = RollingFileSystem("s3", target_options=options)
        yield Place(f"rolling+s3://{path}", keys, fs, path, proxy)
