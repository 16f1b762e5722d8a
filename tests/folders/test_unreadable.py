"""One entry that cannot be read does not fail its whole folder: it is shown with its error."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import pytest

from rollingfs import CorruptHeaderError, RollingFileSystem, RollingPolicy
from rollingfs.format import names
from rollingfs.format.transitions import NO_GUARD
from rollingfs.segment.verbs import delete as delete_module
from rollingfs.stream.retention import RetentionPolicy
from tests.support.backends import Scripted, private_memory, raises

CORRUPT = b"rollingfs 1\nnonsense\n"
TOO_NEW = b"rollingfs 2\nwho knows\n"
LOOKS = ("read", "read_if_changed", "read_range", "list", "list_page", "is_folder")


def forbid(backend: Scripted, forbidden: str) -> None:
    """Let nobody read or list a path, nor do anything below it."""
    refuse = raises(PermissionError(errno.EACCES, "it is not for you", forbidden))
    backend.plan(LOOKS, lambda path: path.rstrip("/") == forbidden, before=refuse, times=None)
    backend.plan((), lambda path: path.startswith(f"{forbidden}/"), before=refuse, times=None)


@dataclass
class Place:
    """A filesystem, and a folder with a segment that cannot be read between two that can."""

    fs: RollingFileSystem
    said: str
    root = "/root"
    bad = "/root/b"

    def write(self, path: str, data: bytes) -> None:
        """Write a file of the store, whatever is there."""
        self.fs._bridge.run(self.fs._backend.delete([path]))
        self.fs._bridge.run(self.fs._backend.write(path, [data]))
        self.fs.invalidate_cache()

    def mend(self) -> None:
        """Put back what was there before."""
        self.write(f"{self.bad}$header", self.header)
        self.fs._backend.plans.clear()

    def spoil(self, data: bytes | None) -> Place:
        """Make the one in the middle unreadable."""
        self.header = self.fs._bridge.run(self.fs._backend.read(f"{self.bad}$header")).data
        if data is not None:
            self.write(f"{self.bad}$header", data)
        else:
            forbid(self.fs._backend, f"{self.bad}$header")
            self.fs.invalidate_cache()
        return self


SPOILED = {"corrupt": ("b$header", CORRUPT), "too new": ("too new", TOO_NEW), "forbidden": ("not for you", None)}


def spoiled(how: str) -> Place:
    fs = RollingFileSystem(backend=Scripted(private_memory()), header_cache_s=0, skip_instance_cache=True)
    for name, data in (("a", b"aaa"), ("b", b"bb"), ("c", b"c"), ("sub/d", b"dddd")):
        fs.pipe_file(f"/root/{name}", data)
    said, spoiled = SPOILED[how]
    return Place(fs, said).spoil(spoiled)


@pytest.fixture(params=SPOILED)
def place(request) -> Place:
    return spoiled(request.param)


@pytest.fixture
def corrupt() -> Place:
    return spoiled("corrupt")


def short(place, paths):
    return [path.removeprefix(place.root) for path in paths]


# -- listings ------------------------------------------------------------------------------------------------


def test_listing_shows_its_error_and_the_other_segments(place):
    fs, root = place.fs, place.root
    infos = {info["name"]: info for info in fs.ls(root)}
    assert short(place, infos) == ["/a", "/b", "/c", "/sub"]
    bad = infos[place.bad]
    assert (bad["type"], bad["size"]) == ("file", None)
    assert place.said in bad["error"]
    assert [path for path, info in infos.items() if "error" in info] == [place.bad]
    assert infos[f"{root}/a"] == fs.info(f"{root}/a")
    assert short(place, fs.ls(root, detail=False)) == ["/a", "/b", "/c", "/sub"]
    assert short(place, fs.find(root)) == ["/a", "/b", "/c", "/sub/d"]
    assert fs.find(root, detail=True)[place.bad] == bad
    assert short(place, fs.find(root, withdirs=True)) == ["", "/a", "/b", "/c", "/sub", "/sub/d"]
    assert short(place, fs.glob(f"{root}/*")) == ["/a", "/b", "/c", "/sub"]
    assert fs.glob(f"{root}/*", detail=True)[place.bad] == bad
    assert list(fs.walk(root)) == [(root, ["sub"], ["a", "b", "c"]), (f"{root}/sub", [], ["d"])]
    assert fs.isdir(root)
    assert fs.exists(root)


def test_errors_are_raised_by_whoever_asks_for_it(place):
    for verb in ("ls", "find", "du"):
        with pytest.raises((CorruptHeaderError, PermissionError), match=place.said.replace("$", r"\$")):
            getattr(place.fs, verb)(place.root, on_error="raise")
    with pytest.raises((CorruptHeaderError, PermissionError)):
        place.fs.glob(f"{place.root}/*", on_error="raise")
    with pytest.raises(ValueError, match="'raise' or 'report'"):
        place.fs.ls(place.root, on_error="omit")


def test_reading_raises_its_error_and_other_reads_do_not(place):
    fs = place.fs
    for read in (fs.cat_file, fs.open, fs.info, fs.size, fs.modified, fs.segment, fs.ukey):
        with pytest.raises((CorruptHeaderError, PermissionError)):
            read(place.bad)
    assert fs.cat_file(f"{place.root}/a") == b"aaa"
    found = fs.cat_ranges([f"{place.root}/a", place.bad], [0, 0], [None, None])
    assert found[0] == b"aaa"
    assert isinstance(found[1], CorruptHeaderError | PermissionError)


def test_du_counts_it_as_nothing_and_says_so(place, caplog):
    assert (place.fs.du(place.root), place.fs.du(place.root, total=False)[place.bad]) == (8, 0)
    said = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert len(said) == 1
    assert said.pop().startswith(f"{place.bad} counts as 0 bytes")


def test_what_is_corrupt_is_there_and_is_a_file(corrupt):
    fs = corrupt.fs
    assert fs.exists(corrupt.bad)
    assert fs.isfile(corrupt.bad)
    assert not fs.isdir(corrupt.bad)
    for infos in (fs.ls(corrupt.bad), [fs.info(corrupt.bad, on_error="report")], [fs.find(corrupt.bad, detail=True)]):
        [info] = infos
        info = info.get(corrupt.bad, info)
        assert (info["name"], info["type"], info["size"]) == (corrupt.bad, "file", None)
        assert "b$header" in info["error"]


def test_unreadable_plain_file_beside_a_tombstone_is_reported():
    backend, root = Scripted(private_memory()), "/root"
    fs = RollingFileSystem(backend=backend, header_cache_s=0, skip_instance_cache=True)
    fs._bridge.run(backend.write(f"{root}/x", [b"plain"]))
    fs.append(f"{root}/x", b"adopted")
    fs.pipe_file(f"{root}/y", b"y")
    fs.rm(f"{root}/x")
    fs._bridge.run(backend.write(f"{root}/x", [b"another"]))
    forbidden = raises(PermissionError(errno.EACCES, "it is not for you", f"{root}/x"))
    backend.plan("stat", f"{root}/x", before=forbidden, times=None)
    infos = {info["name"]: info for info in fs.ls(root)}
    assert "not for you" in infos[f"{root}/x"]["error"]
    assert infos[f"{root}/y"]["size"] == 1


def test_unlistable_folder_is_named_and_the_others_are_listed(corrupt, tmp_path):
    fs = corrupt.fs
    corrupt.mend()
    forbid(fs._backend, f"{corrupt.root}/sub")
    assert short(corrupt, fs.ls(corrupt.root, detail=False)) == ["/a", "/b", "/c", "/sub"]
    found = fs.find(corrupt.root, detail=True)
    assert found[f"{corrupt.root}/sub"]["type"] == "directory"
    assert "not for you" in found[f"{corrupt.root}/sub"]["error"]
    assert short(corrupt, found) == ["/a", "/b", "/c", "/sub"]
    with pytest.raises(PermissionError):
        fs.find(corrupt.root, on_error="raise")
    with pytest.raises(PermissionError):
        fs.ls(f"{corrupt.root}/sub")
    with pytest.raises(PermissionError, match="nothing was deleted"):
        fs.rm(corrupt.root, recursive=True, damaged=True)
    assert fs.exists(f"{corrupt.root}/a")
    for transfer, target in ((fs.copy, f"{corrupt.root}-copy"), (fs.get, str(tmp_path / "copy"))):
        with pytest.raises(PermissionError, match="nothing was copied"):
            transfer(corrupt.root, target, recursive=True)
    assert not fs.exists(f"{corrupt.root}-copy")
    assert not list(tmp_path.iterdir())


def test_a_store_that_does_not_answer_fails_the_listing(corrupt):
    """It says nothing of the entries."""
    no_answer = raises(OSError(errno.ETIMEDOUT, "no answer"))
    corrupt.fs._backend.plan(("read", "read_if_changed"), "c$header", before=no_answer, times=None)
    with pytest.raises(OSError, match="no answer"):
        corrupt.fs.ls(corrupt.root)


# -- removing and moving -------------------------------------------------------------------------------------


def test_folder_rm_and_mv_refuse_first_with_advice(place):
    fs, root = place.fs, place.root
    before = sorted(entry.path for entry in fs._bridge.run(fs._backend.list(root)).entries)
    for what, call in (
        ("nothing was deleted", lambda: fs.rm(root, recursive=True)),
        ("nothing was moved", lambda: fs.mv(root, f"{root}-moved")),
    ):
        with pytest.raises((CorruptHeaderError, PermissionError), match=what) as caught:
            call()
        assert place.said in str(caught.value)
        if isinstance(caught.value, CorruptHeaderError):
            assert "rm(path, damaged=True)" in str(caught.value)
    assert sorted(entry.path for entry in fs._bridge.run(fs._backend.list(root)).entries) == before
    assert not fs.exists(f"{root}-moved")
    assert fs.cat_file(f"{root}/a") == b"aaa"


def test_rm_of_the_corrupt_names_the_option_and_obeys(corrupt):
    fs = corrupt.fs
    with pytest.raises(CorruptHeaderError, match=r"rm\(path, damaged=True\)"):
        fs.rm(corrupt.bad)
    assert fs.exists(corrupt.bad)
    fs.rm(corrupt.bad, damaged=True)
    assert not fs.exists(corrupt.bad)
    assert short(corrupt, fs.find(corrupt.root)) == ["/a", "/c", "/sub/d"]
    fs.create(corrupt.bad)
    assert fs.append(corrupt.bad, b"again") == 0


def test_folder_rm_obeys_the_option_and_collection_cleans_up(place):
    fs, root = place.fs, place.root
    if place.said == "not for you":
        with pytest.raises(PermissionError, match="nothing was deleted"):
            fs.rm(root, recursive=True, damaged=True)
        return
    orphan = f"{names.chunks_folder(place.bad)}/{names.new_chunk_name(0)}"
    fs._bridge.run(fs._backend.write(orphan, [b"what it held"]))
    fs.rm(root, recursive=True, damaged=True)
    assert not fs.exists(root)
    assert fs._bridge.run(fs._backend.stat(orphan))
    fs.collect(root, grace=0, recursive=True)
    with pytest.raises(FileNotFoundError):
        fs._bridge.run(fs._backend.stat(orphan))


def test_plain_file_behind_the_corrupt_header_stays_hidden(corrupt):
    corrupt.write(corrupt.bad, b"adopted once")
    corrupt.fs.rm(corrupt.bad, damaged=True)
    assert not corrupt.fs.exists(corrupt.bad)


def test_mended_header_is_deleted_normally(corrupt, monkeypatch):
    fs = corrupt.fs
    inner, told = delete_module.bury, []

    async def delete(at, path, guard=NO_GUARD, seen=None):
        try:
            return await inner(at, path, guard, seen)
        except CorruptHeaderError:
            told.append(path)
            await fs._backend.delete([f"{corrupt.bad}$header"])
            await fs._backend.write(f"{corrupt.bad}$header", [corrupt.header])
            raise

    monkeypatch.setattr(delete_module, "bury", delete)
    fs.rm(corrupt.bad, damaged=True)
    assert told == [corrupt.bad]
    assert fs._bridge.run(fs._client.headers.load(corrupt.bad)).header.deleted
    assert not fs.exists(corrupt.bad)


# -- streams -------------------------------------------------------------------------------------------------


def test_stream_names_it_and_does_everything_to_others(place, caplog):
    stream = place.fs.stream(place.root)
    bad, a, c = place.bad, f"{place.root}/a", f"{place.root}/c"
    assert stream.segments() == [a, bad, c]
    infos = stream.infos()
    assert place.said in infos[bad]["error"]
    assert infos[a]["size"] == 3
    assert (stream.infos([bad, c]), stream.size()) == ({bad: infos[bad], c: infos[c]}, 4)
    cut = stream.cut()
    assert dict(cut) == {a: 3, c: 1}
    assert any(bad.rpartition("/")[2] in record.getMessage() for record in caplog.records)
    did = stream.trim(cut)
    assert (did.bytes, did.failed) == (4, {})
    with pytest.raises((CorruptHeaderError, PermissionError)):
        stream.delete()
    assert stream.segments() == [a, bad, c]


def test_a_stream_raises_by_choice(place):
    stream = place.fs.stream(place.root, on_error="raise")
    for verb in (stream.segments, stream.infos, stream.size, stream.cut, stream.delete):
        with pytest.raises((CorruptHeaderError, PermissionError)):
            verb()
    with pytest.raises(ValueError, match="'raise' or 'report'"):
        place.fs.stream(place.root, on_error="skip")


def test_recorded_trim_continues_after_the_header_is_mended(place):
    fs, stream = place.fs, place.fs.stream(place.root)
    stream.retention = RetentionPolicy.by_size(0, every=0)
    place.mend()
    cut = stream.cut()
    place.spoil(CORRUPT if place.said != "not for you" else None)
    did = stream.trim(cut)
    assert did.bytes == 4
    assert list(did.failed) == [place.bad]
    assert place.said in did.failed[place.bad] or "b$header" in did.failed[place.bad]
    retained = stream.retain()
    assert list(retained.failed) == [place.bad]
    assert place.bad not in retained.deleted
    place.mend()
    assert fs.cat_file(place.bad) == b"bb"
    assert stream.trim(cut).bytes == 2
    assert stream.retain().failed == {}


def test_retention_passes_over_a_segment_without_its_index_page(corrupt):
    fs = corrupt.fs
    corrupt.mend()
    paged = f"{corrupt.root}/paged"
    fs.create(paged, RollingPolicy(max_bytes=1, inline_bytes=0))
    fs.append(paged, b"x" * 200)
    for entry in fs._bridge.run(fs._backend.list(names.chunks_folder(paged))).entries:
        if names.INDEX_PREFIX in entry.path:
            fs._bridge.run(fs._backend.delete([entry.path]))
    fs._client.pages.after_fork()
    stream = fs.stream(corrupt.root)
    assert dict(stream.cut(at=1.0)) == {f"{corrupt.root}/{name}": 0 for name in "abc"}
    stream.retention = RetentionPolicy.by_size(0, every=0, align=b"a")  # which takes looking at what the page lists
    assert list(stream.retain().failed) == [paged]
    assert (fs.info(f"{corrupt.root}/a")["start_offset"], fs.info(paged)["size"]) == (3, 200)


# -- collection ----------------------------------------------------------------------------------------------


def test_collection_of_a_tree_goes_on_after_whatever_fails(place):
    fs, root = place.fs, place.root
    orphans = [f"{names.chunks_folder(f'{root}/{name}')}/{names.new_chunk_name(0)}" for name in ("a", "b", "sub/d")]
    for orphan in orphans:
        fs._bridge.run(fs._backend.write(orphan, [b"garbage"]))
    did = fs.collect(root, grace=0, recursive=True)
    assert [failure.path for failure in did.failures] == [place.bad]
    assert place.said in did.failures[0].reason
    assert orphans[0] in did.files
    assert orphans[2] in did.files
    assert fs._bridge.run(fs._backend.stat(orphans[1]))
    if place.said == "not for you":  # it is what was asked for
        with pytest.raises(PermissionError):
            fs.collect(place.bad, grace=0, recursive=True)
    else:
        [failure] = fs.collect(place.bad, grace=0, recursive=True).failures
        assert failure.path == place.bad


def test_tree_collection_names_an_unlistable_folder(corrupt):
    corrupt.mend()
    forbid(corrupt.fs._backend, f"{corrupt.root}/sub")
    did = corrupt.fs.collect(corrupt.root, grace=0, recursive=True)
    assert [failure.path for failure in did.failures] == [f"{corrupt.root}/sub"]
    assert {f"{corrupt.root}/{name}" for name in "abc"} <= set(did.segments)
