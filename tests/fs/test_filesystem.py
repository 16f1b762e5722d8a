"""The filesystem as users of fsspec see it, over memory, the local disk and S3."""

import errno
import io
import os
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import fsspec
import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.memory import MemoryBackend
from rollingfs.fs import reading
from rollingfs.read.tuning import Tuning
from tests.support.servers import count_requests, new_bucket


@dataclass
class Place:
    """A filesystem and an empty folder of it."""

    fs: RollingFileSystem
    root: str

    @property
    def has_folders(self):
        return self.fs._backend.has_folders

    def plain(self, name, data):
        """Write a plain file beside rollingfs."""
        path = f"{self.root}/{name}"
        self.fs._bridge.run(self.fs._backend.write(path, [data]))
        return path

    def backend_files(self, folder):
        return [entry.path for entry in self.fs._bridge.run(self.fs._backend.list(folder)).entries]

    def names(self, paths):
        return [path.removeprefix(self.root) for path in paths]


@pytest.fixture(scope="module")
def seaweed_bucket(seaweed):
    return new_bucket(seaweed)


@pytest.fixture(params=["memory", "local", "s3"])
def place(request, tmp_path):
    if request.param == "memory":
        return Place(RollingFileSystem("memory", header_cache_s=0), f"/{uuid.uuid4().hex}")
    if request.param == "local":
        return Place(RollingFileSystem("file", header_cache_s=0, sync=False), str(tmp_path))
    seaweed = request.getfixturevalue("seaweed")
    bucket = request.getfixturevalue("seaweed_bucket")
    return Place(RollingFileSystem("s3", seaweed, header_cache_s=0), f"{bucket}/{uuid.uuid4().hex}")


@pytest.fixture
def memory():
    return Place(RollingFileSystem("memory", header_cache_s=0), f"/{uuid.uuid4().hex}")


@pytest.fixture
def s3(seaweed, seaweed_bucket):
    """An instance that shares nothing: its caches are empty."""
    return Place(RollingFileSystem("s3", seaweed, skip_instance_cache=True), f"{seaweed_bucket}/{uuid.uuid4().hex}")


# -- listings ------------------------------------------------------------------------------------------------


def test_listings_show_segments_plain_files_and_folders_and_nothing_else(place):
    fs, root = place.fs, place.root
    fs.create(f"{root}/b", RollingPolicy(max_bytes=2, inline_bytes=0))
    fs.append(f"{root}/b", b"rolled into chunks")
    place.plain("a", b"plain")
    fs.pipe_file(f"{root}/c/inner", b"x")
    fs.pipe_file(f"{root}/gone", b"x")
    fs.rm(f"{root}/gone")
    infos, wanted = fs.ls(root), [("/a", 5, "file"), ("/b", 18, "file"), ("/c", 0, "directory")]
    assert [(info["name"].removeprefix(root), info["size"], info["type"]) for info in infos] == wanted
    assert [fs.info(info["name"]) for info in infos] == infos
    assert fs.ls(root, detail=False, refresh=True) == [f"{root}/{name}" for name in "abc"]
    assert place.names(fs.find(root)) == ["/a", "/b", "/c/inner"]
    assert place.names(fs.find(root, withdirs=True)) == ["", "/a", "/b", "/c", "/c/inner"]
    assert place.names(fs.find(root, maxdepth=1, withdirs=True)) == ["", "/a", "/b", "/c"]
    assert place.names(fs.glob(f"{root}/*")) == ["/a", "/b", "/c"]
    assert place.names(fs.glob(f"{root}/**/inn*")) == ["/c/inner"]
    assert list(fs.walk(root)) == [(root, ["c"], ["a", "b"]), (f"{root}/c", [], ["inner"])]
    assert fs.du(root) == 24
    assert fs.du(root, total=False) == {f"{root}/a": 5, f"{root}/b": 18, f"{root}/c/inner": 1}


