"""Listings and folders, moves and copies as users of fsspec see them, over memory, the local disk and S3."""

import errno
import io
import os
from functools import partial

import pytest

from rollingfs import RollingPolicy
from rollingfs.fs import cat_and_get

# -- listings ------------------------------------------------------------------------------------------------


def test_listings_show_exactly_segments_plain_files_and_folders(place):
    fs, root = place.fs, place.root
    fs.create(f"{root}/b", RollingPolicy(max_bytes=2, inline_bytes=0))
    fs.append(f"{root}/b", b"rolled into chunks")
    place.plain("a", b"plain")
    place.file("c/inner")
    fs.rm(place.file("gone"))
    infos, wanted = fs.ls(root), [("/a", 5, "file"), ("/b", 18, "file"), ("/c", 0, "directory")]
    assert [(info["name"].removeprefix(root), info["size"], info["type"]) for info in infos] == wanted
    assert [fs.info(info["name"]) for info in infos] == infos
    assert (
        place.names(fs.ls(root, detail=False, refresh=True)) == place.names(fs.glob(f"{root}/*")) == ["/a", "/b", "/c"]
    )
    assert place.found() == ["/a", "/b", "/c/inner"]
    assert place.found(withdirs=True) == ["", "/a", "/b", "/c", "/c/inner"]
    assert place.found(maxdepth=1, withdirs=True) == ["", "/a", "/b", "/c"]
    assert place.names(fs.glob(f"{root}/**/inn*")) == ["/c/inner"]
    assert list(fs.walk(root)) == [(root, ["c"], ["a", "b"]), (f"{root}/c", [], ["inner"])]
    assert fs.du(root) == 24
    assert fs.du(root, total=False) == {f"{root}/a": 5, f"{root}/b": 18, f"{root}/c/inner": 1}


def test_ls_of_file_is_file_and_of_nothing_error(place):
    fs, nothing = place.fs, f"{place.root}/nothing"
    for path in (place.plain("plain"), place.file("segment")):
        assert fs.ls(path, detail=False) == [path]
    with pytest.raises(FileNotFoundError):
        fs.ls(nothing)
    assert (fs.find(nothing), fs.exists(nothing), fs.isfile(nothing), fs.isdir(nothing)) == ([], False, False, False)


def test_a_segment_wins_over_a_folder_of_its_name(place):
    fs, root = place.fs, place.root
    both, inner = place.file("both"), place.file("both/inner")
    assert [(info["name"], info["type"]) for info in (fs.info(both), *fs.ls(root))] == [(both, "file")] * 2
    assert (fs.isfile(both), fs.isdir(both)) == (True, False)
    assert fs.ls(both, detail=False) == fs.find(root) == [both]
    fs.rm(root, recursive=True)
    assert (fs.exists(inner), fs.exists(root)) == (False, False)


def test_a_plain_file_that_was_adopted_is_shown_once(place):
    path = place.plain("log", b"plain")
    assert place.fs.append(path, b" and more") == 5
    assert [(info["name"], info["size"]) for info in place.fs.ls(place.root)] == [(path, 14)]
    place.fs.rm(path)
    assert not place.fs.exists(path)
    assert place.found() == []


def test_an_empty_header_file_is_no_segment(place):
    path = place.plain("x$header", b"").removesuffix("$header")
    place.plain("y")
    assert place.found() == ["/y"]
    assert not place.fs.exists(path)
    place.fs.create(path)
    assert place.fs.info(path)["size"] == 0


RESERVED = ["x$header", "x$chunks", "x$chunks/y", "folder/$removed"]


OTHER_LETTERS = ["x$HEADER", "x$Chunks", "x$Chunks/lock", "folder/$REMOVED", "folder/$LISTING", "folder/$Stream"]


@pytest.mark.parametrize("name", [*RESERVED, *OTHER_LETTERS, "folder/$listing"])
def test_reserved_names_are_refused_to_writers(memory, name):
    fs, path, other = memory.fs, f"{memory.root}/{name}", memory.plain("other")
    makers = [
        *(partial(verb, path) for verb in (fs.create, fs.touch, fs.seal, fs.collect, fs.mkdir)),
        *(partial(verb, path, b"") for verb in (fs.append, fs.overwrite, fs.stage, fs.pipe_file)),
        *(partial(verb, other, path) for verb in (fs.mv, fs.cp_file, fs.export)),
        *(partial(fs.open, path, mode) for mode in ("ab", "wb")),
        *(partial(fs.truncate, path, 0), partial(fs.concat, path, [])),
    ]
    for make in makers:
        with pytest.raises(ValueError, match=r"is not a segment name|the name is reserved|not a name for a segment"):
            make()
    assert memory.found() == ["/other"]


@pytest.mark.parametrize("name", RESERVED)
def test_what_has_a_reserved_name_is_missing_to_readers(memory, name):
    fs, path = memory.fs, memory.plain(name, b"not a header")
    readers = [fs.info, fs.cat_file, fs.ls, fs.open, fs.segment, fs.rm, fs.rm_file, fs.ukey]
    for read in [*readers, lambda path: fs.mv(path, f"{memory.root}/target")]:
        with pytest.raises(FileNotFoundError):
            read(path)
    assert (fs.exists(path), fs.isdir(path)) == (False, False)
    assert fs._bridge.run(fs._backend.read(path)).data == b"not a header"


# -- folders -------------------------------------------------------------------------------------------------


