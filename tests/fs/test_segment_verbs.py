"""What `fs` and `fs.segment` offer for the life of a segment, over a filesystem as users make it."""

import asyncio

import fsspec
import pytest

from rollingfs import RetentionPolicy, StreamCut
from tests.support.life import Turned


@pytest.fixture(params=["memory", "file"])
def fs(request, tmp_path):
    options = {"max_bytes": 100, "inline_bytes": 0, "clock": Turned(), "skip_instance_cache": True}
    options |= {"sync": False} if request.param == "file" else {}
    fs = fsspec.filesystem("rolling", target_protocol=request.param, **options)
    fs.target = fsspec.filesystem(request.param)
    fs.home = str(tmp_path) if request.param == "file" else f"/{tmp_path.name}"
    return fs


def test_stream_is_cut_trimmed_retained_and_hides_its_memory(fs):
    home = f"{fs.home}/stream"
    for name in "ab":
        fs.create(f"{home}/{name}")
        fs.append(f"{home}/{name}", b"x" * 250)
    stream = fs.stream(f"rolling://{home}")
    stream.retention = RetentionPolicy.by_size("100 B")
    assert fs.stream(home).retention == RetentionPolicy.by_size(100)
    assert fs.ls(home, detail=False) == stream.segments() == fs.find(home) == [f"{home}/a", f"{home}/b"]
    assert fs.du(home) == stream.size() == 500
    stream.trim(StreamCut.parse(str(stream.cut(align=b"x"))))
    assert fs.info(f"{home}/a")["start_offset"] == 250
    assert [info["size"] for info in stream.infos().values()] == [0, 0]
    assert asyncio.run(stream._cut()) == stream.cut()
    assert asyncio.run(fs.stream(home)._get_retention()) == stream.retention


CUT = StreamCut({}, 0.0, 0)
CALLS = [("publish", ["reader", CUT], {}), ("unsubscribe", ["reader"], {}), ("trim", [CUT], {}), ("cut", [], {})]
CALLS += [("retain", [], {}), ("retain", [], {"dry_run": True})]
CALLS += [("__setattr__", ["retention", policy], {}) for policy in (RetentionPolicy.by_size(1), None)]


@pytest.mark.parametrize(("verb", "args", "options"), CALLS, ids=str)
def test_missing_folder_is_no_stream_and_nothing_is_written(fs, verb, args, options):
    fs.create(f"{fs.home}/segment")
    fs.target.pipe_file(f"{fs.home}/plain", b"12345")
    before = sorted(fs.target.find(fs.home))
    for name, error in (("nothing", FileNotFoundError), ("segment", NotADirectoryError), ("plain", NotADirectoryError)):
        with pytest.raises(error, match="stream") as raised:
            getattr(fs.stream(f"{fs.home}/{name}"), verb)(*args, **options)
        assert raised.value.filename == f"{fs.home}/{name}"
    assert sorted(fs.target.find(fs.home)) == before


def test_empty_stream_exists_while_its_folder_does(fs):
    fs.mkdir(f"{fs.home}/stream")
    stream = fs.stream(f"{fs.home}/stream")
    stream.retention = RetentionPolicy.by_size(1)
    assert stream.retain().bytes == 0
    fs.rm(f"{fs.home}/stream", recursive=True)
    with pytest.raises(FileNotFoundError, match="stream"):
        stream.retention = RetentionPolicy.by_size(1)


def test_a_plain_file_needs_no_care(fs):
    fs.target.pipe_file(f"{fs.home}/plain", b"12345")
    segment = fs.segment(f"{fs.home}/plain")
    assert segment.consolidate().written == 0
    assert [row.ok for row in segment.verify()] == [True]
    assert list(segment.tail(follow=False)) == [b"12345"]
