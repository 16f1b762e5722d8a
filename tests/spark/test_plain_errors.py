"""What Spark shows of an error: our sentence in its first lines, whichever way it comes."""

from __future__ import annotations

import importlib.util
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
from rollingfs.spark.source.plain_errors import HIDE_TRACEBACK, plainly, plainly_each
from tests.support import spark as world

SENTENCE = "/x is sealed; nothing was written"
CODE_LENGTH_BYTES = 8
"""What Spark puts before the text: a code, and the length of the text."""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be a worker of Spark."""
    spec = types.SimpleNamespace(name="pyspark.daemon")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setenv(HIDE_TRACEBACK, "")


def sent(call: Callable[[], Any]) -> str:
    """What a worker of Spark sends to the driver."""
    out = io.BytesIO()
    try:
        call()
    except Exception as error:  # noqa: BLE001 - as Spark does
        handle_worker_exception(error, out)
    return out.getvalue()[CODE_LENGTH_BYTES:].decode()


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [CorruptHeaderError(SENTENCE), PermissionError(SENTENCE)])
def test_a_worker_sends_the_sentence_of_an_error_and_no_traceback(worker, error):
    assert sent(plainly(failing(error))).removesuffix("\n").endswith(f"Error: {SENTENCE}")
    assert "Traceback" not in sent(plainly(failing(error)))


def test_a_worker_sends_the_sentence_of_a_value_that_rollingfs_refuses(worker):
    found = sent(lambda: RollingDataSource({"path": "/x", "colour": "blue"}).schema())
    assert found.startswith("ValueError: format('rolling') has no option colour;")
    assert found.count("\n") == 1


def test_a_worker_sends_the_sentence_of_an_error_in_the_midst_of_rows(worker):
    def rows() -> Iterator[int]:
        yield 1
        raise CorruptHeaderError(SENTENCE)

    assert "Traceback" not in sent(lambda: list(plainly_each(rows)()))


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("of another library"), AssertionError()])
def test_a_bug_keeps_its_traceback(worker, error):
    assert sent(plainly(failing(error))).startswith("Traceback")


def test_a_program_of_a_user_keeps_the_tracebacks_that_spark_shows(monkeypatch):
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)
    assert sent(plainly(failing(CorruptHeaderError(SENTENCE)))).startswith("Traceback")
    assert HIDE_TRACEBACK not in os.environ


def test_a_program_that_spark_did_not_start_is_no_worker():
    assert not plain_errors._is_worker()


# -- in a session ------------------------------------------------------------------------------------------------


def first_lines(call: Callable[[], Any], count: int = 2) -> str:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - the text is what is tested
        call()
    lines = [line.strip() for line in str(refused.value).splitlines()]
    return "\n".join([line for line in lines if line][:count])  # PySpark 4.0 begins with an empty line


class Ways:
    """The ways in which a session meets an error."""

    def __init__(self, spark: Any, folder: Path, fs: RollingFileSystem) -> None:
        self.spark = spark
        self.folder = folder
        fs.create(f"{folder}/sealed")
        fs.append(f"{folder}/sealed", b"x\n")
        fs.seal(f"{folder}/sealed")
        for name in ("damaged", "headless"):
            fs.create(f"{folder}/{name}", RollingPolicy(max_bytes=100, inline_bytes=10))
            fs.append(f"{folder}/{name}", b"a line\n" * 50)
        for path in folder.glob("damaged$chunks/*"):
            path.unlink()
        (folder / "headless$header").write_bytes(b"garbage")

    def read(self, name: str, **options: Any) -> Any:
        return self.spark.read.format("rolling").options(**options).load(f"{self.folder}/{name}")

    def write(self, name: str, **options: Any) -> None:
        rows = self.spark.createDataFrame([("x", "a/b")], "value string, k string")
        rows = rows if "segmentBy" in options else rows.select("value")
        rows.write.format("rolling").options(**options).mode("append").save(f"{self.folder}/{name}")

    def stream(self, source: str, target: str, **options: str) -> None:
        frame = self.spark.readStream.format("rolling").options(**options).load(f"{self.folder}/{source}")
        writer = frame.writeStream.format("rolling").trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{self.folder}/_{source} {target}").start(
            f"{self.folder}/{target}"
        )
        query.awaitTermination()


@pytest.fixture
def ways(source: Any, tmp_path: Path, fs: RollingFileSystem) -> Ways:
    world.require_java()
    return Ways(source, tmp_path, fs)


@pytest.mark.slow
def test_the_planning_of_a_batch_says_it_in_the_first_line_behind_sparks_prefix(ways):
    prefix = "[PYTHON_DATA_SOURCE_ERROR] Failed to "
    found = first_lines(lambda: ways.read("sealed", colour="blue"), 1)
    assert found.startswith(f"{prefix}create Python data source instance: ValueError: format('rolling') has no option")
    found = first_lines(lambda: ways.read("headless").count(), 1)
    assert found.startswith(f"{prefix}generate Python data source read partitions: rollingfs.errors.CorruptHeaderError")
    found = first_lines(lambda: ways.write("sealed"), 1)
    assert found.startswith(f"{prefix}initialize Python data source writer: rollingfs.errors.SegmentSealedError: ")
    assert found.endswith("nothing was written")


@pytest.mark.slow
def test_a_task_says_it_in_the_line_behind_sparks(ways):
    for call, sentence in [
        (lambda: ways.read("damaged").count(), "rollingfs.errors.CorruptChunkError: "),
        (lambda: ways.write("routed", segmentBy="k"), "value 'a/b' of column 'k' can name no segment"),
    ]:
        first, second = first_lines(call).splitlines()
        assert "An exception was thrown from the Python worker" in first
        assert sentence in second


@pytest.mark.slow
def test_a_stream_says_it_in_the_first_line_behind_sparks_prefix(ways):
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        return  # streams are not read before PySpark 4.2
    # Spark fails at the reader that it does not have, and shows our sentence before that
    assert "option endingOffsets is for batch reads" in first_lines(
        lambda: ways.stream("sealed", "out", endingOffsets="latest"), 1000
    )
    found = first_lines(lambda: ways.stream("headless", "out"), 1)
    assert found.startswith("[STREAM_FAILED] Query [id = ")
    assert "rollingfs.errors.CorruptHeaderError: 1 of 1 segments cannot be read" in found
    found = first_lines(lambda: ways.stream("sealed", "sealed"), 1)
    assert "rollingfs.errors.SegmentSealedError: " in found
    assert "nothing was written" in found
