"""`RollingHandler`: what it writes, when, what it loses and says, in threads, children and ends of processes."""

import errno
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from itertools import chain, repeat
from unittest.mock import DEFAULT, Mock

import pytest

import rollingfs.logging
from rollingfs import RollingFileSystem
from rollingfs.logging import RollingHandler
from tests.support.backends import Scripted, fail, private_memory, raises
from tests.support.examples import slowly
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.schedules import HELD_S_MAX, beside, eventually, in_threads
from tests.support.servers import new_bucket, require_module

PATH = "logs/app"
HEADER = "$header"
ALWAYS = 10_000
"""More failures than a test meets."""
SOON_S = 120
"""What must not take long takes less than half of it, on any machine."""


@pytest.fixture
def backend():
    return Scripted(private_memory())


@pytest.fixture
def fs(backend):
    return RollingFileSystem(backend=backend, skip_instance_cache=True, header_cache_s=0, commit_timeout_s=1)


@pytest.fixture
def make(fs, request):
    def make(**options):
        handler = RollingHandler(PATH, fs=fs, **options)
        request.addfinalizer(handler.close)
        logger = logging.Logger(request.node.name, logging.DEBUG)
        logger.addHandler(handler)
        return handler, logger

    return make


def lines(fs, path=PATH):
    return fs.cat_file(path).decode().splitlines() if fs.exists(path) else []


def failing(fs, monkeypatch, *errors):
    """Let an append fail with each of these errors, and those after them do what they do; returns the appends."""
    appends = Mock(wraps=fs.append, side_effect=chain(errors, repeat(DEFAULT)))
    monkeypatch.setattr(fs, "append", appends)
    return appends


