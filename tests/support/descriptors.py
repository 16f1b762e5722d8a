"""Which files this process holds open."""

import contextlib
import os
from pathlib import Path

DESCRIPTORS = "/proc/self/fd"


def opened() -> list[str]:
    """What the descriptors of this process stand for; nothing where there is no ``/proc`` (Wine shows Linux's)."""
    found = []
    for name in os.listdir(DESCRIPTORS) if os.name == "posix" and os.path.isdir(DESCRIPTORS) else []:
        with contextlib.suppress(FileNotFoundError):  # a thread has closed it since
            found.append(os.readlink(f"{DESCRIPTORS}/{name}"))
    return found


def opened_below(folder: Path) -> list[str]:
    """The files below a folder that this process holds open.

    A mere number of descriptors says less: connections of other tests come and go meanwhile.
    """
    return [path for path in opened() if path.startswith(f"{folder}/")]