def test_info_says_what_a_segment_is(place):
    fs, path = place.fs, f"{place.root}/x"
    fs.create(path, RollingPolicy(max_bytes=4, inline_bytes=0))
    fs.append(path, b"0123456789")
    fs.truncate(path, 5)
    fs.seal(path)
    info = fs.info(path)
    wanted = {"name": path, "type": "file", "size": 5, "start_offset": 5, "length": 10, "sealed": True, "chunks": 2}
    assert wanted.items() <= info.items()
    assert info["version"] == 4
    assert info["created"] <= info["mtime"]
    assert fs.size(path) == 5
    assert abs(fs.modified(path) - datetime.now(UTC)) < timedelta(minutes=10)
    assert fs.created(path) <= fs.modified(path)


def test_ls_of_a_file_is_the_file_and_of_nothing_an_error(place):
    path = place.plain("plain", b"x")
    assert place.fs.ls(path, detail=False) == [path]
    place.fs.pipe_file(f"{place.root}/segment", b"x")
    assert place.fs.ls(f"{place.root}/segment", detail=False) == [f"{place.root}/segment"]
    with pytest.raises(FileNotFoundError):
        place.fs.ls(f"{place.root}/nothing")
    assert place.fs.find(f"{place.root}/nothing") == []
    assert not place.fs.exists(f"{place.root}/nothing")
    assert not place.fs.isfile(f"{place.root}/nothing")
    assert not place.fs.isdir(f"{place.root}/nothing")


def test_a_segment_wins_over_a_folder_of_its_name(place):
    fs, root = place.fs, place.root
    fs.pipe_file(f"{root}/both", b"segment")
    fs.pipe_file(f"{root}/both/inner", b"inner")
    assert fs.info(f"{root}/both")["type"] == "file"
    assert fs.isfile(f"{root}/both")
    assert not fs.isdir(f"{root}/both")
    assert fs.ls(f"{root}/both", detail=False) == [f"{root}/both"]
    assert [(info["name"], info["type"]) for info in fs.ls(root)] == [(f"{root}/both", "file")]
    assert fs.find(root) == [f"{root}/both"]
    fs.rm(root, recursive=True)
    assert not fs.exists(f"{root}/both/inner")
    assert not fs.exists(root)


def test_a_plain_file_that_was_adopted_is_shown_once(place):
    path = place.plain("log", b"plain")
    assert place.fs.append(path, b" and more") == 5
    assert [(info["name"], info["size"]) for info in place.fs.ls(place.root)] == [(path, 14)]
    place.fs.rm(path)
    assert not place.fs.exists(path)
    assert place.fs.find(place.root) == []


def test_an_empty_header_file_is_no_segment(place):
    path = place.plain("x$header", b"").removesuffix("$header")
    place.plain("y", b"y")
    assert place.fs.find(place.root) == [f"{place.root}/y"]
    assert not place.fs.exists(path)
    place.fs.create(path)
    assert place.fs.info(path)["size"] == 0


RESERVED = ["x$header", "x$chunks", "x$chunks/y", "folder/$removed"]


@pytest.mark.parametrize("name", [*RESERVED, "folder/$listing"])
def test_reserved_names_are_refused_to_writers(memory, name):
    fs, path = memory.fs, f"{memory.root}/{name}"
    memory.plain("other", b"other")
    makers = [
        *(partial(verb, path) for verb in (fs.create, fs.touch, fs.seal, fs.collect, fs.mkdir)),
        *(partial(verb, path, b"") for verb in (fs.append, fs.overwrite, fs.stage, fs.pipe_file)),
        *(partial(verb, f"{memory.root}/other", path) for verb in (fs.mv, fs.cp_file, fs.export)),
        *(partial(fs.open, path, mode) for mode in ("ab", "wb")),
        *(partial(fs.truncate, path, 0), partial(fs.concat, path, [])),
    ]
    for make in makers:
        with pytest.raises(ValueError, match=r"is not a segment name|the name is reserved|not a name for a segment"):
            make()
    assert fs.find(memory.root) == [f"{memory.root}/other"]


