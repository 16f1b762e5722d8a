"""What release 0.1.0 pickled can still be read: receipts wait in queues while their readers are upgraded."""

from __future__ import annotations

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
