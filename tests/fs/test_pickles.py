"""What release 0.1.0 pickled can still be read: receipts wait in queues while their readers are upgraded."""

from __future__ import annotations

import importlib.metadata
import pickle
from pathlib import Path
from typing import Any

import pytest

import rollingfs

FOLDER = Path(__file__).parents[1] / "fixtures" / "pickles" / "v0.1.0"


def _load(name: str) -> Any:
    return pickle.loads((FOLDER / f"{name}.pickle").read_bytes())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("AppendOutcomeUnknown", "AppendOutcomeUnknown"),
        ("CorruptChunkError", "CorruptChunkError"),
        ("collected", "Collected"),
        ("filesystem", "RollingFileSystem"),
        ("policy", "RollingPolicy"),
        ("retention", "RetentionPolicy"),
        ("staged", "Staged"),
        ("stream_cut", "StreamCut"),
    ],
)
def test_an_old_pickle_is_read_as_the_public_class_of_today(name: str, kind: str) -> None:
    assert type(_load(name)) is getattr(rollingfs, kind)


def test_an_old_receipt_says_what_was_staged() -> None:
    receipt = _load("staged")
    assert (receipt.path, receipt.size) == ("/logs/a", len(b"staged bytes"))


def test_an_old_file_opens_where_it_was() -> None:
    fs = _load("filesystem")
    fs.pipe_file("/logs/a", b"hello")
    with _load("file_rb") as file:
        assert file.read() == b"hello"


def test_every_pickle_is_tested() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {
        *("AppendOutcomeUnknown", "CorruptChunkError", "collected", "file_rb", "filesystem"),
        *("policy", "retention", "staged", "stream_cut"),
    }


def test_the_old_name_of_the_module_that_entry_points_named_still_works() -> None:
    from rollingfs.filesystem import RollingFileSystem  # type: ignore[import-not-found]

    assert RollingFileSystem is rollingfs.RollingFileSystem


def test_a_handle_and_a_stream_go_on_where_they_are_unpickled(tmp_path: Path) -> None:
    fs = rollingfs.RollingFileSystem("file")
    fs.create(f"{tmp_path}/a")
    handle = fs.segment(f"{tmp_path}/a")
    handle.append(b"one")
    copy = pickle.loads(pickle.dumps(handle))
    assert (copy.length, copy.append(b"two", expected_offset=3)) == (3, 3)
    held = pickle.loads(pickle.dumps(handle.acquire("me")))
    held.append(b"!")
    with pytest.raises(rollingfs.FencedError):
        fs.append(f"{tmp_path}/a", b"?")
    held.release()
    fs.rm(f"{tmp_path}/a")
    fs.create(f"{tmp_path}/a")
    with pytest.raises(FileNotFoundError):
        copy.append(b"to another incarnation")
    stream = pickle.loads(pickle.dumps(fs.stream(str(tmp_path), on_error="raise")))
    assert (stream.path, stream.size()) == (str(tmp_path), 0)


def test_the_version_is_that_of_the_distribution() -> None:
    assert rollingfs.__version__ == importlib.metadata.version("rollingfs")
