"""Names that differ in case or Unicode form only: a single segment where the disk takes them for one, else two."""

import copy
import os
import threading
import unicodedata

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.local import folders, spelling, system
from rollingfs.backend.local.spelling import Spellings
from tests.support.backends import raises
from tests.support.disks import mounted
from tests.support.schedules import beside

NFC, NFD = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


def new(**options):
    return RollingFileSystem("file", sync=False, skip_instance_cache=True, **options)


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    pytest.importorskip("mfusepy")
    with mounted("folding", tmp_path_factory.mktemp("folding")) as there:
        yield there


@pytest.fixture
def root(disk, request):
    spelling.spellings.forget()
    path = f"{disk}/{request.node.name.replace('/', '-')}"
    os.mkdir(path)
    return path


def listed(root):
    return sorted(os.listdir(root))


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("Log", "log"), (NFC, NFD), (NFD, NFC)], ids=["case", "nfc", "nfd"])
def test_another_spelling_opens_the_same_segment(root, first, second):
    one, other = (new(tiers={"cold": "memory://tier"}) for _ in range(2))
    one.pipe_file(f"{root}/{first}", b"1")
    assert one.append(f"{root}/{second}", b"2") == 1
    other.append(f"{root}/{second}", b"3" * 300_000)
    assert one.info(f"{root}/{second}")["name"] == f"{root}/{first}"
    assert one.cat_file(f"{root}/{first}") == other.cat_file(f"{root}/{second}") == b"12" + b"3" * 300_000
    other.pipe_file(f"{root}/{second}", b"4" * 300_000)  # by another file under the name of the header
    assert one.ls(root, detail=False) == [f"{root}/{first}"]
    assert listed(root) == [f"{first}$chunks", f"{first}$header"]
    other.segment(f"{root}/{second}").offload("cold")
    one.collect(f"{root}/{second}", grace=0)
    one.rm(f"{root}/{second}")
    assert not one.exists(f"{root}/{first}")
    one.pipe_file(f"{root}/{second}", b"5")
    assert one.cat_file(f"{root}/{first}") == b"5"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["segment", "plain", "folder", "tier"])
def test_a_move_changes_the_spelling(root, kind):
    fs = new(tiers={"cold": "memory://moved"})
    data = bytes(300_000)
    path, there = f"{root}/Log", f"{root}/log"
    if kind == "plain":
        with open(path, "wb") as file:
            file.write(data)
    else:
        fs.pipe_file(f"{path}/Part" if kind == "folder" else path, data)
        if kind == "tier":
            fs.segment(path).offload("cold")
    fs.mv(path, there)
    assert {name.partition("$")[0] for name in listed(root)} == {"log"}
    for reader in (fs, new(tiers={"cold": "memory://moved"})):
        assert reader.ls(root, detail=False) == [there]
        assert reader.cat_file(f"{there}/Part" if kind == "folder" else there) == data
        assert reader.cat_file(f"{path}/part" if kind == "folder" else path) == data
    fs.rm(path, recursive=True)
    fs.collect(root, recursive=True, grace=0)
    assert listed(root) == []


@pytest.mark.slow
def test_a_client_with_a_stale_spelling_keeps_the_new(root, monkeypatch):
    monkeypatch.setattr(folders, "is_local", lambda _: True)
    one = new()
    one.create(f"{root}/Log", RollingPolicy(inline_bytes=0))
    other = new().segment(f"{root}/Log")
    other.append(b"1")
    known = copy.copy(spelling.spellings)
    one.mv(f"{root}/Log", f"{root}/log")
    vars(spelling.spellings).update(vars(known))  # as in another process
    other.append(b"2")
    assert listed(root) == ["log$chunks", "log$header"]
    assert (one.cat_file(f"{root}/log"), one.info(f"{root}/Log")["name"]) == (b"12", f"{root}/log")


@pytest.mark.slow
def test_a_writer_beside_a_move_gives_no_name_back(root, monkeypatch):
    one = new()
    one.pipe_file(f"{root}/Log", b"1")
    other = new().segment(f"{root}/Log")
    writer = threading.Thread(target=other.append, args=[b"2"])

    def write(path: str, *_: str) -> None:
        if path == f"{root}/Log$header":
            writer.start()
            writer.join(0.5)

    beside(monkeypatch, system, "rename", after=write)
    one.mv(f"{root}/Log", f"{root}/log")
    writer.join()
    assert one.cat_file(f"{root}/log") == b"12"


@pytest.mark.slow
def test_what_others_refer_to_stays_after_a_move(root):
    """Their references have the old spelling, and a collection takes away what nobody refers to."""
    fs, data = new(), bytes(300_000)
    for name, there, case in (("one", "Log", "LOG"), ("two", "Dir/Log", "dir/Log")):
        fs.pipe_file(f"{root}/{there}", data)
        fs.seal(f"{root}/{there}")
        fs.create(f"{root}/{name}")
        fs.concat(f"{root}/{name}", [f"{root}/{there}"])
        fs.pipe_file(f"{root}/{there}", data)
        fs.mv(f"{root}/{there.partition('/')[0]}", f"{root}/{case.partition('/')[0]}")
        fs.collect(root, recursive=True, grace=0)
        assert new().cat_file(f"{root}/{name}") == new().cat_file(f"{root}/{there}") == data