@pytest.mark.parametrize("name", RESERVED)
def test_what_has_a_reserved_name_is_missing_to_readers(memory, name):
    fs, path = memory.fs, f"{memory.root}/{name}"
    memory.plain(name, b"not a header")
    readers = [fs.info, fs.cat_file, fs.ls, fs.open, fs.segment, fs.rm, fs.rm_file, fs.ukey]
    for read in [*readers, lambda path: fs.mv(path, f"{memory.root}/target")]:
        with pytest.raises(FileNotFoundError):
            read(path)
    assert not fs.exists(path)
    assert not fs.isdir(path)
    assert memory.fs._bridge.run(memory.fs._backend.read(path)).data == b"not a header"


# -- folders -------------------------------------------------------------------------------------------------


def test_a_folder_with_nothing_but_tombstones(place):
    fs, folder = place.fs, f"{place.root}/folder"
    fs.pipe_file(f"{place.root}/other", b"x")
    fs.pipe_file(f"{folder}/x", b"x")
    fs.rm(f"{folder}/x")
    stays = not fs._client.backend.removes_whole
    assert (f"{folder}/x$header" in place.backend_files(folder)) is stays
    if not place.has_folders:
        assert not fs.exists(folder)
        assert fs.ls(place.root, detail=False) == [f"{place.root}/other"]
        with pytest.raises(FileNotFoundError):
            fs.ls(folder)
        return
    assert fs.isdir(folder)
    assert fs.ls(folder) == []
    fs.rmdir(folder)
    assert not fs.exists(folder)
    assert fs.ls(place.root, detail=False) == [f"{place.root}/other"]
    assert fs.find(place.root, withdirs=True) == [place.root, f"{place.root}/other"]
    for call in (fs.ls, fs.rmdir, fs.rm):
        with pytest.raises(FileNotFoundError):
            call(folder)
    assert not stays or f"{folder}/x$header" in place.backend_files(folder)
    fs.mkdir(folder)
    assert (fs.ls(folder), fs.ls(place.root, detail=False)) == ([], [folder, f"{place.root}/other"])


def test_mkdir_refuses_what_exists_and_makedirs_accepts_a_folder_with_exist_ok(place):
    fs, root = place.fs, place.root
    fs.pipe_file(f"{root}/folder/segment", b"x")
    for path in (f"{root}/folder", f"{root}/folder/segment", place.plain("plain", b"x")):
        with pytest.raises(FileExistsError):
            fs.mkdir(path)
        with pytest.raises(FileExistsError):
            fs.makedirs(path)
    fs.makedirs(f"{root}/folder", exist_ok=True)
    fs.makedirs(f"{root}/new/deep", exist_ok=True)
    assert fs.exists(f"{root}/new/deep") is place.has_folders
    if place.has_folders:
        with pytest.raises(FileNotFoundError):
            fs.mkdir(f"{root}/missing/folder", create_parents=False)
        assert fs.ls(f"{root}/new", detail=False) == [f"{root}/new/deep"]


def test_rmdir_refuses_a_folder_that_is_not_empty(place):
    place.fs.pipe_file(f"{place.root}/folder/x", b"x")
    with pytest.raises(OSError, match="not empty") as caught:
        place.fs.rmdir(f"{place.root}/folder")
    assert caught.value.errno == errno.ENOTEMPTY
    with pytest.raises(NotADirectoryError):
        place.fs.rmdir(f"{place.root}/folder/x")


