"""One filesystem object in many processes, forked and spawned: each is a writer of its own, and reads what is there.

How processes append, are killed and stopped is for `tests/soak`.
"""

import itertools
import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest

from tests.soak.__main__ import STORES
from tests.support.places import Folder
from tests.support.records import record, records

JOIN_S_MAX = 120
FORK_WARNING = "ignore:This process .* is multi-threaded:DeprecationWarning"


def client_of(folder: Folder) -> Any:
    """A filesystem of its own."""
    return folder.open(max_bytes="32KiB", inline_bytes="2KiB", skip_instance_cache=True)


APPENDS = 5
"""Of each child."""


def append_all(fs: Any, path: str, writer: str, log: Path, is_done: Callable[[int], bool]) -> None:
    """Append until it is done, and note the offsets."""
    with log.open("ab", buffering=0) as notes:
        for number in itertools.count():
            offset = fs.append(path, record(writer, number))
            notes.write(f"{number} {offset}\n".encode())
            if is_done(number):
                return


def append_some(fs: Any, path: str, writer: str, count: int, log: Path) -> None:
    """The main function of a child."""
    append_all(fs, path, writer, log, lambda number: number == count - 1)


def spawn(context: BaseContext, work: Callable[..., None], *args: Any) -> Any:
    process = context.Process(target=work, args=args, daemon=True)  # type: ignore[attr-defined]
    process.start()
    return process


def join(processes: list[Any]) -> None:
    for process in processes:
        process.join(JOIN_S_MAX)
        assert process.exitcode == 0


def methods(method: str) -> BaseContext:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    return multiprocessing.get_context(method)


@pytest.mark.filterwarnings(FORK_WARNING)
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_one_filesystem_is_a_writer_in_each_process(tmp_path: Path, method: str) -> None:
    """Children get a filesystem that was used before, and append beside the parent's threads."""
    arena, context = Folder("file", {}, str(tmp_path / "data" / "segment")), methods(method)
    fs, path, logs, done = client_of(arena), arena.path, tmp_path / "logs", threading.Event()
    logs.mkdir()
    fs.create(path)
    threads = [
        threading.Thread(target=append_all, args=(fs, path, name, logs / name, lambda _: done.is_set()))
        for name in ("thread-0", "thread-1")
    ]
    for thread in threads:
        thread.start()
    names = [f"child-{index}" for index in range(3)]
    try:
        # forked while the threads hold locks and have requests on their way
        join([spawn(context, append_some, fs, path, name, APPENDS, logs / name) for name in names])
    finally:
        done.set()
        for thread in threads:
            thread.join(JOIN_S_MAX)
    append_some(fs, path, "parent", 1, logs / "parent")
    lines = [(log.name, *line.split()) for log in logs.iterdir() for line in log.read_text().splitlines()]
    acks = {(writer, int(number)): int(offset) for writer, number, offset in lines}
    found = [((writer, number), offset) for offset, writer, number in records(client_of(arena).cat_file(path))]
    assert sorted(found) == sorted(acks.items()), "each is there once, where its writer was told"
    assert [sum(writer == name for writer, _ in acks) for name in names] == [APPENDS] * len(names)
    header = Path(f"{path}$header").read_bytes().split(b"\n\n")[0].decode()
    writers = {line.split()[1] for line in header.splitlines() if line.startswith("commit ")}
    assert len(writers) == len(names) + 1, "each process must be a writer of its own"


# -- a forked child of a process that used a cloud: by obstore it is told so, by gcsfs it writes ---------------


def append_once(fs: Any, path: str, log: Path) -> None:
    try:
        log.write_text(str(fs.append(path, b"child")))
    except OSError as error:
        log.write_text(f"{type(error).__name__}: {error}")


@pytest.mark.clouds
@pytest.mark.slow
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
