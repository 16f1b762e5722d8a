"""The floors beneath a Python data source of Spark: the same record batch again and again, bare files, and no sink."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TEXT_BLOCK_BYTES = 3 * 2**20
"""As in the data source: the processor's cache holds it."""


def write_batch(path: str, batch: pa.RecordBatch) -> None:
    """Write the batch that `SameBatch` gives."""
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


class SameBatch(DataSource):
    """``format("samebatch")``, with the options `partitions` and `batches` (of each partition): nothing is read."""

    @classmethod
    def name(cls) -> str:
        return "samebatch"

    def schema(self) -> StructType | str:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(_read(self.options["path"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _SameReader(self.options["path"], int(self.options["partitions"]), int(self.options["batches"]))


class _SameReader(DataSourceReader):
    def __init__(self, path: str, partitions: int, batches: int) -> None:
        self._path = path
        self._partitions = partitions
        self._batches = batches

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _read(self._path)
        for _ in range(self._batches):
            yield batch


def _read(path: str) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.BufferReader(Path(path).read_bytes())).get_batch(0)


class PlainFiles(DataSource):
    """``format("plainfiles")``: the least that reads a folder of plain files, with no checksum and no segment.

    The option `kind` is ``arrow`` or ``txt``. Each file is cut into `cuts` partitions.
    """

    @classmethod
    def name(cls) -> str:
        return "plainfiles"

    def schema(self) -> StructType | str:
        from pyspark.sql.pandas.types import from_arrow_schema

        if self.options["kind"] == "txt":
            return "value string"
        with pa.OSFile(_files(self.options["path"])[0]) as file:
            return from_arrow_schema(pa.ipc.read_schema(file))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self.options
        return _PlainReader(options["path"], int(options["cuts"]), _stream if options["kind"] == "arrow" else _lines)


class _PlainReader(DataSourceReader):
    def __init__(self, folder: str, cuts: int, read: Callable[[str, int, int], Iterator[pa.RecordBatch]]) -> None:
        self._folder = folder
        self._cuts = cuts
        self._read = read

    def partitions(self) -> list[InputPartition]:
        found = []
        for path in _files(self._folder):
            ends = _ends_of_messages(path) if self._read is _stream else _ends_of_lines(path, self._cuts)
            at = [ends[(len(ends) - 1) * nth // self._cuts] for nth in range(self._cuts + 1)]
            found += [InputPartition((path, *span)) for span in itertools.pairwise(at)]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(*partition.value)


class Dropped(DataSource):
    """``format("dropped")``: rows come to the Python worker as Arrow batches, and nothing is done with them."""

    @classmethod
    def name(cls) -> str:
        return "dropped"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Dropper()


class _Dropper(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def _files(folder: str) -> list[str]:
    return sorted(os.path.join(folder, name) for name in os.listdir(folder))


def _ends_of_messages(path: str) -> list[int]:
    """Where the schema and each record batch of a stream end."""
    with pa.memory_map(path) as file:
        ends = []
        pa.ipc.read_schema(file)
        while True:
            ends.append(file.tell())
            try:
                pa.ipc.read_message(file)
            except EOFError:
                return ends


def _ends_of_lines(path: str, cuts: int) -> list[int]:
    """The ends of lines at about equal distances, from the file's start to its end."""
    size, ends = os.path.getsize(path), [0]
    with open(path, "rb") as file:
        for nth in range(1, cuts):
            file.seek(size * nth // cuts)
            file.readline()
            ends.append(file.tell())
    return [*ends, size]


def _stream(path: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path) as file:
        schema = pa.ipc.read_schema(file)
        file.seek(start)
        while file.tell() < end:
            yield pa.ipc.read_record_batch(pa.ipc.read_message(file), schema)


def _lines(path: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    with open(path, "rb", buffering=0) as file:
        while start < end:
            file.seek(start)
            data = file.read(min(TEXT_BLOCK_BYTES, end - start))
            size = data.rfind(b"\n") + 1
            start += size
            bounds = pa.array([0, size - 1], pa.int32()).buffers()[1]
            text = pa.StringArray.from_buffers(1, bounds, pa.py_buffer(data))
            yield pa.record_batch([pc.split_pattern(text, "\n").flatten()], names=["value"])
