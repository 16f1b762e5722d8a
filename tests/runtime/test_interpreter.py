"""The end of a program, also one that reads Parquet, pauses of garbage collection, and forks beside imports."""

import gc
import importlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from rollingfs.runtime.interpreter import collected_later
from tests.support.examples import examples, nightly
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.schedules import eventually, held_elsewhere
from tests.support.servers import require_module

RUNS = examples(50)
READS = """
import sys
import pyarrow.parquet as pq
from rollingfs import RollingFileSystem
fs = RollingFileSystem(sys.argv[1])
if sys.argv[1] == "memory":
    fs.put_file(sys.argv[2], "/x.parquet")
path = "/x.parquet" if sys.argv[1] == "memory" else sys.argv[2]
print(pq.read_table(path, filesystem=fs).num_rows)
"""
LATE = """
import asyncio, threading
from rollingfs.runtime import interpreter
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

class Caller:
    def main_ends(self):
        interpreter.without_executors(loop)

caller = Caller()
interpreter.at_end(caller)

def late():
    threading.main_thread().join()
    call = asyncio.run_coroutine_threadsafe(asyncio.to_thread(lambda: "here"), loop)
    print(call.result(60), interpreter.main_has_ended(), flush=True)

threading.Thread(target=late).start()
"""

AFTER_THE_END = """
import os
from rollingfs import RollingFileSystem
from tests.support.backends import Scripted, private_memory

fs = RollingFileSystem(backend=Scripted(private_memory(), suspends=True))
fs.pipe_file("/x", b"bytes")

def say(call, write=os.write):
    try:
        write(1, repr(call()).encode())
    except RuntimeError as error:
        write(1, str(error)[:16].encode())

class Held:
    def __del__(self, say=say, fs=fs):
        for call in (lambda: fs.cat_file("/x"), lambda: fs.append("/x", b"more"), lambda: fs.glob("/*")):
            say(call)

def reads(say=say, fs=fs):
    try:
        yield
    finally:
        say(lambda: fs.ls("/"))

held, reading = Held(), reads()
next(reading)
"""
FIRST_AT_EXIT = """
import asyncio, atexit, threading, time, weakref
from rollingfs.runtime import interpreter

def first():
    from rollingfs.backend.objects.obstore_files import watched
    loop = asyncio.new_event_loop()
    future = watched(loop.create_future())
    gone = weakref.ref(future)
    held = [future]
    threading.Timer(0.2, held.clear).start()
    del future
    assert gone() is not None
    interpreter.settle()
    print(gone() is None)

atexit.register(first)
"""


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", ["memory", *nightly("file")])
def test_reading_parquet_keeps_the_exit_code(store: str, tmp_path: Path) -> None:
    require_module("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    columns = {f"c{number}": [number * row * 0.1 for row in range(50_000)] for number in range(6)}
    pq.write_table(pa.table(columns), path, row_group_size=10_000)
    command = [sys.executable, "-c", READS, store, str(path)]
    ended = Counter(subprocess.run(command, capture_output=True, timeout=300).returncode for _ in range(RUNS))
    assert ended == {0: RUNS}


def test_a_loop_outlives_the_main_thread() -> None:
    ended = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "here True\n", "")


def test_a_call_at_exit_waits_for_obstore() -> None:
    require_module("obstore")
    ended = subprocess.run([sys.executable, "-c", FIRST_AT_EXIT], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")


def test_a_verb_after_the_interpreter_fails() -> None:
    command = [sys.executable, "-c", AFTER_THE_END]
    root = str(Path(__file__).parents[2])
    ended = subprocess.run(command, capture_output=True, timeout=300, check=True, text=True, cwd=root)
    assert ended.stdout == 4 * "the program ends"


@pytest.mark.parametrize("is_on", [True, False])
def test_collection_pauses_inside_and_resumes_after(is_on):
    if not is_on:
        gc.disable()  # as a user may have done
    try:
        with collected_later():
            assert not gc.isenabled()
            with collected_later():
                pass
            assert not gc.isenabled()
        assert gc.isenabled() == is_on
        with pytest.raises(ZeroDivisionError), collected_later():
            _ = 1 / 0
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


def test_the_last_of_several_threads_turns_it_on():
    with held_elsewhere(collected_later()):
        with collected_later():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@needs_fork
def test_a_forked_child_collects_again():
    def is_on_outside_alone() -> bool:
        is_on = gc.isenabled()
        with collected_later():
            return is_on and not gc.isenabled()

    with held_elsewhere(collected_later()):
        assert is_so_in_child(lambda: is_on_outside_alone() and gc.isenabled())


FIRST_USES = """
import faulthandler, os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import fsspec, rollingfs

rollingfs.runtime.system.IMPORTS_S_MAX = int(sys.argv[3])
begun = threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[2]:
            begun.set()
            time.sleep(0.3)

sys.meta_path.insert(0, Slow())
options = {"key": "a", "secret": "b", "endpoint_url": "http://127.0.0.1:9"}
opened = lambda: fsspec.filesystem("rolling", target_protocol="s3", target_options=options)
thread = threading.Thread(target=opened)
thread.start()
begun.wait()
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(60, exit=True)  # a child that waits for its parent's lock waits for ever
    os._exit(0 if opened() is not None else 1)
thread.join()
print(os.waitpid(child, 0)[1])
"""


@needs_fork
@pytest.mark.parametrize("module", ["rollingfs.fs.filesystem", "s3fs", "fsspec.asyn", "rollingfs.runtime.interpreter"])
@pytest.mark.parametrize("wait_s", [5, 0])
def test_a_child_can_import_what_a_thread_began(module: str, wait_s: int) -> None:
    require_module("s3fs")
    command = [sys.executable, "-c", FIRST_USES, str(Path(__file__).parents[2]), module, str(wait_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("0\n", "")


@needs_fork
def test_a_fork_waits_for_imports_of_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rollingfs_slow.py").write_text("import time\ntime.sleep(0.2)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def is_imported() -> bool:
        signal.alarm(10)  # a child that waits for its parent's lock waits for ever
        return importlib.import_module("rollingfs_slow") is not None

    importing = threading.Thread(target=importlib.import_module, args=("rollingfs_slow",))
    importing.start()
    eventually(lambda: "rollingfs_slow" in sys.modules)
    assert is_so_in_child(is_imported)
    importing.join()
