"""The data source as Spark sees it: a class. It imports little, because Spark imports it in every session."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource

from rollingfs.spark.source.plain_errors import plainly

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

    Spark finds it by itself where rollingfs is installed. If Spark cannot import the data source of another package, it
    finds no source: then call ``spark.dataSource.register(RollingDataSource)``. docs/spark_source.md has the options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "rolling"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._is_planning = True

    def __getstate__(self) -> dict[str, Any]:
        # a new instance plans the tasks of a streaming batch; an unpickled one commits or aborts it
        return {**self.__dict__, "_is_planning": False}

    @plainly
    def schema(self) -> StructType | str:
        """Return the columns of the format, or of a sample.

        Raises
        ------
        ValueError
            There are no segments to infer them from.
        """
        from rollingfs.spark.source.folder_columns import infer_schema

        schema: StructType | str = infer_schema(self._parsed())
        return schema

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of all that is there when the query is planned."""
        from rollingfs.spark.source.batch_reader import RollingReader

        return RollingReader(self._parsed(), schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for a single commit.

        Raises
        ------
        OSError
            A commit to the target would fail. No task has begun.
        """
        from rollingfs.spark.source.sink.writers import RollingWriter

        writer = RollingWriter(self._parsed(), schema, overwrite)
        writer.check_target()
        return writer

    # not plainly: Spark then fails at a reader that it does not have, and shows this error in the traceback alone
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of appended bytes.

        Raises
        ------
        NotImplementedError
            PySpark is older than 4.2.
        """
        if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
            raise NotImplementedError(
                f"format('rolling') reads streams with PySpark 4.2 or later, and this is {pyspark.__version__}, which "
                "does not tell a data source how far the query has read: install pyspark>=4.2. Batches are read, and "
                "streams are written, with this version too"
            )
        from rollingfs.spark.source.stream.stream_reader import RollingStreamReader

        return RollingStreamReader(self._parsed(), schema)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a writer with a commit for each batch.

        Raises
        ------
        OSError
            A commit to the target would fail. No task has begun.
        """
        from rollingfs.spark.source.sink.writers import RollingWriter

        writer = RollingWriter(self._parsed(), schema, overwrite, is_stream=True)
        if self._is_planning:
            writer.check_target()
        return writer

    def _parsed(self) -> Any:
        from rollingfs.spark.source.options import parse_options

        return parse_options(self.options)
