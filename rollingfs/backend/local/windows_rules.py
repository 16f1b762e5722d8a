"""Rules of Windows that need no Windows: names that it takes, and patience with other programs."""

import errno
import ntpath
import random
import re
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from rollingfs.format import names
from rollingfs.runtime.concurrency import until_s

T = TypeVar("T")

HELD_S_MAX = 10.0
"""A call without a deadline waits this long for another program that holds a file."""
NAME_CHARACTERS_MAX = 255
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.0005, 0.02
DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9\u00b9\u00b2\u00b3]|conin\$|conout\$)[ ]*(\..*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[\x00-\x1f<>:"|?*\\]')


def patient(step: Callable[[], T], codes: Collection[int]) -> T:
    """Do a step, again while another program holds the file, within the time of the commit."""
    began_s = time.monotonic()
    end_s, pause_s = until_s() or began_s + HELD_S_MAX, _PAUSE_S_MIN
    while True:
        try:
            return step()
        except OSError as error:
            if getattr(error, "winerror", None) not in codes:
                raise
            if time.monotonic() > end_s:
                waited_s = time.monotonic() - began_s
                error.strerror = f"{error.strerror} (or another program has held the file for {waited_s:.1f} s)"
                raise
        time.sleep(pause_s * random.uniform(0.5, 1.5))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def check_name(path: str, characters_max: int) -> None:
    """Refuse a new file whose name Windows would change, or has for a device, or does not take."""
    _, rest = ntpath.splitdrive(path)
    for part in rest.replace("\\", "/").split("/"):
        # before a chunk is written into a folder of its name, a segment that can have no header is refused
        name = part.removesuffix(names.HEADER_SUFFIX).removesuffix(names.CHUNKS_SUFFIX)
        if why := _why_no_name(name) or ("is too long" if len(part) > NAME_CHARACTERS_MAX else ""):
            raise OSError(errno.EILSEQ, f"no file was made: {name!r} {why}; choose another name", path)
    if len(path) > characters_max:
        raise OSError(
            errno.ENAMETOOLONG,
            f"no file was made: the path has {len(path)} characters, and Windows takes {characters_max} until "
            r"LongPathsEnabled is 1 in the registry (HKLM\SYSTEM\CurrentControlSet\Control\FileSystem)",
            path,
        )


def _why_no_name(part: str) -> str:
    """Return the reason why no file can have a name; "" if it can."""
    if DEVICES.fullmatch(part):
        return "is a device of Windows"
    if part.endswith((".", " ")) and part not in (".", ".."):
        return "ends in a dot or a blank, which Windows leaves out"
    if found := _FORBIDDEN.search(part):
        return f"has {found[0]!r}, which no name on Windows may have"
    return ""
