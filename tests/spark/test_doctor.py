"""The sentences of `doctor` on workers. Its job runs in another Python, with the bytes that Spark sends."""

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import py4j.protocol
import pyspark
import pytest
from pyspark.cloudpickle import dumps

from rollingfs.spark.session import _python
from tests.support.backends import raises

WORKER = """
import pickle, sys
sys.path.append(sys.argv[1])
function = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps(function(0)))
"""


def spark_of(collect: Callable[[Any], list[Any]]) -> Any:
    """A session whose workers call `collect` with each function."""
    rdd = SimpleNamespace(map=lambda function: SimpleNamespace(collect=lambda: collect(function)))
    return SimpleNamespace(sparkContext=SimpleNamespace(parallelize=lambda values, count: rdd))


@pytest.fixture
def bare(tmp_path: Path) -> Any:
    """A session whose workers have no package but what Spark brings."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    shutil.copytree(Path(pyspark.__file__).parent / "cloudpickle", tmp_path / "pyspark" / "cloudpickle")

    def collect(function: Any) -> list[Any]:
        command = [sys.executable, "-I", "-S", "-c", WORKER, str(tmp_path)]
        done = subprocess.run(command, input=dumps(function), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return [pickle.loads(done.stdout)]

    return spark_of(collect)


def test_missing_packages_of_workers_are_named_with_remedy(bare):
    found = list(_python(bare))
    assert [sentence.split(" is not installed for ")[0] for sentence in found] == ["rollingfs", "pyarrow"]
    assert all("pip install 'rollingfs[spark]'" in sentence for sentence in found)
    assert all("bin/python" in sentence and "PYSPARK_PYTHON" in sentence for sentence in found)


def test_equal_workers_lack_nothing_others_show_versions():
    assert list(_python(spark_of(lambda function: [function(0)]))) == []
    old = {"Python": "2.7.1", "rollingfs": "0.0.1"}
    [python, package] = _python(spark_of(lambda function: [function(0) | old]))
    assert "Python is 2.7.1 on the workers" in python
    assert "PYSPARK_PYTHON" in python
    assert "rollingfs is 0.0.1 on the workers" in package


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "org.apache.spark.SparkException: Job aborted: PythonException: Traceback (most recent call last):\n"
            '  File "worker.py", line 1, in main\n    check()\nPySparkRuntimeError: [PYTHON_VERSION_MISMATCH] 3.9\n\n'
            "\tat org.apache.spark.api\n\nDriver stacktrace:\n",
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] 3.9",
        ),
        ('java.io.IOException: Cannot run program "python9": error=2\n\tat java', "Cannot run program"),
    ],
)
def test_failed_job_names_its_cause_and_setting(monkeypatch, text, why):
    class FailedError(Exception):
        java_exception = text

    monkeypatch.setattr(py4j.protocol, "Py4JJavaError", FailedError)
    [sentence] = _python(spark_of(raises(FailedError())))
    assert why in sentence
    assert "PYSPARK_PYTHON" in sentence
