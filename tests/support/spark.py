"""What the tests with Spark share: a session, the data source without one, places where segments lie, the JVM."""

import contextlib
import importlib.util
import io
import os
import re
import shutil
import struct
import subprocess
import sys
import warnings
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fastcrc.crc32 import iscsi

from rollingfs.policy import RollingPolicy
from rollingfs.runtime.bridge import Bridge
from rollingfs.segment.at import At
from rollingfs.segment.verbs.create import create
from rollingfs.segment.verbs.truncate import truncate
from tests.support.schedules import eventually
from tests.support.segment_verbs import append
from tests.support.servers import cache_dir, require, required

T = TypeVar("T")

JAVA_TESTS = Path(__file__).parents[1] / "spark" / "java"
ROOT = Path(__file__).parents[2]
LOOPBACK = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
JVM_S_MAX = 120
FETCH_S_MAX = 600
PROGRAM_S_MAX = 900
READY_S_MAX = 120
SMALL = RollingPolicy(max_bytes=100, inline_bytes=60)
"""Records straddle its chunks, and there is a tail."""


def require_java() -> None:
    """Skip, or fail, where there is no JDK or no PySpark."""
    if shutil.which("javac") is None:
        require("there is no JDK on the PATH")
    if importlib.util.find_spec("pyspark") is None:
        require("pyspark is not installed")


