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

    def schema(self) -> StructType | str:
        """The columns, of the format or of a sample.

        Raises
        ------
        ValueError
            There is nothing to infer them from.
        """
        from rollingfs.spark.source.read import infer_schema

        schema: StructType | str = infer_schema(self._parsed())
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of all that is there now."""
        from rollingfs.spark.source.read import RollingReader

        return RollingReader(self._parsed(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For one commit."""
        from rollingfs.spark.source.write import RollingWriter

        return RollingWriter(self._parsed(), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Of what comes."""
        from rollingfs.spark.source.stream import RollingStreamReader

        return RollingStreamReader(self._parsed(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """For one commit a batch."""
        from rollingfs.spark.source.sink import RollingStreamWriter

        return RollingStreamWriter(self._parsed(), schema, overwrite)

    def _parsed(self) -> Any:
        from rollingfs.spark.source.options import parse_options

        return parse_options(self.options)
