"""`both`: from a coroutine to a blocking and an awaited method."""

from __future__ import annotations  # as in the package: a signature shows texts

import asyncio
import inspect
from typing import Any

import pytest

from rollingfs.fs.methods import both, in_order
from rollingfs.runtime.bridge import Bridge
from rollingfs.segment.write.ingest import SMALL_BYTES_MAX
from tests.support.backends import private_memory

LARGE = bytes(SMALL_BYTES_MAX + 1)


class Verbs:
    """Notes what it is called with."""

    path = "the segment"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def append(self, path: str, data: Any, attrs: dict[str, str] | None = None) -> int:
        """Append."""
        self.calls.append(("append", path, data, attrs))
        return 7

    async def take(self, path: str, data: Any, attrs: dict[str, str] | None = None) -> str:
        self.calls.append(("take", path, len(data), attrs))
        return "taken"

    async def look(self, path: str, depth: int = 0) -> str:
        return f"{path} {depth}"


class Noun:
    """What a verb by path is for."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def cut(self, at: int) -> str:
        """Cut."""
        return f"{self.path} {at}"


class Noted(Bridge):
    """Notes which commit it is told of."""

    told: str | None = None

    def run(self, coroutine: Any, *, commits: str | None = None, waits: bool = True) -> Any:
        self.told = commits
        return super().run(coroutine, commits=commits, waits=waits)


class Face:
    """A face of these verbs."""

    append, _append = both(Verbs.append, takes=Verbs.take, of="_nouns")
    look, _look = both(Verbs.look, of="_nouns")
    _look_deep = in_order(both(Verbs.look, of="_nouns")[1], "depth", "path")
    cut, _cut = both(Noun.cut, of="_at", path="log", commits=True)
    _at = Noun

    def __init__(self) -> None:
        self._bridge = Noted(private_memory())
        self._nouns = Verbs()


A = {"a": "1"}
UPLOADED = [("take", "x", len(LARGE), A), ("append", "x", "taken", A)]


@pytest.mark.parametrize(
    ("append", "calls"),
    [
        (lambda face: face.append("x", b"data"), [("append", "x", b"data", None)]),
        (lambda face: face.append("x", LARGE, attrs=A), UPLOADED),
        (lambda face: face.append("x", data=LARGE, attrs=A), UPLOADED),
        (lambda face: asyncio.run(face._append("x", LARGE)), [("append", "x", LARGE, None)]),
    ],
    ids=["small", "large", "large by name", "awaited"],
)
def test_blocking_large_data_are_uploaded_before_the_commit(append, calls) -> None:
    face = Face()
    assert append(face) == 7
    assert face._nouns.calls == calls


def test_wrong_arguments_name_the_face() -> None:
    with pytest.raises(TypeError, match=r"^Face\.append\(\) missing 1 required positional argument: 'data'$"):
        Face().append("x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Face\.look\(\) got an unexpected keyword argument 'dept'"):
        Face().look("x", dept=1)  # type: ignore[call-arg]


def test_path_verb_takes_positions_and_names_and_its_commit() -> None:
    face = Face()
    assert face.cut("x", 3) == face.cut("x", at=3) == face.cut(log="x", at=3) == "x 3"
    assert face._bridge.told == "x"
    assert asyncio.run(face._cut("x", 3)) == "x 3"
    assert str(inspect.signature(Face.cut)) == "(self, log: 'str', at: 'int') -> 'str'"
    with pytest.raises(TypeError, match=r"^Face\.cut\(\) missing 1 required positional argument: 'log'$"):
        face.cut()
    with pytest.raises(TypeError, match=r"^Face\.cut\(\) missing 1 required positional argument: 'at'$"):
        face.cut("x")


def test_reordered_method_takes_names_and_no_extra_ones() -> None:
    assert asyncio.run(Face()._look_deep(3, "x")) == "x 3"
    assert asyncio.run(Face()._look_deep(path="x", depth=2)) == "x 2"
    with pytest.raises(TypeError):
        asyncio.run(Face()._look_deep(3, "x", "more"))
