"""The data source as Spark sees it: one class, which imports little, for Spark imports it to look for data sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class RollingDataSource(DataSource):
    """Segments as tables of Spark: read, written, tailed and appended to exactly once.

    Found by Spark itself where rollingfs is installed; ``spark.dataSource.register(RollingDataSource)`` says it to a
    session in which another package's data source cannot be imported. What options there are, docs/spark.md says.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "rolling"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._is_planning = True

    def __getstate__(self) -> dict[str, Any]:
        # Spark plans the tasks of a batch by a new instance, and commits or aborts the batch by an unpickled one
        return {**self.__dict__, "_is_planning": False}

    def schema(self) -> StructType | str:
        """The columns, of the format or of a sample.

        Raises
        ------
        ValueError
            There is nothing to infer them from.
        """
        from rollingfs.spark.source.batch_reader import infer_schema

        schema: StructType | str = infer_schema(self._parsed())
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of all that is there now."""
        from rollingfs.spark.source.batch_reader import RollingReader

        return RollingReader(self._parsed(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For one commit.

        Raises
        ------
        OSError
            The target could not be committed to; no task has begun.
        """
        from rollingfs.spark.source.batch_writer import RollingWriter

        writer = RollingWriter(self._parsed(), schema, overwrite)
        writer.check_target()
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Of what comes."""
        from rollingfs.spark.source.stream_reader import RollingStreamReader

        return RollingStreamReader(self._parsed(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """For one commit a batch.

        Raises
        ------
        OSError
            The target could not be committed to; no task has begun.
        """
        from rollingfs.spark.source.stream_writer import RollingStreamWriter

        writer = RollingStreamWriter(self._parsed(), schema, overwrite)
        if self._is_planning:
            writer.check_target()
        return writer

    def _parsed(self) -> Any:
        from rollingfs.spark.source.options import parse_options

        return parse_options(self.options)