def test_rm_of_one_several_patterns_and_trees(place):
    fs, root = place.fs, place.root
    for name in ("a1", "a2", "b", "folder/x", "folder/deep/y"):
        fs.pipe_file(f"{root}/{name}", b"x")
    place.plain("folder/plain", b"x")
    with pytest.raises(IsADirectoryError):
        fs.rm(f"{root}/folder")
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{root}/missing")
    with pytest.raises(FileNotFoundError):
        fs.rm_file(f"{root}/folder")
    fs.rm(f"{root}/a*")
    assert place.names(fs.find(root)) == ["/b", "/folder/deep/y", "/folder/plain", "/folder/x"]
    fs.rm(f"{root}/folder", recursive=True, maxdepth=1)
    assert place.names(fs.find(root)) == ["/b", "/folder/deep/y"]
    fs.rm([f"{root}/b", f"{root}/folder", f"{root}/folder/deep/y"], recursive=True)
    assert fs.find(root) == []
    assert not fs.exists(f"{root}/folder")


# -- moving and copying --------------------------------------------------------------------------------------


def test_mv_of_folders_into_folders_and_over_them(place):
    fs, root = place.fs, place.root
    fs.pipe_file(f"{root}/source/x", b"x")
    fs.pipe_file(f"{root}/source/deep/y", b"y")
    place.plain("source/plain", b"p")
    fs.mv(f"{root}/source", f"{root}/moved", recursive=True)
    assert place.names(fs.find(root)) == ["/moved/deep/y", "/moved/plain", "/moved/x"]
    assert not fs.exists(f"{root}/source")
    fs.pipe_file(f"{root}/folder/z", b"z")
    fs.mv(f"{root}/moved", f"{root}/folder")
    assert place.names(fs.find(root)) == [f"/folder/{name}" for name in ("moved/deep/y", "moved/plain", "moved/x", "z")]
    fs.mv(f"{root}/folder/moved/", f"{root}/folder")
    assert place.names(fs.find(root)) == ["/folder/deep/y", "/folder/plain", "/folder/x", "/folder/z"]
    fs.mv([f"{root}/folder/x", f"{root}/folder/z"], f"{root}/several")
    fs.mv(f"{root}/folder/pl*", f"{root}/several/")
    assert place.names(fs.find(root)) == ["/folder/deep/y", "/several/plain", "/several/x", "/several/z"]
    fs.mv([f"{root}/several/x"], [f"{root}/one"])
    assert fs.cat_file(f"{root}/one") == b"x"
    with pytest.raises(ValueError, match="into itself"):
        fs.mv(f"{root}/folder", f"{root}/folder/deep/er")
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{root}/missing", f"{root}/target")
    fs.mv(f"{root}/one", f"{root}/one")
    assert fs.exists(f"{root}/one")


def test_cp_copies_what_is_retained_piece_by_piece(place, monkeypatch):
    fs, source, target = place.fs, f"{place.root}/source", f"{place.root}/folder/target"
    monkeypatch.setattr(reading, "PIECE_BYTES", 1000)
    data = os.urandom(2500)
    fs.create(source, RollingPolicy(max_bytes=700, inline_bytes=0))
    fs.append(source, data)
    fs.truncate(source, 300)
    fs.copy(source, target)
    assert (fs.cat_file(target), fs.info(target)["start_offset"]) == (data[300:], 0)
    fs.cp_file(source, source)
    assert fs.info(source)["start_offset"] == 300


def test_put_and_get_take_a_folder_a_truncated_start_and_an_open_file(place, tmp_path):
    fs, root = place.fs, place.root
    local = tmp_path / "on disk"
    local.mkdir()
    (local / "x").write_bytes(b"x" * 2500)
    fs.put_file(str(local), f"{root}/folder")
    assert fs.exists(f"{root}/folder") is place.has_folders
    fs.put_file(str(local / "x"), f"{root}/put")
    fs.truncate(f"{root}/put", 500)
    into = io.BytesIO()
    fs.get_file(f"{root}/put", into)
    fs.get_file(f"{root}/put", str(tmp_path / "new" / "got"))
    assert (tmp_path / "new" / "got").read_bytes() == into.getvalue() == b"x" * 2000


