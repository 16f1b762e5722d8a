"""`append --commit-on`: whole lines, each once, while the pipe goes on."""

import errno
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.cli import piped
from rollingfs.cli.piped import Pipe
from rollingfs.cli.session import Stop
from rollingfs.errors import RollingError, UnsafeBackendError
from rollingfs.fs.core import core
from rollingfs.fs.write_buffer import CommitOn, parse_commit_on
from rollingfs.ship import sender
from tests.support.backends import Scripted, private_memory, raises
from tests.support.cli import failed
from tests.support.forks import needs_signals

LINES = [b"line %d\n" % number for number in range(5)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piped, "LOOK_S", 0.01)
    monkeypatch.setattr(sender, "RETRY_S_MIN", 0.01)


def piping(fs: RollingFileSystem, when: CommitOn, data: bytes, **options: Any) -> Pipe:
    """A pipe that has these bytes, and then ends."""
    read, write = os.pipe()
    threading.Thread(target=lambda: (os.write(write, data), os.close(write)), daemon=True).start()
    pipe = Pipe(core(fs), "/log", read, when, options.pop("stamps", False), options.pop("stop", Stop()))
    pipe.bind(create=True)
    return pipe


@pytest.mark.parametrize("when", ["line", "1B", "5s", "8 lines"])
@pytest.mark.parametrize("rest", [b"", b"no end"])
def test_all_bytes_are_there_once_and_in_order(when: str, rest: bytes) -> None:
    fs = RollingFileSystem(backend=private_memory())
    pipe = piping(fs, parse_commit_on(when), b"".join(LINES) + rest)
    pipe.run()
    assert fs.cat_file("/log") == b"".join(LINES) + rest
    assert pipe.written == len(b"".join(LINES) + rest)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("times", [1, 3])
def test_failing_store_is_waited_for_without_repeated_lines(after: bool, times: int) -> None:
    store = Scripted(private_memory())
    fs = RollingFileSystem(backend=store, commit_timeout_s=0.01)
    pipe = piping(fs, parse_commit_on("line"), b"".join(LINES))
    away = raises(OSError("the store is away"))
    plan = store.plan(("extend", "replace"), times=times, **{"after" if after else "before": away})
    pipe.run()
    assert fs.cat_file("/log") == b"".join(LINES)
    assert after or not plan.times


def test_unwritten_data_is_an_error_once_the_user_stops() -> None:
    store = Scripted(private_memory())
    fs = RollingFileSystem(backend=store, commit_timeout_s=0.01)
    stop = Stop()
    pipe = piping(fs, parse_commit_on("line"), b"".join(LINES), stop=stop)

    def fail() -> None:
        stop.is_wanted = True
        raise OSError("the store is away")

    store.plan(("extend", "replace"), times=None, before=fail)
    with pytest.raises(RollingError, match="0 bytes are written; it is unknown whether the next 35 bytes are written"):
        pipe.run()
    store.plans.clear()
    assert fs.cat_file("/log") == b""


def test_segment_that_is_sealed_ends_pipe_with_error() -> None:
    fs = RollingFileSystem(backend=private_memory())
    pipe = piping(fs, parse_commit_on("line"), b"".join(LINES))
    fs.seal("/log")
    with pytest.raises(RollingError, match=r"35 bytes are not written: .*sealed"):
        pipe.run()


def test_a_store_that_cannot_append_ends_the_pipe() -> None:
    store = Scripted(private_memory())
    pipe = piping(RollingFileSystem(backend=store), parse_commit_on("line"), b"".join(LINES))
    store.plan(("extend", "replace"), times=None, before=raises(OSError(errno.EOPNOTSUPP, "not on this store")))
    with pytest.raises(RollingError, match="not on this store"):
        pipe.run()


def test_an_error_that_no_repetition_mends_ends_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Stop()
    pipe = piping(RollingFileSystem(backend=private_memory()), parse_commit_on("5s"), b"".join(LINES), stop=stop)
    tries: list[bytes] = []

    async def refuse(client: Any, path: str, data: bytes, **options: Any) -> None:
        tries.append(data)
        stop.is_wanted = len(tries) > 2
        raise UnsafeBackendError("this store lets two win")

    monkeypatch.setattr(piped, "append", refuse)
    with pytest.raises(RollingError, match="35 bytes are not written: this store lets two win"):
        pipe.run()
    assert len(tries) == 1


def test_a_line_without_its_end_waits_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Silent(queue.Queue[bytes | OSError]):
        def get(self, block: bool = True, timeout: float | None = None) -> bytes | OSError:
            if timeout is not None:
                waits.append(timeout)
                pipe.stop.is_wanted = len(waits) > 5
            raise queue.Empty

    pipe = piping(RollingFileSystem(backend=private_memory()), CommitOn(seconds=0.001), b"")
    pipe._waiting += b"no end"
    monkeypatch.setattr(piped, "queue", SimpleNamespace(Queue=Silent, Empty=queue.Empty))
    pipe.run()
    assert set(waits) == {piped.LOOK_S}


def test_a_pipe_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = piping(RollingFileSystem(backend=private_memory()), CommitOn(seconds=1), b"")
    monkeypatch.setattr(piped, "os", SimpleNamespace(read=raises(OSError(5, "injected"))))
    with pytest.raises(OSError, match="injected"):
        pipe.run()


def test_many_other_writers_make_no_append_unknown() -> None:
    fs = RollingFileSystem(backend=private_memory())
    pipe = piping(fs, parse_commit_on("8B"), b"".join(LINES))
    fs.append("/log", b"", attrs={"append-writers": "7"})
    pipe.run()
    assert fs.cat_file("/log") == b"".join(LINES)


def test_each_line_gets_a_time() -> None:
    fs = RollingFileSystem(backend=private_memory())
    piping(fs, parse_commit_on("5s"), b"a\r\nb\x0bc\n\nd", stamps=True).run()
    stamped = fs.cat_file("/log").split(b"\n")
    assert [line[len("2026-11-28T12:00:00.000Z ") :] for line in stamped] == [b"a\r", b"b\x0bc", b"", b"d"]


@pytest.mark.parametrize(
    "options",
    [["--timestamps"], ["--commit-on", "flush"], ["--commit-on", "x"], ["--commit-on", "5s", "--expected-offset", "0"]],
)
def test_options_that_do_not_fit_are_refused(options: list[str], tmp_path: Path) -> None:
    failed("append", *options, tmp_path / "log", stdin=b"data", code=2)
    assert not (tmp_path / "log$header").exists()


@needs_signals
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_commits_the_rest(tmp_path: Path, number: signal.Signals) -> None:
    fs, path = RollingFileSystem("file"), f"{tmp_path}/log"
    command = [sys.executable, "-m", "rollingfs.cli", "append", "--commit-on", "line", path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntw")
        process.stdin.flush()
        while not fs.exists(path) or fs.cat_file(path) != b"one\n":
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(30) == 0
    assert fs.cat_file(path) == b"one\ntw"
