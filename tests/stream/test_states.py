"""`fs.states`: what it finds, and how few requests that takes."""

from functools import partial

import pytest

from rollingfs import RetentionPolicy, RollingFileSystem
from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from tests.support.backends import Scripted, private_memory

SEGMENTS = 20
ROOT = "/root"


@pytest.fixture
def below() -> Scripted:
    return Scripted(private_memory())


def filesystem(below: Scripted, **options: object) -> RollingFileSystem:
    options = {"max_bytes": 100, "inline_bytes": 10, **options}
    return RollingFileSystem(backend=below, header_cache_s=0, skip_instance_cache=True, **options)


def grow(fs: RollingFileSystem) -> None:
    """So many chunks that their map has index pages."""
    fs.create(f"{ROOT}/s")
    for _ in range(200):
        fs.append(f"{ROOT}/s", b"x" * 20)


def test_refresh_is_a_listing_and_the_changed_headers(below):
    writer, reader = filesystem(below), filesystem(below)
    for number in range(SEGMENTS):
        writer.pipe_file(f"{ROOT}/{number:02}", b"x" * 30)
    below.clear()
    first = reader.states(ROOT)
    assert sorted(below.verbs) == ["list"] + ["read"] * SEGMENTS
    below.clear()
    assert reader.states(ROOT) == first
    assert below.verbs == ["list"]
    for number in (3, 7):
        writer.append(f"{ROOT}/{number:02}", b"y")
    below.clear()
    second = reader.states(ROOT)
    assert sorted(below.verbs) == ["list", "read_if_changed", "read_if_changed"]
    assert [one.path[-2:] for old, one in zip(first, second, strict=True) if old != one] == ["03", "07"]


def test_index_pages_are_read_once_and_for_tiers(below):
    writer, reader = filesystem(below), filesystem(below)
    grow(writer)
    below.clear()
    [plain] = reader.states(ROOT)
    assert below.verbs == ["list", "read"]
    assert (plain.chunks, plain.lag_bytes) == (200, 0)
    below.clear()
    [chosen] = reader.states(ROOT, after_bytes=1000)
    pages = below.count("read")
    assert sorted(below.verbs) == ["list"] + ["read"] * pages
    assert pages >= 1
    assert chosen.lag_bytes == 3000
    below.clear()
    reader.states(ROOT, after_bytes=1000)
    assert below.verbs == ["list"]


def test_segment_that_cannot_be_read_does_not_hide_others(below):
    fs = filesystem(below)
    for name in ("a", "b"):
        fs.pipe_file(f"{ROOT}/{name}", b"x")
    fs._backend.fs.pipe_file(f"{ROOT}/a$header", b"nonsense")
    damaged, whole = fs.states(ROOT)
    assert (damaged.path, damaged.state) == (f"{ROOT}/a", "unreadable")
    assert damaged.error
    assert (whole.state, whole.error) == ("open", None)


def test_everything_below_a_path_is_shown_except_hidden(below):
    fs = filesystem(below)
    for name in ("b", "a", "deep/c", "deep/deeper/d", "gone"):
        fs.pipe_file(f"{ROOT}/{name}", b"x")
    fs.rm(f"{ROOT}/gone")
    fs.stream(ROOT).retention = RetentionPolicy.by_size("1KiB")  # its memory is hidden
    fs._backend.fs.pipe_file(f"{ROOT}/plain", b"123")

    def shown(path: str, **how: object) -> list[str]:
        return [one.path[len(ROOT) + 1 :] for one in fs.states(path, **how)]

    assert shown(ROOT) == ["a", "b", "deep/c", "deep/deeper/d", "plain"]
    assert shown(ROOT, maxdepth=1) == ["a", "b", "plain"]
    assert shown(f"{ROOT}/deep") == ["deep/c", "deep/deeper/d"]
    assert shown(f"{ROOT}/a") == ["a"]
    [plain] = fs.states(f"{ROOT}/plain")
    assert (plain.state, plain.size, plain.hot_bytes) == ("plain", 3, 3)
    with pytest.raises(FileNotFoundError):
        fs.states(f"{ROOT}/nothing")
    with pytest.raises(ValueError, match="maxdepth"):
        fs.states(ROOT, maxdepth=0)
    with pytest.raises(ValueError, match="size"):
        fs.states(ROOT, after_bytes="much")


def test_page_that_goes_during_a_look_is_sought_again(below):
    writer, reader = filesystem(below), filesystem(below)
    grow(writer)

    cut = partial(writer.truncate, f"{ROOT}/s", 3990)
    below.plan("read", lambda path: names.INDEX_PREFIX in path, before=cut)
    [found] = reader.states(ROOT, after_bytes=0)
    assert (found.start, found.lag_bytes) == (3990, 10)


def test_damaged_index_page_is_error_of_its_segment(below):
    fs = filesystem(below)
    grow(fs)
    [page] = [one.path for one in fs._bridge.run(fs._backend.list(f"{ROOT}/s$chunks")).entries if "index" in one.path]
    fs._bridge.run(fs._backend.put(page, b"nonsense"))
    [found] = filesystem(below).states(ROOT, after_bytes=0)
    assert found.state == "unreadable"
    with pytest.raises(CorruptHeaderError):
        filesystem(below).cat_file(f"{ROOT}/s")


@pytest.mark.parametrize("tiers", [False, True])
@pytest.mark.parametrize("cut", [0, 10, 15, 1285, 4500, 4990])
def test_chunks_that_a_truncation_has_dropped_do_not_count(below, cut, tiers):
    options = {"tiers": {"cold": "/archive"}} if tiers else {}
    writer, reader = (filesystem(below, max_bytes=10, inline_bytes=0, **options) for _ in range(2))
    path = f"{ROOT}/s"
    writer.create(path)
    writer.append(path, b"0123456789" * 500)
    writer.truncate(path, cut)
    left = 500 - cut // 10
    state = reader.states(ROOT)[0]
    assert len(reader.segment(path).chunks) == left
    assert (state.chunks, state.hot_bytes, state.cold_bytes) == (left, 5000 - cut, 0)
    assert reader.info(path)["chunks"] == left
    assert len(reader.segment(path).verify()) == left
