"""Names that look like patterns, and patterns: a path is a name if something has that name, and a pattern otherwise."""

from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.support.backends import LOOKS, Scripted, private_memory
from tests.support.forks import require_name

NAMES = ["part[1].log", "50%?", "a*b", "[!x]"]
"""As patterns, none of them matches itself; the first matches ``part1.log``, which must stay."""


@pytest.fixture
def site():
    """A filesystem and an empty folder of it."""
    return RollingFileSystem(backend=private_memory(), header_cache_s=0), "/root"


@pytest.fixture(params=NAMES)
def named(request, site):
    """A segment with such a name, beside one that its name as a pattern matches."""
    fs, root = site
    fs.pipe_file(f"{root}/{request.param}", b"meant")
    fs.pipe_file(f"{root}/part1.log", b"other")
    return fs, root, f"{root}/{request.param}"


def found(fs, root):
    return {path.removeprefix(f"{root}/"): fs.cat_file(path) for path in fs.find(root)}


def test_pattern_like_name_is_removed_without_its_matches(named):
    fs, root, path = named
    fs.rm(path)
    assert found(fs, root) == {"part1.log": b"other"}


def test_pattern_like_name_is_put_and_got_exactly(named, tmp_path):
    fs, root, path = named
    name = path.rpartition("/")[2]
    require_name(name)
    here = tmp_path / "here"
    fs.get(path, f"{here}/file")
    fs.get(path, f"{here}/folder/")
    fs.get([path], f"{here}/list")
    assert {str(one.relative_to(here)) for one in here.rglob("*") if one.is_file()} == {
        "file", f"folder/{name}", f"list/{name}",
    }  # fmt: skip
    assert (here / "file").read_bytes() == b"meant"
    (here / "part1.log").write_bytes(b"not meant")
    (here / name).write_bytes(b"put")
    fs.rm(path)
    fs.put(str(here / name), f"{root}/put")
    fs.put(str(here / name), f"{root}/into/")
    fs.put([str(here / name)], f"{root}/list")
    assert found(fs, root) == {
        "part1.log": b"other", "put": b"put", f"into/{name}": b"put", f"list/{name}": b"put",
    }  # fmt: skip


def test_folder_with_name_like_pattern_goes_as_whole(site, tmp_path):
    fs, root = site
    folder = f"{root}/run[1]"
    for name in ("x", "deep/y"):
        fs.pipe_file(f"{folder}/{name}", name.encode())
    fs.pipe_file(f"{root}/run1", b"stays")
    there = {"x": b"x", "deep/y": b"deep/y"}
    fs.copy(folder, f"{root}/copy", recursive=True)
    assert found(fs, f"{root}/copy") == there
    fs.get(folder, f"{tmp_path}/got", recursive=True)
    fs.put(f"{tmp_path}/got", f"{root}/put[2]", recursive=True)
    assert found(fs, f"{root}/put[2]") == there
    fs.mv(folder, f"{root}/moved[3]")
    fs.rm([f"{root}/copy", f"{root}/put[2]", f"{root}/moved[3]"], recursive=True)
    assert found(fs, root) == {"run1": b"stays"}


def test_a_path_that_is_no_name_is_a_pattern(site, tmp_path):
    fs, root = site
    for name in ("a1", "a2", "b"):
        fs.pipe_file(f"{root}/{name}", name.encode())
    assert fs.cat(f"{root}/a[12]") == {f"{root}/a1": b"a1", f"{root}/a2": b"a2"}
    fs.copy(f"{root}/a?", f"{root}/copies")
    fs.copy(f"{root}/a[1]", f"{root}/one")
    fs.get(f"{root}/a[1]", f"{tmp_path}/got")
    fs.put(f"{tmp_path}/got/a?", f"{root}/put")
    fs.mv(f"{root}/a[2]", f"{root}/moved")
    fs.rm(f"{root}/a*")
    assert found(fs, root) == {
        "b": b"b", "copies/a1": b"a1", "copies/a2": b"a2", "one/a1": b"a1", "put/a1": b"a1", "moved/a2": b"a2",
    }  # fmt: skip


ALONE = ("rm", "cat", "expand_path")
"""Verbs that take no target."""


@pytest.mark.parametrize("verb", [*ALONE, "mv", "copy", "get", "put"])
def test_pattern_without_match_is_error_that_names_it(site, verb):
    fs, root = site
    fs.pipe_file(f"{root}/x", b"")
    target = [] if verb in ALONE else ["/nowhere/" if verb == "get" else f"{root}/there/"]
    with pytest.raises(FileNotFoundError, match="Nothing has this name or matches it") as caught:
        getattr(fs, verb)(f"{root}/none[12]*", *target)
    assert caught.value.filename.endswith(f"{root}/none[12]*")  # put makes it an absolute one
    assert list(found(fs, root)) == ["x"]


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest) -> Any:
    """A store with 60 segments, a plain file and some folders in a folder."""
    store = Scripted(private_memory(), suspends=request.param == "async")
    fs = RollingFileSystem(backend=store, skip_instance_cache=True)
    fs.pipe({f"/logs/{number:02d}.{'csv' if number < 3 else 'txt'}": b"x" for number in range(60)})
    fs.pipe({"/logs/a/deep.csv": b"deep", "/logs/b/other": b"x", "/logs/c.csv/in": b"x"})
    fs.create("/logs/gone.csv")
    fs.rm("/logs/gone.csv")
    return store


MATCHES = {
    "/logs/*.csv": ["/logs/00.csv", "/logs/01.csv", "/logs/02.csv", "/logs/c.csv"],
    "/logs/0[01]*": ["/logs/00.csv", "/logs/01.csv"],
    "/logs/?": ["/logs/a", "/logs/b"],
    "/logs/*/": ["/logs/a", "/logs/b", "/logs/c.csv"],
    "/logs/**/deep*": ["/logs/a/deep.csv"],
    "/*/*/oth*": ["/logs/b/other"],
    "/none/*": [],
    "/logs/00.csv": ["/logs/00.csv"],
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_pattern_reads_the_headers_of_what_matches(store: Any, pattern: str) -> None:
    fs = RollingFileSystem(backend=store, skip_instance_cache=True)
    store.calls.clear()
    assert fs.glob(pattern) == MATCHES[pattern]
    read = {call[1].removesuffix("$header") for call in store.calls if call[0] in LOOKS}
    files = {path for path in read if not path.endswith("$listing") and fs.isfile(path)}
    to_see_whether_folders_live = {"/logs/c.csv/in", "/logs/a/deep.csv", "/logs/b/other"}
    assert files <= {*MATCHES[pattern]} | to_see_whether_folders_live
    assert fs.glob(pattern, detail=True) == {path: fs.info(path) for path in MATCHES[pattern]}