def test_a_folder_with_nothing_but_tombstones(place):
    fs, folder, other = place.fs, f"{place.root}/folder", place.file("other")
    fs.rm(place.file("folder/x"))
    stays = not fs._client.backend.capability.removes_whole
    assert (f"{folder}/x$header" in place.backend_files(folder)) is stays
    if place.has_folders:
        assert fs.isdir(folder)
        assert fs.ls(folder) == []
        fs.rmdir(folder)
    assert not fs.exists(folder)
    assert fs.ls(place.root, detail=False) == [other]
    assert place.found(withdirs=True) == ["", "/other"]
    for call in (fs.ls, fs.rmdir, fs.rm):
        with pytest.raises(FileNotFoundError):
            call(folder)
    assert not stays or f"{folder}/x$header" in place.backend_files(folder)
    if place.has_folders:
        fs.mkdir(folder)
        assert (fs.ls(folder), fs.ls(place.root, detail=False)) == ([], [folder, other])


def test_mkdir_refuses_existing_folders_and_makedirs_may_accept_them(place):
    fs, root = place.fs, place.root
    for path in (place.file("folder/segment"), f"{root}/folder", place.plain("plain")):
        for make in (fs.mkdir, fs.makedirs):
            with pytest.raises(FileExistsError):
                make(path)
    fs.makedirs(f"{root}/folder", exist_ok=True)
    fs.makedirs(f"{root}/new/deep", exist_ok=True)
    assert fs.exists(f"{root}/new/deep") is place.has_folders
    if place.has_folders:
        with pytest.raises(FileNotFoundError):
            fs.mkdir(f"{root}/missing/folder", create_parents=False)
        assert fs.ls(f"{root}/new", detail=False) == [f"{root}/new/deep"]


def test_rmdir_refuses_a_folder_that_is_not_empty(place):
    path = place.file("folder/x")
    with pytest.raises(OSError, match="not empty") as caught:
        place.fs.rmdir(f"{place.root}/folder")
    assert caught.value.errno == errno.ENOTEMPTY
    with pytest.raises(NotADirectoryError):
        place.fs.rmdir(path)


def test_rm_of_one_several_patterns_and_trees(place):
    fs, root = place.fs, place.root
    for name in ("a1", "a2", "b", "folder/x", "folder/deep/y"):
        place.file(name)
    place.plain("folder/plain")
    for verb, name, error in (
        (fs.rm, "folder", IsADirectoryError),
        (fs.rm, "missing", FileNotFoundError),
        (fs.rm_file, "folder", FileNotFoundError),
    ):
        with pytest.raises(error):
            verb(f"{root}/{name}")
    fs.rm(f"{root}/a*")
    assert place.found() == ["/b", "/folder/deep/y", "/folder/plain", "/folder/x"]
    fs.rm(f"{root}/folder", recursive=True, maxdepth=1)
    assert place.found() == ["/b", "/folder/deep/y"]
    fs.rm([f"{root}/b", f"{root}/folder", f"{root}/folder/deep/y"], recursive=True)
    assert place.found() == []
    assert not fs.exists(f"{root}/folder")


# -- moving and copying --------------------------------------------------------------------------------------


def test_mv_of_folders_into_folders_and_over_them(place):
    fs, root = place.fs, place.root
    place.file("source/x")
    place.file("source/deep/y")
    place.plain("source/plain")
    fs.mv(f"{root}/source", f"{root}/moved", recursive=True)
    assert place.found() == ["/moved/deep/y", "/moved/plain", "/moved/x"]
    assert not fs.exists(f"{root}/source")
    place.file("folder/z")
    fs.mv(f"{root}/moved", f"{root}/folder")
    assert place.found() == [f"/folder/{name}" for name in ("moved/deep/y", "moved/plain", "moved/x", "z")]
    fs.mv(f"{root}/folder/moved/", f"{root}/folder")
    assert place.found() == ["/folder/deep/y", "/folder/plain", "/folder/x", "/folder/z"]
    fs.mv([f"{root}/folder/x", f"{root}/folder/z"], f"{root}/several")
    fs.mv(f"{root}/folder/pl*", f"{root}/several/")
    assert place.found() == ["/folder/deep/y", "/several/plain", "/several/x", "/several/z"]
    fs.mv([f"{root}/several/x"], [f"{root}/one"])
    fs.mv(f"{root}/one", f"{root}/one")
    assert fs.cat_file(f"{root}/one") == b"x"
    with pytest.raises(ValueError, match="into itself"):
        fs.mv(f"{root}/folder", f"{root}/folder/deep/er")
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{root}/missing", f"{root}/target")


def test_cp_copies_what_is_retained_piece_by_piece(place, monkeypatch):
    fs, source, target = place.fs, f"{place.root}/source", f"{place.root}/folder/target"
    monkeypatch.setattr(cat_and_get, "PIECE_BYTES", 1000)
    data = os.urandom(2500)
    fs.create(source, RollingPolicy(max_bytes=700, inline_bytes=0))
    fs.append(source, data)
    fs.truncate(source, 300)
    fs.copy(source, target)
    assert (fs.cat_file(target), fs.info(target)["start_offset"]) == (data[300:], 0)
    fs.cp_file(source, source)
    assert fs.info(source)["start_offset"] == 300


def test_put_and_get_take_folders_truncations_and_open_files(place, tmp_path):
    fs, root = place.fs, place.root
    local = tmp_path / "on disk"
    local.mkdir()
    (local / "x").write_bytes(b"x" * 2500)
    fs.put_file(str(local), f"{root}/folder")
    assert fs.exists(f"{root}/folder") is place.has_folders
    fs.put_file(str(local / "x"), f"{root}/put")
    fs.truncate(f"{root}/put", 500)
    into = io.BytesIO()
    for target in (into, f"{tmp_path}/new/got"):
        fs.get_file(f"{root}/put", target)
    assert (tmp_path / "new" / "got").read_bytes() == into.getvalue() == b"x" * 2000
