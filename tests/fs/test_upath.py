"""Paths of `universal_pathlib`: what they print, and how they join."""

import importlib.metadata
import os
import pickle
from typing import Any

import pytest

from tests.support.places import new_folder
from tests.support.servers import require_module

require_module("upath")

from upath import UPath

from rollingfs.fs.upath import ALIAS_OF, LETTERS, RollingPath


@pytest.fixture(params=["+", ""])
def plus(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["file", "memory", "s3"])
def root(request: pytest.FixtureRequest, plus: str) -> Any:
    """A folder by the alias scheme of each store; any warning is an error here."""
    folder = new_folder(request.param, request)
    return UPath(f"rolling{plus}{request.param}://{folder.path}", **folder.target)


def test_all_schemes_of_project_have_class_as_entry_point() -> None:
    found = importlib.metadata.entry_points(group="universal_pathlib.implementations")
    ours = {entry.name for entry in found if entry.value == "rollingfs.fs.upath:RollingPath"}
    specs = {entry.name for entry in importlib.metadata.entry_points(group="fsspec.specs") if "rolling" in entry.name}
    assert ours == specs == {"rolling", *ALIAS_OF.values(), *LETTERS}


def test_children_print_and_join_as_urls_of_the_file(root: Any) -> None:
    child = root / "folder" / "log.txt"
    assert isinstance(child, RollingPath)
    assert str(child) == f"{root}/folder/log.txt" == child.as_uri()
    assert str(root.joinpath("folder", "log.txt")) == str(UPath(root, "folder/log.txt")) == str(child)
    assert child.parent.parent == root
    assert (child.name, child.stem, child.suffix) == ("log.txt", "log", ".txt")
    assert str(child.with_name("other")) == f"{root}/folder/other"
    assert str(child.relative_to(root)) == "folder/log.txt"
    child.write_text("one\n")
    assert UPath(str(child), **child.storage_options).read_text() == "one\n"
    assert [str(found) for found in root.iterdir()] == [f"{root}/folder"]
    assert [str(found) for found in root.glob("**/*.txt")] == [str(child)]
    assert [found.read_text() for found in root.rglob("*.txt")] == ["one\n"]


def test_a_path_appends_renames_seals_truncates_and_is_pickled(root: Any) -> None:
    path = root / "log"
    path.write_text("one\n", newline="\n")
    with path.open("a", newline="\n") as file:
        file.write("two\n")
    assert path.stat().st_size == path.append(b"three\n", expected_offset=8) == 8
    renamed = path.rename(path.with_name("renamed"))
    assert str(renamed) == f"{root}/renamed"
    assert renamed.read_text() == "one\ntwo\nthree\n"
    assert renamed.seal() == 14
    renamed.truncate(8)
    assert renamed.read_bytes() == b"three\n"
    assert pickle.loads(pickle.dumps(renamed)) == renamed
    renamed.unlink()
    assert not renamed.exists()


def test_every_verb_of_upath_passes_options_that_filesystem_takes(root: Any) -> None:
    folder = root / "made" / "below"
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.raises(ValueError, match="umask decides"):
        (root / "private").mkdir(mode=0o700)
    file = folder / "file"
    file.touch()
    file.touch(exist_ok=True)
    file.write_bytes(b"bytes")
    assert file.open(buffering=-1, encoding="utf-8", errors="strict", newline="").read() == "bytes"
    assert file.rename(folder / "third").read_bytes() == b"bytes"
    assert (folder / "third").copy(root / "copied").read_text() == "bytes"
    assert (root / "copied").copy_into(folder).move(root / "moved").read_text() == "bytes"
    assert [path.name for path, _, _ in folder.walk()] == ["below"]
    assert (root / "moved").stat(follow_symlinks=True).st_size == 5
    (root / "moved").unlink(missing_ok=True)
    (root / "made").rmdir(recursive=True)
    assert sorted(path.name for path in root.iterdir()) == ["copied"]


def test_options_go_to_the_filesystem_and_to_children() -> None:
    path = UPath("rolling+memory:///options", header_cache_s=0, max_bytes=100)
    assert (path / "a").storage_options == {"header_cache_s": 0, "max_bytes": 100}
    assert (path / "a").fs is path.fs
    assert UPath(path / "a", inline_bytes=10).storage_options["max_bytes"] == 100


def test_chained_url_becomes_an_alias_with_place_for_children() -> None:
    chained = UPath("rolling::file:///folder", rolling={"max_bytes": 100})
    assert str(chained / "child") == f"rolling+file://{os.path.splitdrive(os.path.abspath('/'))[0]}/folder/child"
    assert chained.storage_options == {"max_bytes": 100}
    assert str(UPath("rolling::s3://bucket/folder") / "child") == "rolling+s3://bucket/folder/child"