def ended(program, *words):
    """What a program has written to standard error, which must end well."""
    command = [sys.executable, "-W", "ignore", "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stderr


def test_records_are_there_after_flush_in_few_commits(fs, make):
    handler, logger = make(interval="1h")
    for number in range(500):
        logger.info("record %d", number)
    assert lines(fs) == []
    handler.flush()
    assert lines(fs) == [f"record {number}" for number in range(500)]
    assert fs.info(PATH)["version"] <= 3
    assert handler.lost == 0


def test_full_queue_loses_the_newest_and_logs_the_count(fs, make):
    handler, logger = make(interval="1h", queue_bytes=30)
    for number in range(10):
        logger.info("record %d", number)  # 9 bytes each
    assert handler.lost == 7
    handler.flush()
    logger.info("x" * 100)  # the queue is empty: it takes even what is larger
    handler.flush()
    found = lines(fs)
    assert found[:3] == ["record 0", "record 1", "record 2"]
    assert found[3].startswith("7 log records before this line were lost")
    assert found[4:] == ["x" * 100]


def test_emit_waits_for_room_only_as_long_as_told(fs, make, backend):
    fs.create(PATH)
    handler, logger = make(interval="1h", queue_bytes=10, block_s=SOON_S)
    logger.info("12345678")
    logger.info("90123456")  # waits until the first is committed, which it hurries
    handler.flush()
    assert lines(fs) == ["12345678", "90123456"]
    release = threading.Event()
    backend.plan("replace", HEADER, before=lambda: release.wait(SOON_S))
    handler.block_s = 0.05
    logger.info("12345678")
    began = time.monotonic()
    logger.info("lost")
    assert time.monotonic() - began < SOON_S / 2
    assert handler.lost == 1
    release.set()


def test_records_survive_errors_and_are_written_once(fs, make, backend, monkeypatch):
    monkeypatch.setattr("rollingfs.logging.RETRY_S_MAX", 0.02)
    appends = failing(fs, monkeypatch, OSError("no store"), ValueError("b"), MemoryError("a"))
    fs.create(PATH)
    handler, logger = make(interval=0.01)
    for number in range(20):
        logger.info("%d", number)
        time.sleep(0.002)
    eventually(lambda: len(lines(fs)) == 20)
    assert lines(fs) == [str(number) for number in range(20)]
    assert handler.lost == 0
    assert appends.call_count > 3


def test_commit_of_unknown_outcome_is_not_repeated_and_counted(fs, make, backend, capsys):
    fs.create(PATH)
    handler, logger = make(interval="1h", close_s=5)
    backend.plan(("replace", "read", "read_if_changed"), HEADER, before=fail, times=None)
    logger.info("one")
    handler.flush()
    backend.plans.clear()
    assert handler.unknown == 1
    logger.info("two")
    handler.close()
    assert lines(fs) == ["two"]
    assert "unknown whether 1 log record was written: " in capsys.readouterr().err


def test_unwritten_records_at_exit_are_reported_on_stderr(fs, make, monkeypatch, capsys):
    failing(fs, monkeypatch, *[OSError("no store")] * ALWAYS)
    handler, logger = make(interval="1h", close_s=0.1)
    logger.info("one")
    handler.close()
    assert handler.lost + handler.unknown == 1
    assert "no store" in capsys.readouterr().err
    handler.close_s = SOON_S
    began_s = time.monotonic()
    handler.flush()  # as `logging.shutdown` does once more
    assert time.monotonic() - began_s < SOON_S / 2


@pytest.mark.parametrize("store", ["file", *slowly("s3")])
def test_handlers_own_commits_do_not_log_endlessly(tmp_path, request, caplog, store):
    """Debug records of rollingfs itself, on the thread of the handler and on the event loop."""
    path, options = f"{tmp_path}/log", {}
    if store == "s3":
        require_module("s3fs")
        options = request.getfixturevalue("moto")
        path = f"{new_bucket(options)}/log"
    handler = RollingHandler(f"rolling::{store}://{path}", storage_options={store: options}, interval=0.01)
    request.addfinalizer(lambda: logging.root.removeHandler(handler))
    logging.root.addHandler(handler)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("test").info("one")
    handler.flush()
    time.sleep(0.2)  # time for the debug records of this commit to cause further commits
    handler.flush()
    logging.root.removeHandler(handler)
    handler.close()
    found = lines(handler.fs, path)
    assert found == ["one"] if store == "file" else "one" in found
    assert not [line for line in found if "PutObject" in line or "commit" in line]


def test_a_record_that_cannot_be_formatted_stops_nothing(fs, make, monkeypatch, capsys):
    handler, logger = make(interval="1h")
    logger.info("%d", "no number")
    logger.info("fine \udcff")
    handler.flush()
    assert lines(fs) == ["fine \\udcff"]
    assert "no number" in capsys.readouterr().err


def test_threads_lose_and_double_nothing(fs, make):
    handler, logger = make(interval=0.001)
    in_threads(*(lambda name=name: [logger.info("%d.%d", name, number) for number in range(200)] for name in range(8)))
    handler.flush()
    found = lines(fs)
    assert sorted(found) == sorted(f"{name}.{number}" for name in range(8) for number in range(200))
    for name in range(8):
        mine = [line for line in found if line.startswith(f"{name}.")]
        assert mine == [f"{name}.{number}" for number in range(200)]


OUT_OF_RANGE = [{"interval": -1}, {"queue_bytes": 0}, {"block_s": -1}, {"close_s": float("nan")}]


@pytest.mark.parametrize("options", OUT_OF_RANGE, ids=str)
def test_numbers_out_of_range_are_refused(fs, options):
    with pytest.raises(ValueError, match="it must be at least"):
        RollingHandler(PATH, fs=fs, **options)


def test_a_url_of_another_filesystem_is_refused(tmp_path):
    with pytest.raises(ValueError, match="rolling::"):
        RollingHandler(f"file://{tmp_path}/log")


# -- what must not stop the handler or the program ---------------------------------------------------------


def test_formatter_with_program_fields_does_not_end_the_handler(fs, make):
    handler, logger = make(interval="1h", queue_bytes=30)
    handler.setFormatter(logging.Formatter("%(request)s %(message)s"))
    for text in ("a" * 20, "lost" * 5):
        logger.info(text, extra={"request": 7})
    handler.flush()
    logger.info("after", extra={"request": 8})
    handler.flush()
    first, notice, last = lines(fs)
    assert (first, last) == ("7 " + "a" * 20, "8 after")
    assert notice.startswith("1 log records before this line were lost")


def test_logging_commit_does_not_wait_for_waiting_emits(fs, make, monkeypatch):
    handler, logger = make(interval="1h", queue_bytes=30, block_s=SOON_S)
    beside(monkeypatch, fs, "append", lambda *_, **__: logger.debug("a record of the commit's own"))
    logger.info("a" * 20)
    logger.info("b" * 20)
    assert handler.lost == 0
    handler.acquire()  # as `logging.shutdown` does
    try:
        handler.flush()
    finally:
        handler.release()
    assert lines(fs) == ["a" * 20, "b" * 20]


def test_thread_that_cannot_start_loses_nothing(fs, make, monkeypatch):
    handler, logger = make(interval="1h")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", raises(RuntimeError("can't start new thread")))
        logger.info("one")
        handler.flush()
        assert lines(fs) == ["one"]
        logger.info("two")
    logger.info("three")
    handler.flush()
    assert lines(fs) == ["one", "two", "three"]


def test_flush_does_not_wait_for_later_records(fs, make, monkeypatch):
    handler, logger = make(interval="1h", close_s=SOON_S)
    more = iter(range(3))

    def log_more(*_, **__):  # while the handler commits, the program logs
        for number in more:
            in_threads(lambda number=number: logger.info("more %d", number))

    beside(monkeypatch, fs, "append", after=log_more)
    logger.info("first")
    began_s = time.monotonic()
    handler.flush()
    assert time.monotonic() - began_s < SOON_S / 2
    assert lines(fs) == ["first"]


ENDS = """
import atexit, logging, json, os, sys, threading
from rollingfs.logging import RollingHandler

logger = logging.getLogger("app")
how, url, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


def late():
    threading.main_thread().join()
    logger.warning("hi")


if how == "atexit before":
    atexit.register(logger.warning, "hi")
handler = RollingHandler(url, storage_options=options, interval="1h")
logger.addHandler(handler)
if how.endswith("after a flush"):
    logger.warning("one")
    handler.flush()
if how == "atexit after":
    atexit.register(logger.warning, "hi")
if how == "thread":
    threading.Thread(target=late).start()
if how.startswith("main"):
    logger.warning("hi")
if how.startswith("fork"):
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    logger.warning("hi")
"""


HOWS = ["main", "fork, after a flush", "atexit after"]
HOWS += slowly("main, after a flush", "fork", "thread", "atexit before")


@pytest.mark.parametrize("how", HOWS)
def test_program_with_one_request_writes_its_log_to_s3(moto, how):
    require_module("s3fs")
    bucket = new_bucket(moto)
    assert ended(ENDS, how, f"rolling::s3://{bucket}/log", json.dumps({"s3": moto})) == ""
    expected = ["one", "hi"] if how.endswith("after a flush") else ["hi"]
    assert lines(RollingFileSystem("s3", moto), f"{bucket}/log") == expected


@needs_fork
def test_threads_of_a_child_begin_its_queue_once(fs, make, monkeypatch):
    handler, logger = make(interval=0.01)
    real, threads = rollingfs.logging.core, []

    def core(of):
        if not threads:  # within the begin of the first thread
            threads.append(threading.Thread(target=logger.info, args=("two",)))
            threads[0].start()
            threads[0].join(0.2)
        return real(of)

    def has_both():
        signal.alarm(SOON_S)
        monkeypatch.setattr(rollingfs.logging, "core", core)
        logger.info("one")
        threads[0].join()
        handler.close()
        return sorted(lines(fs)) == ["one", "two"]

    assert is_so_in_child(has_both)


@pytest.mark.parametrize(("refusal", "why"), [(None, "is sealed"), (errno.ENOTSUP, "nothing was committed")])
def test_finally_refused_records_are_lost_and_reported_immediately(fs, make, monkeypatch, capsys, refusal, why):
    fs.create(PATH)
    fs.append(PATH, b"before\n")
    fs.seal(PATH)
    if refusal:
        failing(fs, monkeypatch, OSError(refusal, why))
    handler, logger = make(interval="1h")
    logger.info("one")
    logger.info("two")
    handler.flush()
    assert (handler.lost, handler.unknown) == (2, 0)
    handler.close()
    told = capsys.readouterr().err
    assert told.startswith(f"/{PATH}: 2 log records were not written: ")
    assert why in told
    assert lines(fs) == ["before"]


def test_what_is_logged_after_the_last_close_is_reported(tmp_path):
    program = f"""
import atexit
atexit.register(lambda: logging.getLogger("app").warning("late"))
import logging
from rollingfs.logging import RollingHandler
logging.getLogger("app").addHandler(RollingHandler("rolling::file://{tmp_path}/app"))
logging.getLogger("app").warning("early")
"""
    said = ended(program)
    assert lines(RollingFileSystem("file"), f"{tmp_path}/app") == ["early"]
    assert said == f"{tmp_path}/app: 1 log record was not written: the handler was closed\n"


CONFIGURED = """
import configparser, json, logging.config, sys

how, url, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
given = {"url": url, "storage_options": options, "interval": "1h"}
loggers = {"app": {"handlers": ["app"]}}
for number in range(3):
    if how == "fileConfig":
        file = configparser.RawConfigParser()
        file["loggers"], file["handlers"], file["formatters"] = {"keys": "root,app"}, {"keys": "app"}, {"keys": ""}
        file["logger_root"] = {"handlers": ""}
        file["logger_app"] = {"qualname": "app", "handlers": "app"}
        file["handler_app"] = {"class": "rollingfs.logging.RollingHandler", "kwargs": repr(given)}
        logging.config.fileConfig(file)
    else:
        handlers = {"app": {how: "rollingfs.logging.RollingHandler", **given}}
        logging.config.dictConfig({"version": 1, "handlers": handlers, "loggers": loggers})
    logging.getLogger("app").warning("%d", number)
logging.basicConfig(force=True)
"""


@pytest.mark.parametrize("how", ["class", *slowly("()", "fileConfig")])
def test_configuration_finds_the_handler_without_waiting_for_commits(moto, how):
    require_module("s3fs")
    bucket = new_bucket(moto)
    assert ended(CONFIGURED, how, f"rolling::s3://{bucket}/log", json.dumps({"s3": moto})) == ""
    assert sorted(lines(RollingFileSystem("s3", moto), f"{bucket}/log")) == ["0", "1", "2"]


def test_close_under_lock_of_logging_leaves_commit_to_thread(fs, make, monkeypatch):
    handler, logger = make(interval="1h", close_s=HELD_S_MAX)
    beside(monkeypatch, fs, "append", lambda *_, **__: logging._lock.acquire() and logging._lock.release())
    logger.info("one")
    began_s = time.monotonic()
    with logging._lock:  # as `dictConfig` and `basicConfig(force=True)`
        handler.flush()
        handler.close()
        assert lines(fs) == []
    assert time.monotonic() - began_s < HELD_S_MAX / 2
    eventually(lambda: lines(fs) == ["one"])
    assert (handler.lost, handler.unknown) == (0, 0)
    logger.info("late")
    assert handler.lost == 1


def test_what_handler_closed_under_lock_cannot_write_is_told(fs, make, monkeypatch, capsys):
    failing(fs, monkeypatch, *[OSError("no store")] * ALWAYS)
    handler, logger = make(interval="1h", close_s=0.1)
    logger.info("one")
    with logging._lock:
        handler.close()
    eventually(lambda: handler.lost)
    handler._thread.join(SOON_S)
    assert f"{PATH}: 1 log record was not written: no store\n" in capsys.readouterr().err


def test_wait_under_loggings_lock_lets_the_loop_log(request):
    """A `StreamHandler` of a file over S3, which `dictConfig` flushes, waited for ever."""
    backend = Scripted(private_memory(), suspends=True)
    fs = RollingFileSystem(backend=backend, skip_instance_cache=True)
    fs.create(PATH)
    logger = logging.getLogger(request.node.name)
    seen = []
    backend.plan("replace", HEADER, before=lambda: seen.append(logging.DEBUG in logger._cache))
    with logging._lock:
        fs.append(PATH, b"one\n")
    assert seen == [True]


def test_flush_under_the_handlers_lock_stops_no_others(make):
    handler, logger = make(interval="1h")
    handler.acquire()  # as `logging.shutdown` does
    try:
        in_threads(lambda: logger.info("on the store's event loop"))
    finally:
        handler.release()
    assert handler._queued == 1


TERMINATED = """
import logging, os, signal, sys, time
from rollingfs.logging import RollingHandler

how, url = sys.argv[1:]


def own(*_):
    print("own", flush=True)
    sys.exit(7)


def beside(append):
    def appends(path, data):
        if how == "held":
            with logging._lock:  # which the main thread holds when the signal comes
                pass
        return append(path, data)

    return appends


if how in ("own", "ignored"):
    signal.signal(signal.SIGTERM, own if how == "own" else signal.SIG_IGN)
handler = RollingHandler(url, interval="1h", close_s=20)
handler.fs.append = beside(handler.fs.append)
logger = logging.getLogger("app")
logger.addHandler(handler)
if how == "own, later":
    signal.signal(signal.SIGTERM, own)
if how == "given back":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
if how == "forked" and (child := os.fork()):
    sys.exit(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
logger.warning("hi")
with logging._lock:
    os.kill(os.getpid(), signal.SIGTERM)
    while how == "held" and logger.isEnabledFor(10) is None:
        pass
if how == "ignored":
    sys.exit()
while True:
    time.sleep(3600)
"""
ENDS_BY = {
    "system": (-15, ["hi"]),
    "held": (-15, ["hi"]),
    "forked": (15, ["hi"]),
    "own": (7, ["hi"]),
    "own, later": (7, ["hi"]),
    "ignored": (0, ["hi"]),
    "given back": (-15, []),
}
"""The status with which a program ends that gets SIGTERM, and its log."""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("how", ENDS_BY)
def test_program_ended_by_sigterm_writes_its_log(tmp_path, how):
    status, expected = ENDS_BY[how]
    command = [sys.executable, "-W", "ignore", "-c", TERMINATED, how, f"rolling::file://{tmp_path}/app"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert lines(RollingFileSystem("file"), f"{tmp_path}/app") == expected


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_what_cannot_be_written_at_sigterm_is_told(tmp_path):
    path = f"{tmp_path}/app"
    RollingFileSystem("file").create(path)
    program = TERMINATED.replace("return append(path, data)", 'raise OSError("no store")').replace("=20", "=0.1")
    command = [sys.executable, "-W", "ignore", "-c", program, "system", f"rolling::file://{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -15
    assert f"{path}: 1 log record was not written: no store\n" in done.stderr


POOL = """
import logging, multiprocessing, sys
from rollingfs.logging import RollingHandler

method, url = sys.argv[1:]
context = multiprocessing.get_context(method)


def begin():
    logging.getLogger("app").addHandler(RollingHandler(url, interval="1h"))


def work(number):
    logging.getLogger("app").warning("%d", number)


if __name__ == "__main__":
    if method == "fork":
        begin()
    with context.Pool(2, None if method == "fork" else begin) as pool:
        pool.map(work, range(100))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_pool_children_write_their_logs_despite_sigterm(tmp_path, method):
    (tmp_path / "program.py").write_text(POOL)
    command = [sys.executable, "-W", "ignore", tmp_path / "program.py", method, f"rolling::file://{tmp_path}/app"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr == ""
    assert sorted(map(int, lines(RollingFileSystem("file"), f"{tmp_path}/app"))) == list(range(100))
