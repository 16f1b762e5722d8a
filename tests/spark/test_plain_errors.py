"""What Spark shows of an error: our sentence in its first lines, whichever way it comes."""

import io
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.util import handle_worker_exception

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.errors import CorruptHeaderError
from rollingfs.spark.source import plain_errors
from rollingfs.spark.source.datasource import RollingDataSource
from rollingfs.spark.source.plain_errors import HIDE_TRACEBACK, plainly
from tests.support.backends import raises
from tests.support.spark_source import QUERY, TEXT, Task, put, record_batch

SENTENCE = "/x is sealed; nothing was written"
CODE_LENGTH_BYTES = 8
"""What Spark puts before the text: a code, and the length of the text."""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be a worker of Spark."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", types.SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setenv(HIDE_TRACEBACK, "")


def sent(call: Callable[[], Any]) -> str:
    """What a worker of Spark sends to the driver."""
    out = io.BytesIO()
    try:
        call()
    except Exception as error:  # noqa: BLE001 - as Spark does
        handle_worker_exception(error, out)
    return out.getvalue()[CODE_LENGTH_BYTES:].decode()


@pytest.mark.parametrize("error", [CorruptHeaderError(SENTENCE), PermissionError(SENTENCE)])
def test_worker_sends_sentence_of_error_and_no_traceback(worker, error):
    def in_the_midst_of_rows() -> Iterator[Any]:
        with plain_errors.plain_errors():
            yield raises(error)()

    for call in (plainly(raises(error)), lambda: list(in_the_midst_of_rows())):
        found = sent(call)
        assert found.removesuffix("\n").endswith(f"Error: {SENTENCE}")
        assert "Traceback" not in found


def test_worker_sends_sentence_of_value_that_rollingfs_refuses(worker):
    found = sent(lambda: RollingDataSource({"path": "/x", "colour": "blue"}).schema())
    assert found.startswith("ValueError: format('rolling') has no option colour;")
    assert found.count("\n") == 1


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("of another library"), AssertionError()])
def test_a_bug_keeps_its_traceback(worker, error):
    assert sent(plainly(raises(error))).startswith("Traceback")


def test_program_of_user_keeps_tracebacks_that_spark_shows(monkeypatch):
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)
    assert sent(plainly(raises(CorruptHeaderError(SENTENCE)))).startswith("Traceback")
    assert HIDE_TRACEBACK not in os.environ


def test_program_that_spark_did_not_start_is_no_worker():
    assert not plain_errors._is_worker()


@pytest.fixture
def folder(fs: RollingFileSystem, tmp_path: Path) -> Path:
    """A sealed segment, one whose chunks are gone, and one whose header is damaged."""
    fs.overwrite(f"{tmp_path}/sealed", b"x\n")
    fs.seal(f"{tmp_path}/sealed")
    put(fs, f"{tmp_path}/damaged", b"a line\n" * 50, RollingPolicy(max_bytes=100, inline_bytes=10))
    for path in tmp_path.glob("damaged$chunks/*"):
        path.unlink()
    (tmp_path / "headless$header").write_bytes(b"garbage")
    return tmp_path


def test_worker_sends_the_sentence_for_any_failing_step(worker, folder, monkeypatch):
    def of(name: str) -> RollingDataSource:
        return RollingDataSource({"path": f"{folder}/{name}"})

    def write() -> None:
        with Task(0, QUERY, 1).running():
            of("sealed").streamWriter(TEXT, False).write(iter([record_batch(TEXT, ["a"])]))

    damaged = of("damaged").reader(TEXT)
    for step in (
        lambda: of("headless").reader(TEXT).partitions(),
        lambda: [list(damaged.read(part)) for part in damaged.partitions()],
        lambda: of("headless").streamReader(TEXT).initialOffset(),
        lambda: of("sealed").writer(TEXT, False),
        write,
    ):
        monkeypatch.setenv(HIDE_TRACEBACK, "")
        found = sent(step)
        assert "Error: " in found
        assert "Traceback" not in found


@pytest.mark.slow
def test_a_session_shows_the_sentence_in_its_first_lines(source, folder):
    def first_lines(name: str, count: int) -> str:
        with pytest.raises(Exception) as refused:  # noqa: PT011 - the text is what is tested
            source.read.format("rolling").load(f"{folder}/{name}").count()
        lines = [line.strip() for line in str(refused.value).splitlines()]
        return "\n".join([line for line in lines if line][:count])  # PySpark 4.0 begins with an empty line

    assert "read partitions: rollingfs.errors.CorruptHeaderError" in first_lines("headless", 1)
    assert "rollingfs.errors.CorruptChunkError: " in first_lines("damaged", 2).splitlines()[1]
