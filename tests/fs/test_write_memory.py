"""Many open files stay within one bound of memory, and lose nothing by it."""

import asyncio
import gc
import os
import random
import threading

import pytest

from rollingfs import RollingFileSystem, SegmentSealedError
from rollingfs.backend.local import disk
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.fs import write_buffer
from rollingfs.fs.write_file import WriteFile
from rollingfs.segment.write import budget, ingest
from tests.support.backends import fail, raises
from tests.support.schedules import beside, held_elsewhere

PART = 4096
MAX = 8 * PART


@pytest.fixture(autouse=True)
def _small(limits):
    """A bound of 32 KiB."""
    limits(budget, PART_BYTES=PART, WRITE_MEMORY_BYTES_MIN=2 * PART)
    limits(ingest, PART_BYTES=PART, PIECE_BYTES=PART, SMALL_BYTES_MAX=1024)
    limits(write_buffer, PIECE_BYTES=PART, GRAIN_BYTES=256)


@pytest.fixture
def fs(store):
    backend, top = store
    made = RollingFileSystem(backend=backend, max_write_memory=MAX)
    made.top = top
    return made


def held(fs):
    gc.collect()
    bound = fs._client.budget
    bound.share().try_take(0)  # takes note of what was let go
    return bound.used


def test_many_alternating_files_stay_within_bound_and_lose_nothing(fs, monkeypatch):
    most = []
    beside(monkeypatch, budget.Budget, "change", after=lambda bound, *_: most.append(bound.used))
    chance = random.Random(1)
    paths = [f"{fs.top}/f{nth}" for nth in range(40)]
    wanted = dict.fromkeys(paths, b"")
    files = {path: fs.open(path, "ab") for path in paths}
    for _ in range(300):
        path = chance.choice(paths)
        data = chance.randbytes(chance.choice([1, 50, 900, 3000]))
        files[path].write(data)
        wanted[path] += data
    assert MAX / 2 < max(most) <= MAX
    assert not any(fs.exists(path) for path in paths), "what is spilled is not committed"
    for file in files.values():
        file.close()
    assert {path: fs.cat_file(path) for path in paths} == wanted
    assert all(fs.segment(path).version == 1 for path in paths)
    files.clear()
    assert held(fs) == 0


def fill(fs, count=20):
    """Files that hold all that may be held."""
    files = [fs.open(f"{fs.top}/full{nth}", "ab") for nth in range(count)]
    for file in files:
        file.write(b"x" * 1400)
    return files


def break_off(file):
    with pytest.raises(ZeroDivisionError), file:
        file.write(b"y" * (1 // 0))


def fail_to_upload(file):
    with pytest.raises(OSError, match=r"broke|earlier"):
        _write_until_it_fails(file)
    file.discard()


@pytest.mark.parametrize("end", [WriteFile.close, WriteFile.discard, break_off, fail_to_upload, None])
def test_every_end_of_a_file_gives_back_its_share(fs, end):
    files = fill(fs)
    if end is fail_to_upload:
        fs._backend.plan(("write", "open_write", "upload.write"), before=fail, times=None)
    if end is None:
        with pytest.warns(ResourceWarning):
            files.clear()
    for file in files:
        end(file)
    if fs._backend.is_async:
        fs._bridge.run(asyncio.sleep(0))  # what the loop was given before is done
    files.clear()
    assert held(fs) == 0


def _write_until_it_fails(file):
    for _ in range(100):
        file.write(b"y" * 1000)


def test_ctrl_c_in_a_write_frees_its_share_only(fs, monkeypatch):
    files = fill(fs)

    new = fs.open(f"{fs.top}/new", "ab")
    with monkeypatch.context() as patched:
        patched.setattr(budget.Budget, "wait", raises(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            _write_until_it_fails(new)
    with pytest.raises(OSError, match="earlier write"):
        new.close()
    for file in files:
        file.close()
    assert fs.cat_file(files[0].path) == b"x" * 1400
    del new, file
    files.clear()
    assert held(fs) == 0


def test_unspillable_file_fails_only_for_its_own_writer(fs, caplog):
    files = fill(fs, 4)
    files[0].write(b"x" * 2000)  # the largest
    fs.create(files[0].path)
    fs.seal(files[0].path)
    new = [fs.open(f"{fs.top}/new{nth}", "ab") for nth in range(12)]
    for file in new:
        file.write(b"z" * 2000)
    assert "could not be uploaded" in caplog.text
    for file in new + files[1:]:
        file.close()
    assert fs.cat_file(new[0].path) == b"z" * 2000
    with pytest.raises(OSError, match="earlier write") as told:
        files[0].close()
    assert isinstance(told.value.__cause__, SegmentSealedError)


def test_flush_of_an_unspilled_file_does_not_commit(fs):
    file = fs.open(f"{fs.top}/flushed", "ab", commit_on="flush")
    file.write(b"x" * 2000)  # the largest
    fs._backend.plan(("write", "open_write", "upload.write"), before=fail, times=1)
    others = fill(fs)
    for end in (file.flush, file.close):
        with pytest.raises(OSError, match="earlier write"):
            end()
    for other in others:
        other.close()
    assert not fs.exists(file.path)


def test_released_file_stays_open_while_its_bytes_are_written(tmp_path, monkeypatch):
    """The number of its descriptor could be that of another file by then, which would get the bytes."""
    fs = RollingFileSystem(backend=LocalBackend(sync=False), max_write_memory=MAX)
    files = [fs.open(f"{tmp_path}/largest", "ab")]
    files[0].write(b"L" * 3000)
    other, inner, opened = tmp_path / "other", disk.write_all, []

    def let_go():
        with pytest.warns(ResourceWarning):
            files.clear()
        opened.append(os.open(other, os.O_CREAT | os.O_RDWR))

    def write_all(descriptor, data):
        if not opened and bytes(data[0]).startswith(b"L"):
            thread = threading.Thread(target=let_go)
            thread.start()
            thread.join()
        return inner(descriptor, data)

    monkeypatch.setattr(disk, "write_all", write_all)
    fs.top = str(tmp_path)
    for file in fill(fs):
        file.close()
    os.close(opened[0])
    assert other.read_bytes() == b""
    assert list((tmp_path / "largest$chunks").glob("0*")) == [], "its bytes are nobody's"


def test_a_text_file_that_dies_waits_for_nobody(fs):
    """Garbage collection may come to a thread for which the holder of the lock waits."""
    file = fs.open(f"{fs.top}/text", "at")
    file.write("never committed")
    with held_elsewhere(file._file._buffer.lock) as holder:
        with pytest.warns(ResourceWarning):
            del file
        assert holder.is_alive()
