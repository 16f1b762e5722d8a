"""The hops of small verbs: how many functions of Python one call runs through, over memory, and of how many modules.

`python -m tests.system.test_hops append` shows them one by one, and how often each module calls which. The numbers do
not depend on the machine, but a little on the release of Python: before 3.12 a comprehension is a call.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from rollingfs import RollingFileSystem

BOUNDS = {
    "append": (61, 20),  # 60 in the millisecond of the commit before, whose time has been formatted
    "handle": (67, 21),
    "read": (54, 17),
    "cat": (68, 15),
    "info": (33, 15),
    "ls": (71, 16),  # 67 in a store with nothing else
    "seal": (92, 29),  # 12 of them fold the record that was put behind the header
    "concat": (440, 42),  # one more in a process that has done other things
    "concat on a disk": (500, 49),
}
"""Most calls and most modules of each verb."""
ON_A_DISK = " on a disk"
TRIES = 10
"""A call takes two hops more when a new second begins, or the garbage collector comes."""


def hops(verb: str) -> list[tuple[str, str]]:
    """The calls of a verb on segments that the client knows, each with its module."""
    if verb.endswith(ON_A_DISK):
        with tempfile.TemporaryDirectory() as top:
            return _hops(verb.removesuffix(ON_A_DISK), RollingFileSystem("file"), top)
    return _hops(verb, RollingFileSystem("memory"))


def _hops(verb: str, fs: RollingFileSystem, top: str = "") -> list[tuple[str, str]]:
    for folder in (f"{top}/hops", f"{top}/sources"):
        if fs.exists(folder):
            fs.rm(folder, recursive=True)
    for path in (f"{top}/hops/a", f"{top}/hops/b", f"{top}/sources/first", f"{top}/sources/second"):
        fs.create(path)
        for data in (b"first", b"second"):
            fs.append(path, data)
    fs.seal(f"{top}/sources/first")
    fs.seal(f"{top}/sources/second")
    fs.concat(f"{top}/hops/a", [f"{top}/sources/first"])
    segment = fs.segment(f"{top}/hops/a")
    calls: dict[str, Callable[[], Any]] = {
        "append": partial(fs.append, f"{top}/hops/a", b"5byte"),
        "handle": partial(segment.append, b"5byte"),
        "read": lambda: fs.open(f"{top}/hops/a").read(),
        "cat": lambda: fs.cat_file(f"{top}/hops/a"),
        "info": lambda: fs.info(f"{top}/hops/a"),
        "ls": lambda: fs.ls(f"{top}/hops"),
        "seal": lambda: fs.seal(f"{top}/hops/b"),
        "concat": lambda: fs.concat(f"{top}/hops/a", [f"{top}/sources/second"]),
    }
    for name in ("append", "handle", "read", "cat", "info", "ls"):
        calls[name]()  # what is made once is there
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            found.append((str(frame.f_globals.get("__name__")), getattr(frame.f_code, "co_qualname", "")))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        calls[verb]()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("verb", BOUNDS)
def test_a_small_verb_takes_few_hops(verb: str) -> None:
    calls_max, modules_max = BOUNDS[verb]
    found = min((hops(verb) for _ in range(TRIES)), key=len)
    modules = {module for module, _ in found if module.startswith("rollingfs")}
    assert len(found) <= calls_max, Counter(module for module, _ in found).most_common()
    assert len(modules) <= modules_max, sorted(modules)


def main() -> None:
    verb = sys.argv[1] if len(sys.argv) > 1 else "append"
    found = hops(verb)
    print("\n".join(f"{module}.{function}" for module, function in found))
    for module, count in Counter(module for module, _ in found).most_common():
        print(f"{count:5} {module}")
    print(f"{len(found):5} calls")


if __name__ == "__main__":
    main()
