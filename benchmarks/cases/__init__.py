"""The cases that are measured, one module each; `ALL` is what ``python -m benchmarks`` runs."""

from benchmarks.case import Case
from benchmarks.cases import (
    l1_consolidate,
    l3_collect,
    l4_tail,
    p1_append,
    p2_read_and_write,
    p3_ranges,
    p4_parquet,
    p5_concat,
    p6_truncate,
    p7_chunk_count,
    p8_open,
    p11_local_disk,
    p12_import,
    s1_spark_read,
    s2_spark_write,
    s3_spark_source,
    s4_spark_small_segments,
)

ALL: tuple[Case, ...] = (
    *p1_append.CASES,
    *p2_read_and_write.CASES,
    *p3_ranges.CASES,
    *p4_parquet.CASES,
    *p5_concat.CASES,
    *p6_truncate.CASES,
    *p7_chunk_count.CASES,
    *p8_open.CASES,
    *p12_import.CASES,
    *p11_local_disk.CASES,
    *l1_consolidate.CASES,
    *l3_collect.CASES,
    *l4_tail.CASES,
    *s1_spark_read.CASES,
    *s2_spark_write.CASES,
    *s3_spark_source.CASES,
    *s4_spark_small_segments.CASES,
)
