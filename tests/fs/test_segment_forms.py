"""Verbs that are written once: by path and by handle, blocking and awaited, they do and refuse the same."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from fsspec.callbacks import Callback

from rollingfs import Erased, RollingFileSystem, Segment, errors
from tests.support.backends import private_memory


def verb_of(face: type, name: str) -> Any:
    """Return the coroutine that a method was made of, or None."""
    return getattr(vars(face).get(name), "__wrapped__", None)


PUBLIC = [name for name in vars(Segment) if not name.startswith("_")]
VERBS = [name for name in PUBLIC if None is not verb_of(Segment, name) is verb_of(RollingFileSystem, name)]
"""The verbs of both faces."""
Call = Callable[..., Any]


@pytest.fixture
def fs() -> RollingFileSystem:
    options = {"max_bytes": 10, "inline_bytes": 4, "tiers": {"cold": "/cold"}, "clock": lambda: 1e9}
    fs = RollingFileSystem(backend=private_memory(), skip_instance_cache=True, **options)
    fs.create("/log")
    fs.append("/log", bytes(range(25)), attrs={"batch": "1"})
    return fs


@pytest.fixture(params=["path", "handle", "awaited path", "awaited handle"])
def call(request: pytest.FixtureRequest, fs: RollingFileSystem) -> Call:
    """Calls a verb on ``/log``."""

    def called(verb: str, *args: Any, **options: Any) -> Any:
        face, args = (fs, ("/log", *args)) if "path" in request.param else (fs.segment("/log"), args)
        if "awaited" in request.param:
            return asyncio.run(getattr(face, f"_{verb}")(*args, **options))
        return getattr(face, verb)(*args, **options)

    return called


def test_both_faces_share_verbs_and_docstrings_except_the_path() -> None:
    for name in VERBS:
        by_path, by_handle = getattr(RollingFileSystem, name), getattr(Segment, name)
        assert inspect.getdoc(by_path) == inspect.getdoc(by_handle) == inspect.getdoc(getattr(Segment, f"_{name}"))
        parameters = list(inspect.signature(by_path).parameters.values())
        assert parameters[1].name == ("target" if name == "concat" else "path")
        assert [parameters[0], *parameters[2:]] == list(inspect.signature(by_handle).parameters.values())


def test_append(call: Call, fs: RollingFileSystem) -> None:
    assert call("append", b"more", expected_offset=25, expected_attrs={"batch": "1"}, attrs={"batch": "2"}) == 25
    assert call("append", [fs.stage("/log", b"staged")]) == 29
    assert (fs.cat_file("/log", 25), fs.segment("/log").attrs) == (b"morestaged", {"batch": "2"})
    with pytest.raises(errors.BadOffsetError):
        call("append", b"x", expected_offset=25)
    with pytest.raises(errors.AttributeMismatchError):
        call("append", b"x", expected_attrs={"batch": "1"})
    with pytest.raises(TypeError, match="the value of 'batch' in attrs must be str"):
        call("append", b"x", attrs={"batch": 3})
    with pytest.raises(TypeError, match="encode"):
        call("append", "text")
    assert fs.info("/log")["length"] == 35


def test_seal(call: Call, fs: RollingFileSystem) -> None:
    fs.create("/a")
    fs.seal("/a")
    assert call("seal") == call("seal") == 25
    for verb, given in (("append", b"x"), ("append", b""), ("concat", ["/a"])):
        with pytest.raises(errors.SegmentSealedError):
            call(verb, given)
    assert call("truncate", 20) == call("truncate", 15) == 0
    assert fs.cat_file("/log") == bytes(range(20, 25))


def test_truncate(call: Call, fs: RollingFileSystem) -> None:
    assert call("truncate", 12) == 0
    assert isinstance(call("truncate", 15, erase=True), Erased)
    assert fs.info("/log")["start_offset"] == 15
    with pytest.raises(errors.BadOffsetError):
        call("truncate", 26)
    with pytest.raises(TypeError, match="offset is 'x'"):
        call("truncate", "x")
    with pytest.raises(TypeError, match="erase is 'no'"):
        call("truncate", 20, erase="no")


def test_concat_takes_paths_and_handles(call: Call, fs: RollingFileSystem) -> None:
    for name in "abc":
        fs.create(f"/{name}")
        fs.append(f"/{name}", name.encode())
    with pytest.raises(errors.SegmentNotSealedError):
        call("concat", ["/a"])
    for name in "ab":
        fs.seal(f"/{name}")
    assert call("concat", ["rolling:///a", fs.segment("/b")], attrs={"batch": "2"}, expected_attrs={"batch": "1"}) == 25
    assert fs.cat_file("/log", 25) == b"ab"
    with pytest.raises(TypeError, match="a list of sources"):
        call("concat", "/c")


def test_handle_among_sources_stands_for_its_own_segment_alone(call: Call, fs: RollingFileSystem) -> None:
    fs.create("/a")
    handle = fs.segment("/a")
    fs.overwrite("/a", b"another")
    fs.seal("/a")
    with pytest.raises(FileNotFoundError):
        call("concat", [handle])
    assert fs.cat_file("/a") == b"another"


def test_roll_offload_and_onload(call: Call, fs: RollingFileSystem) -> None:
    assert call("roll") == 25
    version = fs.info("/log")["version"]
    assert call("roll") == 25
    assert fs.info("/log")["version"] == version
    callback = Callback()
    assert call("offload", upto=20, deletion_lag=0, callback=callback).bytes == 20
    assert (callback.size, callback.value) == (25, 25)
    assert {chunk.tier for chunk in fs.segment("/log").chunks} == {"cold", ""}
    assert call("onload").bytes == 20
    assert {chunk.tier for chunk in fs.segment("/log").chunks} == {""}
    with pytest.raises(errors.UnknownTierError):
        call("offload", "warm")
