"""The works that are measured, one module a kind; `ALL` is what ``python -m benchmarks`` runs."""

from benchmarks.work import Work
from benchmarks.works import appends, disk, life, opens, parquet, ranges, segments, sequential, sizes, spark

ALL: tuple[Work, ...] = (
    *appends.WORKS,
    *sequential.WORKS,
    *ranges.WORKS,
    *parquet.WORKS,
    *segments.WORKS,
    *sizes.WORKS,
    *opens.WORKS,
    *disk.WORKS,
    *life.WORKS,
    *spark.WORKS,
)
