"""The backend calls of each operation, compared with a recorded trace.

A change that only moves code must leave the trace as it is. A change of the calls records it anew, and the difference
is reviewed with the change: ``python -m tests.system.test_traces``.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs import RetentionPolicy, RollingFileSystem
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.wrapper import BackendWrapper

TRACES = Path(__file__).parents[1] / "fixtures" / "traces.txt"
NOON_S = 4_000_000_000.0
UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
ADOPTED = re.compile(rb"(?<=\nAdopted )\S+")
"""A token of the memory backend: it counts, so its length varies."""
RANDOM = re.compile(r"(?<=-)([0-9a-f]{32}|[0-9a-f]{12})(?=$|/|\$)")


class Tracer(BackendWrapper):
    """Notes every call as text: the verb, the paths without their random parts, the number of bytes."""

    def __init__(self, inner: MemoryBackend) -> None:
        super().__init__(inner)
        self.lines: list[str] = []

    async def call(self, verb: str, *args: Any) -> Any:
        self.lines.append(" ".join([verb, *(text for arg in args if (text := _shown(arg)))]))
        return await super().call(verb, *args)


def _shown(arg: Any) -> str:
    if isinstance(arg, str):
        return _stable(arg) if arg.startswith("/") else ""  # anything else is a token
    if isinstance(arg, bytes | bytearray | memoryview):
        return f"({len(ADOPTED.sub(b'', arg))} bytes)"
    if isinstance(arg, int):
        return str(arg)
    if isinstance(arg, list | tuple):
        return "[" + ", ".join(sorted(_shown(one) for one in arg)) + "]"
    path = getattr(arg, "path", None)
    return _stable(path) if isinstance(path, str) else ""


def _stable(path: str) -> str:
    return RANDOM.sub("*", UUID.sub("*", path))


def _filled(fs: RollingFileSystem, path: str, pieces: int = 3) -> None:
    fs.create(path)
    for _ in range(pieces):
        fs.append(path, b"x" * 100)


def _adopt(fs: RollingFileSystem) -> None:
    fs._backend.inner.fs.pipe_file("/d/plain", b"p" * 50)
    fs.append("/d/plain", b"more")


def _concat(fs: RollingFileSystem) -> None:
    fs.create("/d/all")
    for name in ("a", "b"):
        _filled(fs, f"/d/{name}")
        fs.seal(f"/d/{name}")
    fs.concat("/d/all", ["/d/a", "/d/b"])


def _stage(fs: RollingFileSystem) -> None:
    fs.create("/d/staged")
    fs.append("/d/staged", fs.stage("/d/staged", b"s" * 250))


def _exclusive(fs: RollingFileSystem) -> None:
    _filled(fs, "/d/owned", 1)
    handle = fs.segment("/d/owned").acquire("me")
    handle.append(b"mine")
    handle.release()


def _read(fs: RollingFileSystem) -> None:
    _filled(fs, "/d/read", 5)
    fs.invalidate_cache()
    assert len(fs.cat_file("/d/read")) == 500
    assert len(fs.cat_ranges(["/d/read"] * 3, [0, 150, 490], [10, 260, 500])) == 3
    with fs.open("/d/read") as file:
        assert len(file.read()) == 500
    assert len(fs.segment("/d/read").read(90, 310)) == 220


def _list(fs: RollingFileSystem) -> None:
    for name in ("a", "b", "sub/c"):
        _filled(fs, f"/d/{name}", 1)
    fs.invalidate_cache()
    assert len(fs.ls("/d")) == 3
    assert len(fs.find("/d")) == 3
    assert fs.info("/d/a")["size"] == 100
    assert fs.exists("/d/a")
    assert not fs.exists("/d/none")
    assert fs.isdir("/d")


def _glob(fs: RollingFileSystem) -> None:
    for name in ("a.csv", "b.txt", "c.txt", "sub/d.csv"):
        _filled(fs, f"/d/{name}", 1)
    fs.invalidate_cache()
    assert fs.glob("/d/*.csv") == ["/d/a.csv"]


def _write(fs: RollingFileSystem) -> None:
    fs.pipe_file("/d/w", b"one")
    with fs.open("/d/w", "wb") as file:
        file.write(b"y" * 350)
    with fs.open("/d/w", "ab") as file:
        file.write(b"z" * 10)


def _collect(fs: RollingFileSystem) -> None:
    _concat(fs)
    fs.truncate("/d/all", 350)
    fs.segment("/d/all").collect(grace=0)


def _truncate(fs: RollingFileSystem) -> None:
    _filled(fs, "/d/cut", 5)
    fs.truncate("/d/cut", 250)
    fs.append("/d/cut", b"after")


def _stream(fs: RollingFileSystem) -> None:
    for name in ("a", "b"):
        _filled(fs, f"/s/{name}", 4)
    stream = fs.stream("/s")
    stream.retention = RetentionPolicy.by_size(300)
    stream.trim(stream.cut())


def _after(path: str, pieces: int, verb: Callable[[RollingFileSystem], object]) -> Callable[[RollingFileSystem], None]:
    """The story of one verb of a segment of some chunks."""

    def story(fs: RollingFileSystem) -> None:
        _filled(fs, path, pieces)
        verb(fs)

    return story


TOLD = (_adopt, _collect, _concat, _exclusive, _glob, _list, _read, _stage, _stream, _truncate, _write)
STORIES: dict[str, Callable[[RollingFileSystem], None]] = {story.__name__[1:]: story for story in TOLD} | {
    "consolidate": _after("/d/small", 8, lambda fs: fs.segment("/d/small").consolidate(grace=0)),
    "copy": _after("/d/from", 3, lambda fs: fs.cp_file("/d/from", "/d/copy")),
    "move": _after("/d/from", 3, lambda fs: fs.mv("/d/from", "/d/to")),
    "remove": _after("/d/gone", 3, lambda fs: fs.rm("/d/gone")),
}


def traced(story: Callable[[RollingFileSystem], None]) -> list[str]:
    """The calls of a story, over a new store."""
    tracer = Tracer(MemoryBackend(MemoryFileSystem(global_store=False, skip_instance_cache=True)))
    options = {"max_bytes": 400, "inline_bytes": 120, "clock": lambda: NOON_S}
    story(RollingFileSystem(backend=tracer, skip_instance_cache=True, **options))
    return tracer.lines


def _recorded() -> dict[str, list[str]]:
    parts = re.split(r"^== (\w+)\n", TRACES.read_text(), flags=re.MULTILINE)[1:]
    return {name: text.splitlines() for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("name", STORIES)
def test_operation_makes_its_recorded_backend_calls(name: str) -> None:
    assert traced(STORIES[name]) == _recorded()[name]


def test_every_recorded_story_is_still_told() -> None:
    assert _recorded().keys() == STORIES.keys()


if __name__ == "__main__":
    TRACES.write_text(
        "".join(f"== {name}\n" + "\n".join(traced(story)) + "\n" for name, story in sorted(STORIES.items()))
    )
