"""What shells and notebooks see: signatures, docstrings, completion, reprs, maps as HTML, progress."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fsspec.callbacks import Callback

import rollingfs
from rollingfs import RollingFileSystem, Segment, Stream
from rollingfs.fs.tail import Tail
from rollingfs.show.notebook import segment_html
from rollingfs.show.prices import S3_STANDARD
from tests.support.backends import Counting, private_memory
from tests.support.servers import require_module

FACES = (RollingFileSystem, Segment, Stream, Tail)
SECRET = "a-key-that-nobody-may-see"


@pytest.fixture
def backend() -> Counting:
    return Counting(private_memory())


@pytest.fixture
def fs(backend: Counting) -> RollingFileSystem:
    return RollingFileSystem(backend=backend, max_bytes=10, inline_bytes=4, skip_instance_cache=True)


def filled(fs: RollingFileSystem, path: str, size: int = 35) -> Segment:
    fs.create(path)
    for start in range(0, size, 5):
        fs.append(path, bytes(min(5, size - start)))
    return fs.segment(path)


def public(face: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that this project defines."""
    for owner in getattr(face, "__mro__", ()):  # a function has none
        if owner.__module__.startswith("rollingfs"):
            for name in vars(owner):
                static = inspect.getattr_static(face, name)
                if not name.startswith("_") and (callable(getattr(face, name)) or isinstance(static, property)):
                    yield name, static if isinstance(static, property) else getattr(face, name)


# -- signatures, docstrings, completion ------------------------------------------------------------------------


@pytest.mark.parametrize("face", [*FACES, *(getattr(rollingfs, name) for name in rollingfs.__all__)])
def test_every_public_method_has_a_docstring_and_names_its_parameters(face: type) -> None:
    assert inspect.getdoc(face), face
    for name, method in public(face):
        assert inspect.getdoc(method), f"{face.__name__}.{name} has no docstring"
        if not isinstance(method, property):
            kinds = {one.kind for one in inspect.signature(method).parameters.values()}
            assert inspect.Parameter.VAR_POSITIONAL not in kinds, f"{face.__name__}.{name} hides its parameters"


def test_the_test_above_sees_the_methods() -> None:
    seen = {name for face in FACES for name, _ in public(face)}
    assert {"append", "cat_ranges", "open", "consolidate", "retain", "retention", "length"} <= seen


def test_the_class_shows_its_parameters_not_those_of_its_metaclass() -> None:
    names = list(inspect.signature(RollingFileSystem).parameters)
    assert names[:3] == ["target_protocol", "target_options", "fs"]
    assert {"max_bytes", "sync", "probe_cache"} <= set(names)
    assert "self" not in names


def test_names_are_completed(fs: RollingFileSystem) -> None:
    filled(fs, "/a")
    assert {"append", "concat", "stream", "segment"} <= set(dir(fs))
    assert {"append", "chunks", "tail", "start"} <= set(dir(fs.segment("/a")))
    assert {"RollingFileSystem", "StreamCut", "StagedExpiredError"} <= set(dir(rollingfs))


# -- reprs -----------------------------------------------------------------------------------------------------


def test_reprs_say_what_a_thing_is(fs: RollingFileSystem) -> None:
    segment = filled(fs, "/logs/a")
    assert repr(RollingFileSystem("memory")) == "<RollingFileSystem over memory>"
    assert repr(segment) == "<Segment '/logs/a' [0, 35) open version 8>"
    assert repr(segment.tail()) == "<Tail of '/logs/a' at its start>"
    assert repr(segment.tail(5)) == "<Tail of '/logs/a' at 5>"
    stream = fs.stream("/logs")
    assert repr(stream) == "<Stream '/logs'>"
    stream.segments()
    assert repr(stream) == "<Stream '/logs', 1 segments when listed>"
    with fs.open("/logs/a", "ab") as file:
        assert repr(file) == "<WriteFile '/logs/a' ab open>"
    assert repr(file) == "<WriteFile '/logs/a' ab closed>"


def test_reprs_have_no_secrets() -> None:
    require_module("s3fs")
    options = {"key": "id", "secret": SECRET, "token": SECRET, "endpoint_url": f"http://user:{SECRET}@127.0.0.1:1"}
    fs = RollingFileSystem("s3", target_options=options, skip_instance_cache=True)
    shown = [repr(fs), str(fs), repr(fs.stream("bucket/x")), fs.stream("bucket/x")._repr_html_()]
    assert not any(SECRET in text for text in shown)


# -- HTML ------------------------------------------------------------------------------------------------------


def parsed(html: str) -> ElementTree.Element:
    """HTML as a notebook gets it; well-formed XML shows that every tag is closed and every text escaped."""
    return ElementTree.fromstring(html)


def bars(html: str) -> list[tuple[float, float]]:
    """The left end and the width of the parts of the first bar."""
    drawing = parsed(html).find(".//svg")
    assert drawing is not None
    return [(float(one.attrib["x"]), float(one.attrib["width"])) for one in drawing.iter("rect")]


def text_of(html: str) -> str:
    return " ".join(parsed(html).itertext())


