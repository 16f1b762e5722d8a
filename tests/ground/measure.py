"""All that is found of a server or a disk: facts by a raw client or system calls, the doctor's verdict, a life."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.ground.disk_facts import DISK_FACTS
from tests.ground.facts import FACTS, ROUNDS, Ground
from tests.ground.life import lived
from tests.ground.servers import Server
from tests.soak.__main__ import soak
from tests.soak.check import Told, broken
from tests.soak.plan import Place
from tests.support.cli import Run
from tests.support.disks import KERNEL_DISKS, mounted

SOAK_S = 30.0
VERDICTS = {0: "safe", 3: "refused"}


def measured(server: Server, rounds: int = ROUNDS) -> dict[str, str]:
    """Start a server, and look for each fact."""
    with server.start() as options:
        ground = Ground(server.protocol, options, server.new_bucket(options), rounds)
        doctor = verdict(server, options, ground.bucket)
        return {name: find(ground) for name, find in FACTS.items()} | {"doctor": doctor}


def verdict(server: Server, options: dict[str, Any], bucket: str) -> str:
    """What `rollingfs doctor` says of a bucket."""
    words = [word for name, value in options.items() for word in ("--option", f"{server.protocol}.{name}={value}")]
    found = Run("doctor", *words, f"{server.protocol}://{bucket}")
    return VERDICTS.get(found.code) or found.err.strip()[-200:]


def soaked(place: Place, seconds: float) -> str:
    """Kill processes at random for so long; the number of acknowledged appends, or a broken promise."""
    soak(place, seconds, seed=1)
    acked = len(Told(place).acked)
    found = [*broken(place)] if acked else ["no append was acknowledged"]
    return f"**{found[0]}**" if found else f"kept ({acked})"


def survived(server: Server, seconds: float) -> dict[str, str]:
    """Start a server, live a life on it, and kill processes there."""
    with server.start() as options, tempfile.TemporaryDirectory() as notes:
        bucket = server.new_bucket(options)
        life, data = (Place(server.protocol, f"{bucket}/{name}", options, notes) for name in ("life", "data"))
        return {"life": lived(life), "kill -9": soaked(data, seconds)}


def version(kind: str) -> str:
    """Return the version of the kernel, or of the package of Debian that mounts a disk."""
    if kind in KERNEL_DISKS:
        return "Linux " + ".".join(os.uname().release.split("-")[0].split(".")[:2])
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", kind], capture_output=True, text=True, check=False)
    return done.stdout.rpartition(":")[2].partition("-")[0] or "unknown"


def measured_disk(kind: str, folder: Path, soak_s: float) -> dict[str, str]:
    """Mount a disk, and look for each fact."""
    with mounted(kind, folder) as disk:
        found = {"version": version(kind)}
        for name, find in DISK_FACTS.items():
            (own := disk / name).mkdir()
            found[name] = find(own)
        doctor = Run("doctor", f"file://{disk}")
        found["doctor"] = VERDICTS.get(doctor.code) or doctor.err.strip()[-200:]
        (notes := folder / "notes").mkdir()
        found["life"] = lived(Place("file", f"{disk}/life", {}, str(notes)))
        return found | {"kill -9": soaked(Place("file", f"{disk}/data", {}, str(notes)), soak_s)}
