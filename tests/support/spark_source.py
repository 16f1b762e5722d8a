"""The data source of Spark without a session: its readers, its streams and its tasks, called as Spark calls them."""

import contextlib
import io
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.cloudpickle import dumps
from pyspark.sql.types import StructType

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.folders import listing
from rollingfs.segment.at import At
from rollingfs.spark.source import places
from rollingfs.spark.source.batch_reader import RollingReader
from rollingfs.spark.source.datasource import RollingDataSource
from rollingfs.spark.source.folder_columns import infer_schema
from rollingfs.spark.source.options import parse_options

with contextlib.suppress(ModuleNotFoundError):  # a PySpark before 4.2 reads no streams
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from rollingfs.spark.source.stream.stream_reader import RollingStreamReader

    ALL = ReadAllAvailable()
TEXT = StructType().add("value", "string")
NUMBERS = StructType().add("n", "long")
QUERY = "3f"


def given(path: Any, **options: Any) -> dict[str, Any]:
    """The options of a read or write, as Spark hands them over."""
    return {"path": str(path), **options}


def first_column(source: Any, parts: Iterable[Any]) -> list[Any]:
    """The first column of what a reader reads of some partitions."""
    return [value for part in parts for batch in source.read(part) for value in batch.column(0).to_pylist()]


def rows_of(source: Any, parts: Iterable[Any] | None = None) -> list[dict[str, Any]]:
    """What a reader reads of some partitions, or of all that it plans."""
    parts = source.partitions() if parts is None else parts
    return [row for part in parts for batch in source.read(part) for row in batch.to_pylist()]


def put(fs: RollingFileSystem, path: Any, data: bytes, policy: RollingPolicy | None = None) -> str:
    """Append to a segment, which is made if there is none; its path."""
    if not fs.exists(str(path)):
        fs.create(str(path), policy)
    fs.append(str(path), data)
    return str(path)


def inferred(path: Any, **options: Any) -> StructType:
    """The columns of a read that names none."""
    return infer_schema(parse_options(given(path, **options)))


def batch_reader(path: Any, schema: StructType = TEXT, **options: Any) -> Any:
    """A batch read."""
    return RollingReader(parse_options(given(path, **options)), schema)


def read(path: Any, schema: StructType = TEXT, **options: Any) -> list[Any]:
    """The first column of a batch read."""
    source = batch_reader(path, schema, **options)
    return first_column(source, source.partitions())


def reader(path: Any, schema: StructType = TEXT, **options: Any) -> Any:
    """A stream that looks at the store whenever Spark asks it."""
    return RollingStreamReader(parse_options(given(path, **{"pollInterval": "0s", **options})), schema)


def saved(offset: Any) -> Any:
    """An offset that went through the checkpoint."""
    return json.loads(json.dumps(offset))


def step(source: Any, start: Any = None, limit: Any = None) -> tuple[list[Any], Any]:
    """The first column of the next batch of a stream, by default of the first one, and where it ends."""
    start = saved(source.initialOffset() if start is None else start)
    end = saved(source.latestOffset(start, limit or source.getDefaultReadLimit()))
    return first_column(source, source.partitions(start, end)), end


def drained(path: Any, limit: Any = None, at: Any = None, **options: Any) -> list[list[str]]:
    """The batches of a query that is started again for each of them."""
    at = saved(reader(path, **options).initialOffset()) if at is None else at
    batches = []
    while True:
        rows, end = step(reader(path, **options), at, limit)
        if end == at:
            return batches
        batches.append(rows)
        at = end


def blinded(patch: pytest.MonkeyPatch, path: str) -> None:
    """Let all listings miss a segment."""
    real = listing.scan

    async def blind(at: At, folder: str, *args: Any, **options: Any) -> Any:
        scan = await real(at, folder, *args, **options)
        scan.views.pop(path, None)
        return scan

    patch.setattr(listing, "scan", blind)


class Task:
    """What Spark tells a task."""

    def __init__(self, partition: int = 0, query: str | None = None, batch: int | None = None) -> None:
        self._partition = partition
        self._known = {"sql.streaming.queryId": query, "streaming.sql.batchId": None if batch is None else str(batch)}

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self._known.get(name)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let this process be the task."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TaskContext, "get", classmethod(lambda cls: self))
            yield


