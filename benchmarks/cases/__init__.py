"""The cases that are measured, one module each; `ALL` is what ``python -m benchmarks`` runs."""

from benchmarks.case import Case
from benchmarks.cases import (
    i1_inline,
    l1_consolidate,
    l3_collect,
    l4_tail,
    l5_tiers,
    l7_list,
    l8_open_writers,
    l9_many_segments,
    m1_money,
    p1_append,
    p1_many_processes,
    p1_turns,
    p2_read_and_write,
    p3_ranges,
    p4_http,
    p4_parquet,
    p4_parquet_append,
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
    s5_spark_records,
    s6_spark_gateway,
)

_MODULES = (
    *(
        p1_append,
        p1_turns,
        p1_many_processes,
        p2_read_and_write,
        p3_ranges,
        p4_parquet,
        p4_parquet_append,
        p4_http,
        p5_concat,
    ),
    p6_truncate,
    *(p7_chunk_count, p8_open, p12_import, p11_local_disk, l1_consolidate, l3_collect, l4_tail, l5_tiers, l7_list),
    *(l8_open_writers, l9_many_segments, i1_inline, m1_money),
    *(s1_spark_read, s2_spark_write, s3_spark_source, s4_spark_small_segments, s5_spark_records, s6_spark_gateway),
)
ALL: tuple[Case, ...] = tuple(case for module in _MODULES for case in module.CASES)
