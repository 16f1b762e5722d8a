"""Content, files and requests of the filesystem as users of fsspec see it, over memory, the local disk and S3."""

import asyncio
import inspect
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import fsspec
import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.memory import MemoryBackend
from rollingfs.fs.core import Tuning
from tests.support.places import new_place
from tests.support.servers import count_requests


@pytest.fixture
def s3(request):
    """An instance that shares nothing: its caches are empty."""
    return new_place("s3", request, skip_instance_cache=True)


def other(place):
    """Another client of the same store."""
    return RollingFileSystem("s3", place.fs.storage_args[1], skip_instance_cache=True)


# -- content -------------------------------------------------------------------------------------------------


def test_info_says_what_a_segment_is(place):
    fs, path = place.fs, f"{place.root}/x"
    fs.create(path, RollingPolicy(max_bytes=4, inline_bytes=0))
    fs.append(path, b"0123456789")
    fs.truncate(path, 5)
    fs.seal(path)
    wanted = {"name": path, "type": "file", "size": 5, "start_offset": 5, "length": 10, "sealed": True, "chunks": 2}
    info = fs.info(path)
    assert (wanted | {"version": 4}).items() <= info.items()
    assert info["created"] <= info["mtime"]
    assert fs.size(path) == 5
    assert abs(fs.modified(path) - datetime.now(UTC)) < timedelta(minutes=10)
    assert fs.created(path) <= fs.modified(path)


def test_cat_file_slices_like_python(place):
    fs, path, data = place.fs, f"{place.root}/x", b"0123456789"
    fs.create(path, RollingPolicy(max_bytes=3, inline_bytes=2))
    fs.append(path, b"##" + data)
    fs.truncate(path, 2)
    plain = place.plain("plain", data)
    bounds = [None, 0, 1, 5, 10, 11, 99, -1, -4, -10, -11]
    ranges = [(start, end) for start in bounds for end in bounds]
    for one in (path, plain):
        got = fs.cat_ranges([one] * len(ranges), [start for start, _ in ranges], [end for _, end in ranges])
        assert got == [data[start:end] for start, end in ranges]
    assert (fs.cat_file(path, -4, -1), fs.cat_file(path, 5, 5)) == (b"678", b"")
    assert (fs.head(path, 3), fs.tail(path, 3), fs.read_block(path, 2, 3)) == (b"012", b"789", b"234")
    assert fs.cat([path, plain]) == {path: data, plain: data}


