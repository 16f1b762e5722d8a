"""Small files that a disk writes in place: who reads beside the writer has one content whole, or none."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from rollingfs.backend.local import disk
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.local.disk import TOKEN_HEAD_BYTES
from rollingfs.format.names import ASK_PREFIX
from rollingfs.testing import run

SIZES = (20_000, 1, TOKEN_HEAD_BYTES, 300, 70_000, TOKEN_HEAD_BYTES + 1)
BACKEND = LocalBackend()


@pytest.fixture
def ask(tmp_path: Path) -> str:
    return f"{tmp_path}/log$chunks/{ASK_PREFIX}w"


def content(number: int) -> bytes:
    return b"%08d" % number * (SIZES[number % len(SIZES)] // 8 + 1)


def put(path: str, number: int) -> None:
    run(BACKEND, BACKEND.put(path, content(number)))


def test_a_put_takes_the_place_of_the_content_before_in_the_same_file(ask: str) -> None:
    tokens, inodes = set(), set()
    for number in range(2 * len(SIZES)):
        put(ask, number)
        blob = run(BACKEND, BACKEND.read(ask))
        assert blob.data == content(number)
        assert blob.modified > time.time() - 60
        tokens.add(blob.token)
        inodes.add(os.stat(ask).st_ino)
        assert run(BACKEND, BACKEND.read_if_changed(ask, blob.token)) is None
    assert len(tokens) == 2 * len(SIZES)
    assert len(inodes) == 1
    assert os.listdir(os.path.dirname(ask)) == [f"{ASK_PREFIX}w"], "no temporary file is left"


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("number", range(len(SIZES)))
def test_a_writer_that_dies_in_the_middle_leaves_the_old_content_or_none(
    ask: str, steps: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(ask, 0)
    done = []

    def dies(descriptor: int, data: bytes, start: int) -> None:
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(start)
        write_at(descriptor, data, start)

    write_at = disk._write_at
    monkeypatch.setattr(disk, "_write_at", dies)
    with pytest.raises(KeyboardInterrupt):
        put(ask, number)
    if steps == 0:
        assert run(BACKEND, BACKEND.read(ask)).data == content(0)
    else:
        with pytest.raises(OSError, match="being written"):
            run(BACKEND, BACKEND.read(ask))
    monkeypatch.undo()
    put(ask, number)
    assert run(BACKEND, BACKEND.read(ask)).data == content(number)


def test_a_reader_that_is_overtaken_reads_nothing(ask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(ask, 0)
    token = run(BACKEND, BACKEND.read(ask)).token
    put(ask, 4)
    read = disk.read_exactly

    def overtaken(descriptor: int, start: int, end: int) -> bytes:
        data = read(descriptor, start, end)
        if end > TOKEN_HEAD_BYTES:
            put(ask, 10)  # as long as number 4
        return data

    monkeypatch.setattr(disk, "read_exactly", overtaken)
    for reading in (BACKEND.read(ask), BACKEND.read_if_changed(ask, token)):
        put(ask, 4)
        with pytest.raises(OSError, match="being written"):
            run(BACKEND, reading)


def test_no_reader_beside_a_writer_has_parts_of_two_contents(ask: str) -> None:
    put(ask, 0)
    is_over = threading.Event()

    def write() -> None:
        for number in range(1, 600):
            put(ask, number)
        is_over.set()

    writer = threading.Thread(target=write)
    writer.start()
    last = 0
    try:
        while not is_over.is_set():
            try:
                data = run(BACKEND, BACKEND.read(ask)).data
            except OSError:
                continue
            number = int(bytes(data[:8]))
            assert bytes(data) == content(number)
            assert number >= last
            last = number
    finally:
        writer.join()
    assert run(BACKEND, BACKEND.read(ask)).data == content(599)
