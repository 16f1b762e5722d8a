"""All that is found of a disk: the facts by system calls, the doctor's verdict, a life, and killed processes."""

import os
import subprocess
from pathlib import Path

from tests.ground.disk_facts import DISK_FACTS
from tests.ground.life import lived
from tests.ground.measure import VERDICTS, soaked
from tests.soak.plan import Place
from tests.support.cli import Run
from tests.support.disks import KERNEL_DISKS, mounted


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
