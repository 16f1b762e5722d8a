"""What shells and notebooks see: reprs without secrets, maps as HTML, progress."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fsspec.callbacks import Callback

from rollingfs import RollingFileSystem, Segment, Stream
from rollingfs.show.notebook import segment_html
from rollingfs.show.readable import S3_STANDARD
from tests.support.backends import Counting, private_memory
from tests.support.servers import require_module

SECRET = "a-key-that-nobody-may-see"


@pytest.fixture
def fs() -> RollingFileSystem:
    backend = Counting(private_memory())
    return RollingFileSystem(backend=backend, max_bytes=10, inline_bytes=4, skip_instance_cache=True)


def filled(fs: RollingFileSystem, path: str, size: int = 35) -> Segment:
    fs.create(path)
    for start in range(0, size, 5):
        fs.append(path, bytes(min(5, size - start)))
    return fs.segment(path)


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
    return [(float(one.attrib["x"]), float(one.attrib["width"])) for one in drawing.iter("rect")]


def text_of(html: str) -> str:
    return " ".join(parsed(html).itertext())


def shown(fs: RollingFileSystem, thing: Segment | Stream) -> str:
    """The HTML of a thing, for which nothing is asked of the store."""
    asked = len(fs._backend.calls)
    html = thing._repr_html_()
    assert len(fs._backend.calls) == asked
    return html


def test_segment_shows_its_map_and_state_without_requests(fs: RollingFileSystem) -> None:
    segment = filled(fs, "/a")
    segment.truncate(7)
    segment.seal()
    text = text_of(html := shown(fs, segment))
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


def test_segment_with_index_pages_shows_its_map_without_requests(fs: RollingFileSystem) -> None:
    fs.create("/a")
    fs.append("/a", [bytes(10)] * 300)
    fs.truncate("/a", 25)
    html = shown(fs, fs.segment("/a"))
    assert "chunks in index pages" in text_of(html)
    assert bars(html)[-1][0] + bars(html)[-1][1] == pytest.approx(720, abs=2)


def test_a_name_that_is_html_stays_text(fs: RollingFileSystem) -> None:
    name = '/<script>alert("&")</script>\x1b'
    segment = filled(fs, name)
    assert '<script>alert("&")</script>\\x1b' in text_of(segment._repr_html_())
    stream = fs.stream("")
    stream.segments()
    for html in (segment._repr_html_(), stream._repr_html_()):
        assert "<script" not in html
        assert parsed(html).find(".//script") is None


def test_stream_shows_what_was_last_listed_and_asks_nothing(fs: RollingFileSystem) -> None:
    filled(fs, "/logs/a").truncate(10)
    filled(fs, "/logs/b").seal()
    stream = fs.stream("/logs")
    stream.size()
    text = text_of(shown(fs, stream))
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
