"""Which files this process holds open."""

import contextlib
import os
from pathlib import Path

DESCRIPTORS = "/proc/self/fd"


def opened_below(folder: Path) -> list[str]:
    """The files below a folder that this process holds open; none where there is no ``/proc``.

    A mere number of descriptors says less: connections of other tests come and go meanwhile.
    """
    found = []
    for name in os.listdir(DESCRIPTORS) if os.path.isdir(DESCRIPTORS) else []:
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"{DESCRIPTORS}/{name}"))
    return [path for path in found if path.startswith(f"{folder}/")]
