"""The fastest possible Python data source of Spark: it gives the same record batch again and again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def write_batch(path: str, batch: pa.RecordBatch) -> None:
    """Write the batch that `SameBatch` gives."""
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


class SameBatch(DataSource):
    """``format("samebatch")``, with the options `partitions` and `batches` (of each partition)."""

    @classmethod
    def name(cls) -> str:
        return "samebatch"

    def schema(self) -> StructType | str:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(_read(self.options["path"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["path"], int(self.options["partitions"]), int(self.options["batches"]))


class _Reader(DataSourceReader):
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
