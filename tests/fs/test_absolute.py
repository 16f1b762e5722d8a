"""On a filesystem that is `absolute`, positions are segment offsets, and stay when the head is truncated."""

from typing import Any

import fsspec
import pytest

from rollingfs import RollingFileSystem
from rollingfs.errors import SegmentTruncatedError
from tests.support.backends import private_memory

RECORD_BYTES, START, END = 7, 21, 140
RECORDS = b"".join(b"rec%03d\n" % number for number in range(20))


@pytest.fixture(params=[{}, {"inline_bytes": 0, "max_bytes": 30}], ids=["inline", "chunks"])
def both(request: pytest.FixtureRequest) -> tuple[RollingFileSystem, RollingFileSystem]:
    """A usual filesystem and an absolute one, over one store with a segment whose head was truncated."""
    store = private_memory()
    usual = RollingFileSystem(backend=store, **request.param)
    usual.pipe_file("/logs/x", RECORDS)
    usual.truncate("/logs/x", START)
    return usual, RollingFileSystem(backend=store, absolute=True, **request.param)


@pytest.mark.parametrize(
    "span", [(35, 42), (-7, None), (None, None), (None, 28), (21, 21), (130, 999), (21, None), (-7, -2), (0, 0)]
)
def test_a_slice_is_of_segment_offsets(both: Any, span: tuple[int | None, int | None]) -> None:
    _, fs = both
    start, end = span
    wanted = RECORDS[max(START, slice(start, end).indices(END)[0]) : end] if span != (0, 0) else b""
    assert fs.cat_file("/logs/x", start, end) == wanted
    assert fs.cat_ranges(["/logs/x"], [start], [end]) == [wanted]


@pytest.mark.parametrize("span", [(0, 7), (20, 22), (None, 7), (-999, None), (0, None)])
def test_bytes_that_are_gone_are_an_error(both: Any, span: tuple[int | None, int | None]) -> None:
    _, fs = both
    with pytest.raises(SegmentTruncatedError, match="were truncated away; it holds bytes 21 to 140"):
        fs.cat_file("/logs/x", *span)
    [answer] = fs.cat_ranges(["/logs/x"], [span[0]], [span[1]])
    assert isinstance(answer, SegmentTruncatedError)


def test_files_and_infos_count_in_segment_offsets(both: Any) -> None:
    usual, fs = both
    with fs.open("/logs/x") as file:
        assert (file.tell(), file.size, file.read(RECORD_BYTES)) == (START, END, b"rec003\n")
        assert file.seek(35) == 35
        assert file.read(RECORD_BYTES) == b"rec005\n"
    assert fs.read_block("/logs/x", 35, RECORD_BYTES) == b"rec005\n"
    assert fs.open("/logs/x", absolute=False).read(RECORD_BYTES) == b"rec003\n"
    assert fs.size("/logs/x") == fs.ls("/logs")[0]["size"] == fs.find("/logs", detail=True)["/logs/x"]["size"] == END
    assert fs.du("/logs") == usual.du("/logs") == usual.size("/logs/x") == END - START
    fs.cp_file("/logs/x", "/logs/copy")
    assert fs.cat_file("/logs/copy") == RECORDS[START:]


@pytest.mark.parametrize("cache", ["simplecache", "filecache"])
def test_a_cache_keeps_no_shifted_copy(both: Any, tmp_path: Any, cache: str) -> None:
    usual, fs = both
    cached = fsspec.filesystem(cache, fs=fs, cache_storage=str(tmp_path))
    with pytest.raises(SegmentTruncatedError, match="a copy would count from byte 21"):
        cached.open("/logs/x")
    usual.get_file("/logs/x", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == RECORDS[START:]


def test_a_file_for_appending_tells_segment_offsets(both: Any) -> None:
    usual, fs = both
    for one, choices in ((fs, {}), (usual, {"absolute": True})):
        end = fs.size("/logs/x")
        with one.open("/logs/x", "ab", **choices) as file:
            assert file.tell() == end
            file.write(b"more")
            assert file.tell() == end + 4
    assert usual.open("/logs/x", "ab").tell() == usual.size("/logs/x")