class Sink:
    """The sink of a query or of batch writes, on a driver that can be replaced.

    A batch number says that a writer is that of a stream; without one it is that of a batch write.
    """

    def __init__(self, patch: pytest.MonkeyPatch, backend: Any, schema: StructType = TEXT, **options: Any) -> None:
        self.patch = patch
        self.pickled = lambda one: pickle.loads(dumps(one))
        self.schema = schema
        self.options = {"path": "memory://log/t", **options}
        self.restart(backend)

    def restart(self, backend: Any) -> None:
        """Let another process go on, with nothing in its caches."""
        self.fs = RollingFileSystem(backend=backend, header_cache_s=0)
        self.patch.setattr(places, "filesystem", lambda options: self.fs)

    @property
    def source(self) -> RollingDataSource:
        return RollingDataSource(dict(self.options))

    @property
    def target(self) -> str:
        return self.options["path"].removeprefix("memory://")

    def plans(self, schema: StructType | None = None, overwrite: bool = False) -> list[Callable[[], Any]]:
        """The calls that plan a write: of a batch, of a stream."""
        makers = (self.source.writer, self.source.streamWriter)
        return [partial(make, schema or self.schema, overwrite) for make in makers]

    def plan(self, batch: int | None = None, overwrite: bool = False) -> Any:
        """The writer whose tasks run."""
        return self.plans(overwrite=overwrite)[batch is not None]()

    def run(self, writer: Any, batch: int | None, *tasks: Any, query: str = QUERY) -> list[Any]:
        """The receipts of tasks, of which each has rows."""
        receipts = []
        for nth, rows in enumerate(tasks):
            with Task(nth, query, batch).running():
                written = self.pickled(writer).write(iter([record_batch(self.schema, rows)]))
                receipts.append(self.pickled(written))
        return receipts

    def tasks(self, batch: int | None, *tasks: Any, query: str = QUERY) -> list[Any]:
        """The receipts of a write that is not committed yet."""
        return self.run(self.plan(batch), batch, *tasks, query=query)

    def commit(self, receipts: list[Any], batch: int, overwrite: bool = False) -> None:
        """Commit a batch of a stream, as Spark does: with a writer that an unpickled source makes."""
        self.pickled(self.source).streamWriter(self.schema, overwrite).commit(receipts, batch)

    def stream(self, batch: int, *tasks: Any, query: str = QUERY, overwrite: bool = False) -> None:
        """A batch of the stream; in complete mode it overwrites."""
        self.commit(self.run(self.plan(batch, overwrite), batch, *tasks, query=query), batch, overwrite)

    def write(self, *tasks: Any, overwrite: bool = False) -> None:
        """A batch write."""
        writer = self.plan(overwrite=overwrite)
        self.pickled(writer).commit(self.run(writer, None, *tasks))

    def rows(self, path: str | None = None) -> list[Any]:
        """The lines of a segment, or the rows of its columns; of one column, their values."""
        path, kind = path or self.target, self.options.get("format", "text")
        data = self.fs.cat_file(path) if self.fs.exists(path) else b""
        if kind == "text":
            return data.decode().splitlines()
        source, found = pa.BufferReader(data), []
        while kind == "arrow" and source.tell() < source.size():
            found += pa.ipc.open_stream(source).read_all().to_pylist()
        if kind == "parquet" and data:
            found = pq.read_table(io.BytesIO(data)).to_pylist()
        return [row["value"] for row in found] if self.schema == TEXT else found

    def routed(self) -> dict[str, list[Any]]:
        """The rows of each segment of the folder."""
        return {path.rpartition("/")[2]: self.rows(path) for path in self.fs.find(self.target)}

    def chunk_files(self, path: str | None = None) -> list[str]:
        """What lies in the chunk folder of a segment."""
        folder = f"/{(path or self.target).lstrip('/')}$chunks"
        try:
            return [entry.path for entry in self.fs._bridge.run(self.fs._client.backend.list(folder)).entries]
        except FileNotFoundError:
            return []


def record_batch(schema: StructType, rows: Any) -> pa.RecordBatch:
    """Rows of a schema: a value each, if it has one column; what is a record batch already stays."""
    if isinstance(rows, pa.RecordBatch):
        return rows
    columns = [[row] for row in rows] if len(schema) == 1 else rows
    return pa.record_batch([[row[nth] for row in columns] for nth in range(len(schema))], names=schema.names)