# -- content -------------------------------------------------------------------------------------------------


def test_cat_file_slices_like_python(place):
    fs = place.fs
    path = f"{place.root}/x"
    fs.create(path, RollingPolicy(max_bytes=3, inline_bytes=2))
    fs.append(path, b"##0123456789")
    fs.truncate(path, 2)
    data = b"0123456789"
    plain = place.plain("plain", data)
    bounds = [None, 0, 1, 5, 10, 11, 99, -1, -4, -10, -11]
    ranges = [(start, end) for start in bounds for end in bounds]
    for one in (path, plain):
        got = fs.cat_ranges([one] * len(ranges), [start for start, _ in ranges], [end for _, end in ranges])
        assert got == [data[start:end] for start, end in ranges]
    assert (fs.cat_file(path, -4, -1), fs.cat_file(path, 5, 5)) == (b"678", b"")
    assert (fs.head(path, 3), fs.tail(path, 3), fs.read_block(path, 2, 3)) == (b"012", b"789", b"234")
    assert fs.cat([path, plain]) == {path: data, plain: data}


def test_cat_ranges_returns_errors_in_their_places_or_raises_the_first(memory):
    fs, there, missing = memory.fs, f"{memory.root}/x", f"{memory.root}/missing"
    fs.pipe_file(there, b"data")
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


def test_touch_makes_an_empty_file_and_empties_one_only_if_told_to(place):
    fs, path = place.fs, f"{place.root}/x"
    fs.touch(path)
    assert fs.info(path)["size"] == 0
    fs.append(path, b"data")
    fs.touch(path, truncate=False)
    assert fs.cat_file(path) == b"data"
    fs.touch(path)
    assert fs.cat_file(path) == b""


def test_ukey_and_checksum_change_with_every_content(place):
    fs = place.fs
    plain = place.plain("plain", b"plain")
    path = f"{place.root}/x"
    fs.pipe_file(path, b"one")
    for one in (path, plain):
        ukey, checksum = fs.ukey(one), fs.checksum(one)
        assert (fs.ukey(one), fs.checksum(one)) == (ukey, checksum)
        fs.append(one, b"more")
        assert fs.ukey(one) != ukey
        assert fs.checksum(one) != checksum
    tag = fs.info(path)["ETag"]
    fs.pipe_file(path, b"onemore")
    assert fs.info(path)["ETag"] not in (None, tag)


# -- open ----------------------------------------------------------------------------------------------------


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


def test_a_transaction_commits_all_or_nothing(place, tmp_path):
    fs, root = place.fs, place.root
    (tmp_path / "local").write_bytes(b"put")
    with fs.transaction:
        fs.pipe_file(f"{root}/piped", b"piped")
        fs.put_file(str(tmp_path / "local"), f"{root}/put")
        with fs.open(f"{root}/opened", "wb") as file:
            file.write(b"opened")
        assert place.names(path for path in fs.find(root) if path != str(tmp_path / "local")) == []
    assert (fs.cat_file(f"{root}/piped"), fs.cat_file(f"{root}/put")) == (b"piped", b"put")
    assert fs.cat_file(f"{root}/opened") == b"opened"

    def break_off():
        with fs.transaction:
            fs.pipe_file(f"{root}/piped", b"other")
            raise RuntimeError("break off")

    with pytest.raises(RuntimeError, match="break off"):
        break_off()
    assert fs.cat_file(f"{root}/piped") == b"piped"


def test_an_impossible_verb_is_not_implemented(memory):
    memory.fs.pipe_file(f"{memory.root}/x", b"")
    with pytest.raises(NotImplementedError, match="export"):
        memory.fs.sign(f"{memory.root}/x")
    with pytest.raises(NotImplementedError, match="maxdepth"):
        memory.fs.mv(f"{memory.root}/x", f"{memory.root}/y", maxdepth=1)