@pytest.mark.slow
def test_nothing_is_moved_or_joined_onto_itself(root):
    fs = new()
    fs.pipe_file(f"{root}/Dir/Log", b"data")
    fs.mv(f"{root}/Dir/Log", f"{root}/dir/Log")
    fs.mv(f"{root}/dir/log", f"{root}/Dir")  # into its own folder
    fs.cp_file(f"{root}/Dir/Log", f"{root}/dir/log")
    with pytest.raises(ValueError, match=r"itself|twice|same"):
        fs.concat(f"{root}/dir/log", [f"{root}/Dir/Log"])
    assert fs.cat_file(f"{root}/dir/log") == b"data"
    with pytest.raises(FileExistsError):
        fs.create(f"{root}/DIR/LOG")
    fs.pipe_file(f"{root}/a", b"a")
    fs.mv(f"{root}/a", f"{root}/DIR/LOG")
    assert fs.find(root) == [f"{root}/Dir/Log"]
    assert fs.cat_file(f"{root}/Dir/Log") == b"a"


def test_an_exact_disk_is_asked_once_a_folder(tmp_path, monkeypatch):
    fs, root = new(), str(tmp_path)
    fs.pipe_file(f"{root}/Log", b"1")
    if os.path.lexists(f"{root}/log$header"):
        pytest.skip("this disk takes Log and log for the same name")
    fs.pipe_file(f"{root}/log", b"2")
    fs.pipe_file(f"{root}/{NFC}", b"3")
    fs.pipe_file(f"{root}/{NFD}", b"4")
    assert [fs.cat_file(f"{root}/{name}") for name in ("Log", "log", NFC, NFD)] == [b"1", b"2", b"3", b"4"]
    fs.mv(f"{root}/Log", f"{root}/log")
    assert fs.cat_file(f"{root}/log") == b"1"
    known = Spellings()
    known.settle(f"{root}/log")
    calls = []
    for name in ("lstat", "stat", "scandir", "listdir"):
        monkeypatch.setattr(os, name, calls.append)
    assert known.settle(f"{root}/LOG") == f"{root}/LOG"
    assert calls == []


@pytest.mark.skipif(os.name == "nt", reason="needs a disk that tells these names apart")
def test_a_folding_disk_is_asked_and_not_listed(tmp_path, monkeypatch):
    first, *others = (tmp_path / f"{name}$header" for name in ("Log", "log", "LOG"))
    first.touch()
    for other in (*others, *(tmp_path / path.name.swapcase() for path in (first, *others))):
        os.link(first, other)
    looks, scandir = [], os.scandir
    monkeypatch.setattr(system, "true_name", lambda path: looks.append(path) or "Log$header")
    monkeypatch.setattr(os, "scandir", lambda path: looks.append(path) or scandir(path))
    monkeypatch.setattr(os, "listdir", raises(OSError("listed")))
    known = Spellings()
    assert {known.settle(f"{tmp_path}/{name}") for name in ("LOG", "log", "LOG")} == {f"{tmp_path}/Log"}
    assert [look for look in looks if look.startswith(str(tmp_path))] == [f"{tmp_path}/", f"{tmp_path}/LOG$header"]


@pytest.mark.skipif(os.name == "nt", reason="needs a disk that tells these names apart")
def test_a_known_name_of_another_file(tmp_path, monkeypatch):
    known = Spellings()
    monkeypatch.setattr(known, "_folds", lambda folder: folder == str(tmp_path))
    (tmp_path / "Log").touch()
    os.link(tmp_path / "Log", tmp_path / "log")
    monkeypatch.setattr(system, "true_name", lambda _: "Log")
    assert known.settle(f"{tmp_path}/log") == f"{tmp_path}/Log"
    os.unlink(tmp_path / "Log")
    monkeypatch.setattr(system, "true_name", lambda _: "log")
    assert known.settle(f"{tmp_path}/log") == f"{tmp_path}/log"


def test_what_macos_keeps_of_a_header_is_no_segment(tmp_path):
    fs = new()
    fs.pipe_file(f"{tmp_path}/x", b"1")
    fs.pipe_file(f"{tmp_path}/._y", b"2")
    (tmp_path / "._x$header").write_bytes(b"\0\5\x16\7\0\2")
    assert fs.ls(str(tmp_path), detail=False) == [f"{tmp_path}/._y", f"{tmp_path}/x"]
    assert fs.collect(str(tmp_path), recursive=True, grace=0).failures == ()