def test_a_segment_shows_its_map_and_its_state_and_asks_nothing(fs: RollingFileSystem, backend: Counting) -> None:
    segment = filled(fs, "/a")
    segment.truncate(7)
    segment.seal()
    asked = len(backend.calls)
    html = segment._repr_html_()
    assert len(backend.calls) == asked
    text = text_of(html)
    assert "/a" in text
    assert "sealed" in text
    assert "start 7, length 35" in text
    assert "0 to 7 truncated" in text
    assert "chunks in its own folder" in text
    assert re.search(r"< 64 KiB\s+6 chunks", text)
    assert "next: upkeep will join 6 chunks of 30 B to 3: 3 objects fewer" in text
    assert "$" not in text  # requests to memory cost nothing
    assert "($0.0012 for 1,000 such reads on S3 Standard)" in text_of(segment_html(segment._snapshot, 0, S3_STANDARD))
    found = bars(html)
    assert found[0] == (0, 144)  # 7 of 35 bytes, of 720 pixels
    assert found[-1][0] + found[-1][1] == pytest.approx(720)


def test_a_segment_with_index_pages_shows_its_map_and_asks_nothing(fs: RollingFileSystem, backend: Counting) -> None:
    fs.create("/a")
    fs.append("/a", [bytes(10)] * 3000)
    fs.truncate("/a", 25)
    segment = fs.segment("/a")
    asked = len(backend.calls)
    html = segment._repr_html_()
    assert len(backend.calls) == asked
    assert "chunks in index pages" in text_of(html)
    assert bars(html)[-1][0] + bars(html)[-1][1] == pytest.approx(720, abs=2)


def test_an_empty_segment_and_a_plain_file_have_a_map(fs: RollingFileSystem, tmp_path: Path) -> None:
    fs.create("/empty")
    assert "length 0" in text_of(fs.segment("/empty")._repr_html_())
    (tmp_path / "plain").write_bytes(bytes(50))
    plain = RollingFileSystem("file").segment(f"{tmp_path}/plain")._repr_html_()
    assert "a plain file" in text_of(plain)
    assert bars(plain) == [(0, 720)]


def test_a_name_that_is_html_stays_text(fs: RollingFileSystem) -> None:
    name = '/<script>alert("&")</script>\x1b'
    segment = filled(fs, name)
    assert '<script>alert("&")</script>\\x1b' in text_of(segment._repr_html_())
    stream = fs.stream("")
    stream.segments()
    for html in (segment._repr_html_(), stream._repr_html_()):
        assert "<script" not in html
        assert parsed(html).find(".//script") is None


def test_segments_of_many_runs_and_streams_of_many_segments_stay_short(fs: RollingFileSystem) -> None:
    fs.create("/logs/all")
    for number in range(40):
        filled(fs, f"/{number}", 10).seal()
    fs.concat("/logs/all", [f"/{number}" for number in range(40)])
    assert "28 more" in text_of(fs.segment("/logs/all")._repr_html_())
    for number in range(40):
        fs.create(f"/logs/{number}")
    stream = fs.stream("/logs")
    assert "not listed yet" in text_of(stream._repr_html_())
    stream.infos()
    assert "41 segments" in text_of(stream._repr_html_())
    assert len(re.findall("<tr>", stream._repr_html_())) < 20


def test_a_stream_shows_what_was_last_listed_and_asks_nothing(fs: RollingFileSystem, backend: Counting) -> None:
    filled(fs, "/logs/a").truncate(10)
    filled(fs, "/logs/b").seal()
    stream = fs.stream("/logs")
    stream.size()
    asked = len(backend.calls)
    text = text_of(stream._repr_html_())
    assert len(backend.calls) == asked
    assert "2 segments, 60 B" in text
    assert re.search(r"a\s+open\s+10\s+35", text)
    assert re.search(r"b\s+sealed\s+0\s+35", text)


# -- progress --------------------------------------------------------------------------------------------------


class Kept(Callback):  # type: ignore[misc]
    """Keeps what it is told, its children's too."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[Kept] = []

    def branched(self, path_1: Any, path_2: Any, **kwargs: Any) -> Kept:
        self.children.append(Kept())
        return self.children[-1]


def test_verbs_that_move_bytes_tell_fsspecs_callback(fs: RollingFileSystem, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(70))
    told = {verb: Kept() for verb in ("put", "get", "export", "consolidate", "verify", "collect", "tree")}
    fs.put(f"{tmp_path}/source", "/put", callback=told["put"])
    fs.get("/put", f"{tmp_path}/target", callback=told["get"])
    segment = filled(fs, "/a", 70)
    fs.export("/a", "/exported", callback=told["export"])
    segment.consolidate(grace=0, callback=told["consolidate"])
    segment.verify(callback=told["verify"])
    fs.collect("/a", grace=0, callback=told["collect"])
    fs.collect("", grace=0, recursive=True, callback=told["tree"])
    sizes = {"put": 1, "get": 1, "export": 70, "consolidate": 70, "verify": 70, "collect": 1, "tree": 2}
    assert {verb: (one.value, one.size) for verb, one in told.items()} == {v: (n, n) for v, n in sizes.items()}
    assert [(one.value, one.size) for one in [*told["put"].children, *told["get"].children]] == [(70, 70), (70, 70)]


def test_the_callback_of_tqdm_shows_a_bar(fs: RollingFileSystem, capsys: pytest.CaptureFixture[str]) -> None:
    require_module("tqdm")
    from fsspec.callbacks import TqdmCallback

    segment = filled(fs, "/a", 70)
    with TqdmCallback(tqdm_kwargs={"desc": "verifying"}) as callback:
        segment.verify(callback=callback)
    assert "verifying: 100%" in capsys.readouterr().err
