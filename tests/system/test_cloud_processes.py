"""A forked child of a process that used a cloud: by obstore it is told so, by gcsfs it writes."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from tests.soak.__main__ import STORES
from tests.support.places import Folder
from tests.system.test_processes import FORK_WARNING, client_of, join, spawn

pytestmark = [pytest.mark.clouds, pytest.mark.slow]


def append_once(fs: Any, path: str, log: Path) -> None:
    try:
        log.write_text(str(fs.append(path, b"child")))
    except OSError as error:
        log.write_text(f"{type(error).__name__}: {error}")


@pytest.mark.filterwarnings(FORK_WARNING)
@pytest.mark.parametrize(
    ("kind", "said", "content"), [("azurite", "spawn", b"parent"), ("fake_google", "6", b"parentchild")]
)
def test_a_forked_child_writes_or_gets_an_error(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, said: str, content: bytes
) -> None:
    (protocol, new_place, _), options = STORES[kind], request.getfixturevalue(kind)
    target = Folder(protocol, options, f"{new_place(options)}/segment")
    fs = client_of(target)
    fs.create(target.path)
    fs.append(target.path, b"parent")
    join([spawn(multiprocessing.get_context("fork"), append_once, fs, target.path, tmp_path / "said")])
    assert said in (tmp_path / "said").read_text()
    assert fs.cat_file(target.path) == content