def test_cat_ranges_returns_errors_in_place_or_raises_first(memory):
    fs, there, missing = memory.fs, memory.file("x", b"data"), f"{memory.root}/missing"
    first, second, third = fs.cat_ranges([there, missing, there], 1, 3)
    assert (first, third) == (b"at", b"at")
    assert isinstance(second, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([there, missing], 0, 1, on_error="raise")
    with pytest.raises(ValueError, match="2 paths, 1 starts"):
        fs.cat_ranges([there, there], [0], [1, 1])
    with pytest.raises(TypeError):
        fs.cat_ranges(there, 0, 1)
    assert fs.cat_ranges([], [], []) == []


def test_touch_makes_an_empty_file_and_truncates_on_request(place):
    fs, path = place.fs, f"{place.root}/x"
    fs.touch(path)
    assert fs.info(path)["size"] == 0
    fs.append(path, b"data")
    fs.touch(path, truncate=False)
    assert fs.cat_file(path) == b"data"
    fs.touch(path)
    assert fs.cat_file(path) == b""


def test_ukey_and_checksum_change_with_every_content(place):
    fs, path = place.fs, place.file("x", b"one")
    for one in (path, place.plain("plain")):
        keys = fs.ukey(one), fs.checksum(one)
        assert (fs.ukey(one), fs.checksum(one)) == keys
        fs.append(one, b"more")
        assert not {fs.ukey(one), fs.checksum(one)} & {*keys}
    tag = fs.info(path)["ETag"]
    fs.pipe_file(path, b"onemore")
    assert fs.info(path)["ETag"] not in (None, tag)


# -- open ---------------------------------------------------------------------------------------------------


def test_files_are_opened_for_reading_writing_and_appending(place):
    fs, path = place.fs, f"{place.root}/x"
    with fs.open(path, "wb") as file:
        file.write(b"01234567")
    with fs.open(path, "a", encoding="utf-8", newline="") as file:
        file.write("89\u00e4\n")
    with fs.open(path, "r", encoding="utf-8") as file:
        assert file.read() == "0123456789\u00e4\n"
    fs.truncate(path, 2)
    for options, at in (({}, 0), ({"absolute": True}, 2), ({"block_size": 5, "cache_type": "readahead"}, 0)):
        with fs.open(path, **options) as file:
            assert (file.tell(), file.read(2)) == (at, b"23")
    for mode in ("rb+", "r+b", "w+b", "zb"):
        with pytest.raises(ValueError, match="'rb', 'wb', 'xb' or 'ab'"):
            fs.open(path, mode)


def test_an_owner_and_attributes_go_with_open(memory):
    fs, path = memory.fs, f"{memory.root}/x"
    with fs.open(path, "ab", owner="job 7", attrs={"by": "job 7"}) as file:
        file.write(b"x")
        assert file.epoch == 1
        assert fs.segment(path).epoch == 1
    assert dict(fs.segment(path).attrs) == {"by": "job 7"}


def test_an_impossible_verb_is_not_implemented(memory):
    path = memory.file("x")
    with pytest.raises(NotImplementedError, match="export"):
        memory.fs.sign(path)
    with pytest.raises(NotImplementedError, match="maxdepth"):
        memory.fs.mv(path, f"{memory.root}/y", maxdepth=1)


# -- requests -----------------------------------------------------------------------------------------------


def test_invalidate_cache_forgets_headers(s3):
    fs, path = s3.fs, s3.file("x", b"old")
    other(s3).pipe_file(path, b"new")
    for forget in (path, f"s3://{path}", s3.root, None):
        fs.invalidate_cache(forget)
        with count_requests(fs._backend) as requests:
            assert fs.cat_file(path) == b"new"
        assert requests == {"GetObject": 1}


@pytest.mark.parametrize("read", [lambda file: file.read(), lambda file: b"".join(file.readlines())])
def test_cached_file_begins_at_another_clients_truncation(tmp_path, read):
    options = {"target_protocol": "file", "sync": False, "max_bytes": 10, "inline_bytes": 0}
    mine, other = (fsspec.filesystem("rolling", **options, header_cache_s=seconds) for seconds in (100, 0))
    path = f"{tmp_path}/x"
    other.pipe_file(path, b"0123456789" * 5)
    assert mine.cat_file(path) == b"0123456789" * 5
    other.truncate(path, 25)
    with mine.open(path) as file:
        assert read(file) == b"56789" + b"0123456789" * 2


# -- tuning -------------------------------------------------------------------------------------------------


def test_file_tuning_overrides_the_filesystems(request):
    tuning = {"max_concurrency": 40, "max_memory": "16MiB", "prefetch": False}
    s3 = new_place("s3", request, **tuning, skip_instance_cache=True)
    fs, path = s3.fs, s3.file("x", b"0123456789")
    assert fs._backend.capability.requests_max == 40
    with fs.open(path, "rb") as file:
        assert file._tuning == Tuning(40, False, 16 * 2**20)
    with fs.open(path, "rb", max_concurrency=4, prefetch=True) as file:
        assert file._tuning == Tuning(4, True, 16 * 2**20)
        assert file.read() == b"0123456789"
    with pytest.raises(ValueError, match="max_concurrency is 41, but the filesystem's is 40"):
        fs.open(path, "rb", max_concurrency=41)
    with pytest.raises(ValueError, match="are for reading, not for mode 'ab'"):
        fs.open(path, "ab", max_memory="1MiB")


def test_a_backend_that_is_given_has_its_own_concurrency():
    with pytest.raises(ValueError, match="set the requests_max of its own capability"):
        RollingFileSystem(backend=MemoryBackend(), max_concurrency=8, skip_instance_cache=True)


# -- verbs that only create ---------------------------------------------------------------------------------


STATES = {
    "open": lambda place, path: place.fs.pipe_file(path, b"there"),
    "sealed": lambda place, path: (place.fs.pipe_file(path, b"there"), place.fs.seal(path)),
    "plain": lambda place, path: place.plain(path.rpartition("/")[2], b"there"),
    "empty": lambda place, path: place.fs.touch(path),
}


def _in_transaction(place, path):
    with place.fs.transaction:
        place.fs.pipe_file(path, b"new", mode="create")


MAKERS = {
    "pipe_file": lambda place, path: place.fs.pipe_file(path, b"new", mode="create"),
    "pipe_file, large": lambda place, path: place.fs.pipe_file(path, bytes(3 << 20), mode="create"),
    "put_file": lambda place, path: place.fs.put_file(__file__, path, mode="create"),
    "open": lambda place, path: place.fs.open(path, "xb"),
    "transaction": _in_transaction,
    "create": lambda place, path: place.fs.create(path),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("maker", MAKERS)
def test_creating_verb_refuses_to_replace_a_file(memory, maker, state):
    path = f"{memory.root}/x"
    STATES[state](memory, path)
    before = memory.fs.cat_file(path), memory.fs.info(path)
    with pytest.raises(FileExistsError, match="nothing was written") as caught:
        MAKERS[maker](memory, path)
    assert caught.value.filename == path
    assert (memory.fs.cat_file(path), memory.fs.info(path)) == before


@pytest.mark.parametrize("mode", ["creat", None])
def test_an_unknown_mode_is_refused_and_replaces_nothing(memory, mode):
    path = memory.file("x", b"there")
    for write in (partial(memory.fs.pipe_file, path, b"new"), partial(memory.fs.put_file, __file__, path)):
        with pytest.raises(ValueError, match=r"must be 'overwrite' or 'create'; nothing was written"):
            write(mode=mode)
    assert memory.fs.cat_file(path) == b"there"


# -- options that no verb has ---------------------------------------------------------------------------------

ARGUMENTS = {"paths": ["/d/a"], "starts": 0, "ends": 1, "value": b"x", "data": b"x", "sources": ["/d/a"], "offset": 0}
"""By the name of a parameter; another one gets a path."""
OURS = [name for name, verb in vars(RollingFileSystem).items() if inspect.isfunction(verb) and name[:1] != "_"]
OPTIONLESS = {"sign", "segment", "stream", "metrics", "invalidate_cache", "unstrip_protocol"}
THEIRS = ("cat", "glob", "walk", "pipe", "cp", "move", "rename", "download", "upload", "listdir", "stat", "read_bytes")
"""Methods of fsspec that hand their options to a verb."""
NOT_IN_TRANSACTIONS = {"copy", "cp", "cp_file", "move", "mv", "mv_file", "rename", "rm", "rm_file"}


@pytest.mark.parametrize("form", ["blocking", "awaited", "transaction"])
@pytest.mark.parametrize("name", sorted({*OURS, *THEIRS} - OPTIONLESS))
def test_every_verb_refuses_option_that_it_does_not_have(name: str, form: str, tmp_path: Path) -> None:
    fs = RollingFileSystem("memory", skip_instance_cache=True)
    fs.pipe_file("/d/a", b"bytes")
    (tmp_path / "local").write_bytes(b"local")
    verb = getattr(fs, f"_{name}" if form == "awaited" else name, None)
    if verb is None or (form == "awaited" and not inspect.iscoroutinefunction(verb)):
        pytest.skip("it has no such form")
    required = [
        one.name
        for one in inspect.signature(verb).parameters.values()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD and one.name not in ("self", "kwargs")
    ]
    given = [ARGUMENTS.get(one, f"{tmp_path}/local" if one == "lpath" else "/d/a") for one in required]

    def call() -> object:
        found = verb(*given, version_id="1")
        if inspect.isawaitable(found):
            return asyncio.run(found)
        return list(found) if inspect.isgenerator(found) else found

    wrong = (TypeError, "version_id")
    if form == "transaction" and name in NOT_IN_TRANSACTIONS:
        wrong = (NotImplementedError, "within a transaction")
    with pytest.raises(wrong[0], match=wrong[1]), fs.transaction if form == "transaction" else nullcontext():
        call()
    assert fs.cat("/d", recursive=True, on_error="omit") == {"/d/a": b"bytes"}


def test_foreign_options_are_ignored_and_others_reach_their_verb(tmp_path: Path) -> None:
    fs = RollingFileSystem("memory", skip_instance_cache=True)
    fs.pipe("/d/a", b"bytes", chunksize=10)
    fs.pipe_file("/d/b/a", b"")
    assert fs.find("/d", prefix="a") == fs.find("/d", prefix="a", withdirs=True) == ["/d/a"]
    assert fs.find("/d", prefix="b/") == ["/d/b/a"]
    assert asyncio.run(fs._glob("/d/a*", detail=True)).keys() == {"/d/a"}  # fsspec asks by the prefix
    assert asyncio.run(fs._glob("/*/a*")) == ["/d/a"]
    assert fs.cat("/d/a", verify=True, start=1) == b"ytes"
    assert fs.glob("/d/*", refresh=True, on_error="raise") == ["/d/a", "/d/b"]
    fs.get("/d/a", f"{tmp_path}/a", verify=True, max_concurrency=3)
    with pytest.raises(FileExistsError), fs.transaction:
        fs.put(f"{tmp_path}/a", "/d/a", mode="create", chunksize=1)
    with pytest.raises(TypeError, match="did you mean 'on_error'"):
        fs.info("/d/a", on_eror="report")
    with pytest.raises(TypeError, match="open_async has no option 'attrs'"):
        asyncio.run(fs.open_async("/d/a", attrs={}))
