"""Files that commit while they are written: when they do, and what readers see."""

import threading
from functools import partial
from unittest import mock

import fsspec
import pytest

from rollingfs import RollingFileSystem
from rollingfs.fs import write_file
from rollingfs.fs.write_buffer import CommitOn, parse_commit_on
from tests.support.backends import private_memory, raises
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.schedules import eventually, held_elsewhere

PATH = "logs/app"


@pytest.fixture
def fs():
    options = {"skip_instance_cache": True, "header_cache_s": 0, "commit_timeout_s": 1}
    return RollingFileSystem(backend=private_memory(), **options)


def seen(fs):
    """What a reader sees now."""
    return fs.cat_file(PATH) if fs.exists(PATH) else None


# -- what users may ask for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *(("flush", CommitOn(flush=True)), (4096, CommitOn(bytes_min=4096)), ("64KiB", CommitOn(bytes_min=65536))),
        *(("line", CommitOn(lines_min=1)), ("100 lines", CommitOn(lines_min=100))),
        *(("5s", CommitOn(seconds=5.0)), ("2min", CommitOn(seconds=120.0))),
        (("flush", "1MiB", "10 lines", "0.5s"), CommitOn(True, 2**20, 10, 0.5)),
        (("line", "1 line"), CommitOn(lines_min=1)),
    ],
    ids=str,
)
def test_what_commit_on_means(given, meant):
    assert parse_commit_on(given) == meant


@pytest.mark.parametrize(
    ("given", "error"),
    [
        *((text, ValueError) for text in ("", "5", "often", 0, -1, "0 lines", "0s", (), ("1s", "2s"))),
        *((what, TypeError) for what in (True, 1.5, 5.0, b"flush", (None,), [5.0])),
    ],
    ids=str,
)
def test_invalid_commit_on_is_refused_before_anything_is_opened(fs, given, error):
    with pytest.raises(error, match="give 'flush', a number of bytes" if error is TypeError else None):
        fs.open(PATH, "ab", commit_on=given)
    assert seen(fs) is None


def test_commit_on_is_for_files_with_stepwise_commits(fs):
    fs.pipe_file(PATH, b"old")
    with pytest.raises(ValueError, match="commit_on"):
        fs.open(PATH, "rb", commit_on="flush")
    with pytest.raises(ValueError, match="compressed"):
        fs.open(PATH, "ab", compression="gzip", commit_on="flush")
    with pytest.raises(ValueError, match="transaction"), fs.transaction:
        fs.open(PATH, "ab", commit_on="flush")
    assert seen(fs) == b"old"


# -- when a file commits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ab", "wb", "xb"])
def test_flush_commits_what_is_written_and_nothing_twice(fs, mode):
    with fs.open(PATH, mode, commit_on="flush") as file:
        file.write(b"one")
        before = seen(fs)
        file.flush()
        assert (before, seen(fs)) == (None, b"one")
        version = fs.info(PATH)["version"]
        file.flush()
        assert fs.info(PATH)["version"] == version, "there was nothing to commit"
        file.write(b"two")
    assert seen(fs) == b"onetwo"


def test_bytes_and_lines_count_from_the_last_commit(fs):
    with fs.open(PATH, "ab", commit_on=("10B", "3 lines")) as file:
        file.write(b"12345")
        assert seen(fs) is None
        file.write(b"67890x")
        assert seen(fs) == b"1234567890x"
        file.write(b"a\nb\n")
        assert seen(fs) == b"1234567890x"
        file.write(b"\n")
        assert seen(fs) == b"1234567890xa\nb\n\n"


def test_text_is_committed_line_by_line(fs):
    with fs.open(PATH, "a", commit_on="line", newline="\n") as file:
        file.write("é")
        assert seen(fs) is None
        print("!", file=file)
        assert seen(fs) == "é!\n".encode()
        file.write("rest")
    assert seen(fs) == "é!\nrest".encode()


def test_time_counts_from_oldest_byte_and_one_timer_runs(fs):
    file = fs.open(PATH, "ab", commit_on="1h")
    file.write(b"x")
    before = threading.active_count()
    for _ in range(99):
        file.write(b"x")
    assert threading.active_count() == before
    file.close()
    file._buffer.restart()
    assert seen(fs) == b"x" * 100


# -- failures ----------------------------------------------------------------------------------------------


def test_failed_timed_commit_is_raised_by_the_next_write(fs, caplog):
    fs.create(PATH)
    file = fs.open(PATH, "ab", commit_on="0.02s")
    with mock.patch.object(write_file, "append", side_effect=OSError("the store is full")):
        file.write(b"one")
        eventually(lambda: "takes no more bytes" in caplog.text)
    with pytest.raises(OSError, match="earlier write or commit") as raised:
        file.write(b"two")
    assert "the store is full" in str(raised.value.__cause__)
    with pytest.raises(OSError, match="earlier"):
        file.close()
    assert seen(fs) == b""


def test_exception_within_fsspec_open_commits_nothing_by_its_flush(tmp_path, monkeypatch):
    url = f"rolling::file://{tmp_path}/log"
    opened = fsspec.open(url, "a")
    with_flush = partial(RollingFileSystem.open, opened.fs, commit_on="flush")
    monkeypatch.setattr(opened.fs, "open", with_flush)  # fsspec has no way to give options of `open`

    def write():
        with opened as file:
            file.write("one")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert not opened.fs.exists(f"{tmp_path}/log")


@pytest.mark.parametrize("mode", ["ab", "a"])
def test_released_file_ends_its_timer_and_commits_nothing(fs, mode):
    file = fs.open(PATH, mode, commit_on=("1h", "flush"))
    file.write("lost" if mode == "a" else b"lost")
    timer = (file._file if mode == "a" else file)._buffer._timer
    with pytest.warns(ResourceWarning, match="4 bytes"):
        del file
    assert seen(fs) is None
    timer.cancel()


@needs_fork
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_does_not_wait_for_absent_threads_locks(fs):
    file = fs.open(PATH, "ab", commit_on="1h")
    file.write(b"one")

    def is_refused():
        with pytest.raises(ValueError, match="another process"):
            file.write(b"two")
        return True

    with held_elsewhere(file._buffer.lock):
        assert is_so_in_child(is_refused)
    file.close()
    assert seen(fs) == b"one"


def test_writers_and_the_timer_lose_and_double_nothing(fs):
    with fs.open(PATH, "ab", commit_on=("0.001s", "64B")) as file:
        for number in range(2000):
            file.write(b"%d\n" % number)
    assert seen(fs) == b"".join(b"%d\n" % number for number in range(2000))


def test_timer_that_cannot_start_breaks_the_file_before_rewrites(fs, monkeypatch):
    file = fs.open(PATH, "ab", commit_on="1h")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", raises(RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="start new thread"):
            file.write(b"once")
    with pytest.raises(OSError, match="earlier write"):
        file.write(b"once")  # the first is in the buffer already
    file.discard()
    assert not seen(fs)