def fetched(artifact: str) -> Path:
    """A jar of Maven Central by its coordinates, which Maven fetches once; without it, the test is skipped or fails."""
    _, name, version, *more = artifact.split(":")
    target = cache_dir() / f"{'-'.join((name, version, *more[1:]))}.jar"
    if not target.exists():
        maven = shutil.which("mvn")
        if maven is None:
            require(f"there is no Maven, which fetches {artifact}")
        cache_dir().mkdir(parents=True, exist_ok=True)
        command = [maven, "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache_dir()}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S_MAX, cwd=cache_dir())
        if done.returncode or not target.exists():
            require(f"Maven cannot fetch {artifact}")
    return target


def require_s3a() -> None:
    """Skip, or fail, where the session has no S3 connector."""
    if not wants_s3a():
        require("the S3 connector of Spark is not in Ivy's cache")


def wants_s3a() -> bool:
    """Whether the session gets the S3 connector: it is fetched, unless it was before."""
    return required() or any(Path.home().glob(".ivy2*/cache/org.apache.hadoop/hadoop-aws"))


@contextlib.contextmanager
def spark_session(folder: Path) -> Iterator[Any]:
    """A Spark session configured as users do, with the S3 connector if that is to be had."""
    from pyspark.sql import SparkSession

    from rollingfs.spark import configure

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("rollingfs tests")
    settings = {
        **LOOPBACK,
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"rolling+file://{folder}/warehouse",
        "spark.showConsoleProgress": "false",
    }
    builder.config(map=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = configure(builder, {} if wants_s3a() else None).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def run_query(writer: Any, checkpoint: Path, target: str | None = None, **options: Any) -> Any:
    """A streaming query over all that is there, once it has ended."""
    query = writer.options(checkpointLocation=str(checkpoint), **options).trigger(availableNow=True).start(target)
    query.awaitTermination()
    return query


def java_command(main: str, classes: Path, *more: str) -> list[str]:
    """How to run a class of `tests/spark/java`, compiled into `classes`, with our own jar and `more` on its path.

    `main` is its name below the package `rollingfs.hadoop`.
    """
    from rollingfs.spark import jar

    path = os.pathsep.join([str(jar.own_jar()), f"{jar.spark_jars()}/*", *more])
    source = JAVA_TESTS / f"{main.rpartition('.')[2]}.java"
    compile_it = ["javac", "-proc:none", "-nowarn", "-Xlint:none", "-d", str(classes), "-cp", path, str(source)]
    subprocess.run(compile_it, check=True, timeout=JVM_S_MAX, capture_output=True)
    return ["java", "-cp", f"{classes}{os.pathsep}{path}", f"rollingfs.hadoop.{main}"]


def run_java(main: str, *arguments: str, classes: Path) -> str:
    """Run a class of `tests/spark/java`; its output."""
    command = [*java_command(main, classes), *arguments]
    done = subprocess.run(command, timeout=JVM_S_MAX, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def java_takes(files: Sequence[bytes], command: Sequence[str], run_s_max: float = JVM_S_MAX) -> list[bool]:
    """Which files Java parses; the command is that of `Fuzz.java`."""
    content = b"".join(struct.pack(">i", len(data)) + data for data in files)
    done = subprocess.run(command, input=content, capture_output=True, timeout=run_s_max)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode().strip()
    assert len(said) == len(files)
    return [letter == "1" for letter in said]


def environment(*folders: Path, **more: str) -> dict[str, str]:
    """The environment of a process that uses Spark: it finds the modules in some folders, and rollingfs."""
    path = os.pathsep.join(map(str, (*folders, ROOT)))
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, **more}


def run_python(*command: object, env: Mapping[str, str] | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program of Python, which must succeed."""
    whole = [sys.executable, *map(str, command)]
    how: dict[str, Any] = {"env": env or environment(), "capture_output": True, "text": True, "timeout": PROGRAM_S_MAX}
    done = subprocess.run(whole, **how, **more)
    assert done.returncode == 0, done.stderr[-5000:]
    return done


def as_installed(folder: Path) -> dict[str, str]:
    """The environment of a program where rollingfs is installed from its wheel, with a session on loopback."""
    top = installed(folder / "top")
    settings = {**LOOPBACK, "spark.log.level": "ERROR"}
    (top / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return environment(top, SPARK_CONF_DIR=str(top))


def installed(folder: Path) -> Path:
    """A new folder with the top-level module by which Spark finds the data source, as the wheel has it."""
    module = ROOT / "rollingfs" / "spark" / "source" / "pyspark_rollingfs.py"
    folder.mkdir()
    shutil.copy(module, folder)
    return folder


def told(log: Path, pattern: str, process: Any = None) -> str:
    """What the log of a process says, once it says it."""
    return eventually(lambda: re.search(pattern, log.read_text()), READY_S_MAX, log.read_text, process)[1]


def arrow_stream(*batches: Any) -> bytes:
    """Record batches as one IPC stream."""
    import pyarrow as pa

    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def parquet_file(table: Any, **options: Any) -> bytes:
    """A table as a Parquet file."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


# -- places ------------------------------------------------------------------------------------------------------


@dataclass
class Place:
    """A folder or bucket, as Python and as the JVM see it."""

    spark: Any
    client: At
    path: str
    """On the backend."""
    url: str
    """In Spark."""

    def __post_init__(self) -> None:
        self.bridge = Bridge(self.client.backend)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.bridge.run(coroutine)

    # -- as Python sees it ---------------------------------------------------------------------------------

    def segment(
        self, name: str, data: bytes, policy: RollingPolicy = SMALL, *, piece: int = 70, head: bytes = b""
    ) -> str:
        """A segment of this content, appended in pieces; a `head` was before it and is truncated away. Its URL."""
        path = f"{self.path}/{name}"
        self.run(create(self.client, path, policy))
        whole = head + data
        for start in range(0, len(whole), piece):
            self.run(append(self.client, path, whole[start : start + piece]))
        if head:
            self.run(truncate(self.client, path, len(head)))
        return f"{self.url}/{name}"

    def plain(self, name: str, data: bytes) -> str:
        """A plain file; its URL."""
        self.run(self.client.backend.write(f"{self.path}/{name}", [data]))
        return f"{self.url}/{name}"

    def rewrite(self, name: str, old: bytes, new: bytes, *, sealed: bool = True) -> None:
        """Put other words into the text of a header, under its old checksum if it is not `sealed` again."""
        path = f"{self.path}/{name}$header"
        text, end, rest = self.run(self.client.backend.read(path)).data.partition(b"\nend crc32c=")
        assert old in text + b"\n"
        text = (text + b"\n").replace(old, new, 1)
        crc = b"%08x" % iscsi(text) if sealed else rest[:8]
        self.run(self.client.backend.delete([path]))
        self.run(self.client.backend.write(path, [text + end[1:] + crc + rest[8:]]))

    def header(self, name: str) -> Any:
        """What Python finds now."""
        return self.run(self.client.headers.load(f"{self.path}/{name}")).header

    def tree(self, name: str = "") -> dict[str, bytes]:
        """Every file below a folder, by its path from the place, with its bytes; empty folders end in a slash."""
        folder = f"{self.path}/{name}".rstrip("/")
        try:
            entries = self.run(self.client.backend.list(folder)).entries
        except FileNotFoundError:
            return {}
        found = {} if entries or not name else {f"{name}/": b""}
        for entry in entries:
            own = entry.path.removeprefix(f"{self.path}/")
            if entry.is_folder:
                found |= self.tree(own)
            else:
                found[own] = self.run(self.client.backend.read(entry.path)).data
        return found

    def held(self, name: str = "") -> list[tuple[str, bytes]]:
        """What rollingfs keeps below a folder, the marks of removed folders apart: headers, chunks, pins, pages."""
        found = sorted(self.tree(name).items())
        return [(path, data) for path, data in found if "$header" in path or "$chunks" in path]

    def content(self, name: str) -> bytes:
        """The retained bytes, as Python reads them."""
        view = self.run(self.client.headers.view(f"{self.path}/{name}", fresh=True))
        return self.run(self.client.fetcher.read(view, view.start, view.length))

    # -- as the JVM sees it --------------------------------------------------------------------------------

    def hadoop_path(self, name: str = "") -> Any:
        return self.spark._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{name}".rstrip("/") + ("/" if not name else ""))

    @property
    def fs(self) -> Any:
        """The Hadoop filesystem."""
        return self.hadoop_path().getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration())

    def listed(self, name: str = "") -> dict[str, int]:
        """Names and sizes of what a folder shows."""
        return {found.getPath().getName(): found.getLen() for found in self.fs.listStatus(self.hadoop_path(name))}

    def create(self, name: str, data: bytes) -> None:
        stream = self.fs.create(self.hadoop_path(name), True)
        stream.write(data)
        stream.close()

    def read(self, name: str) -> bytes:
        stream = self.fs.open(self.hadoop_path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()