# -- requests ------------------------------------------------------------------------------------------------


def test_ls_of_unchanged_segments_is_one_request(s3):
    fs, root = s3.fs, s3.root
    for index in range(20):
        fs.pipe_file(f"{root}/{index:02}", b"x")
    with count_requests(fs._backend) as requests:
        assert len(fs.ls(root)) == 20
    assert requests == {"ListObjectsV2": 1}
    with count_requests(fs._backend) as requests:
        assert len(fs.find(root)) == 20
    assert requests == {"ListObjectsV2": 1}
    other = RollingFileSystem("s3", fs.storage_args[1], skip_instance_cache=True)
    other.append(f"{root}/07", b"y")
    with count_requests(fs._backend) as requests:
        assert fs.du(root) == 21
    assert requests == {"ListObjectsV2": 1, "GetObject": 1}


def test_invalidate_cache_forgets_headers(s3):
    fs, path = s3.fs, f"{s3.root}/x"
    fs.pipe_file(path, b"old")
    RollingFileSystem("s3", fs.storage_args[1], skip_instance_cache=True).pipe_file(path, b"new")
    for forget in (path, f"s3://{path}", s3.root, None):
        fs.invalidate_cache(forget)
        with count_requests(fs._backend) as requests:
            assert fs.cat_file(path) == b"new"
        assert requests == {"GetObject": 1}


# -- processes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [lambda file: file.read(), lambda file: b"".join(file.readlines())])
def test_a_file_opened_from_a_cached_header_begins_where_another_client_truncated_to(tmp_path, read):
    options = {"target_protocol": "file", "sync": False, "max_bytes": 10, "inline_bytes": 0}
    mine, other = (fsspec.filesystem("rolling", **options, header_cache_s=seconds) for seconds in (100, 0))
    path = f"{tmp_path}/x"
    other.pipe_file(path, b"0123456789" * 5)
    assert mine.cat_file(path) == b"0123456789" * 5
    other.truncate(path, 25)
    with mine.open(path) as file:
        assert read(file) == b"56789" + b"0123456789" * 2


# -- tuning --------------------------------------------------------------------------------------------------


def test_a_file_is_read_with_the_tuning_of_its_filesystem_or_its_own(seaweed, seaweed_bucket):
    tuning = {"max_concurrency": 40, "max_memory": "16MiB", "prefetch": False}
    fs = RollingFileSystem("s3", seaweed, **tuning, skip_instance_cache=True)
    assert fs._backend.requests_max == 40
    path = f"{seaweed_bucket}/{uuid.uuid4().hex}"
    fs.pipe_file(path, b"0123456789")
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
    with pytest.raises(ValueError, match="set its own requests_max"):
        RollingFileSystem(backend=MemoryBackend(), max_concurrency=8, skip_instance_cache=True)


# -- verbs that only create ------------------------------------------------------------------------------------

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
def test_a_verb_that_only_creates_refuses_to_replace_what_is_there(memory, maker, state):
    path = f"{memory.root}/x"
    STATES[state](memory, path)
    before = memory.fs.cat_file(path), memory.fs.info(path)
    with pytest.raises(FileExistsError, match="nothing was written") as caught:
        MAKERS[maker](memory, path)
    assert caught.value.filename == path
    assert (memory.fs.cat_file(path), memory.fs.info(path)) == before


@pytest.mark.parametrize("mode", ["creat", None])
def test_an_unknown_mode_is_refused_and_replaces_nothing(memory, mode):
    path = f"{memory.root}/x"
    memory.fs.pipe_file(path, b"there")
    for write in (partial(memory.fs.pipe_file, path, b"new"), partial(memory.fs.put_file, __file__, path)):
        with pytest.raises(ValueError, match=r"must be 'overwrite' or 'create'; nothing was written"):
            write(mode=mode)
    assert memory.fs.cat_file(path) == b"there"
