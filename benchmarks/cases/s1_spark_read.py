"""S1: Spark reads by the path, segments and plain files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.case import Job
from benchmarks.spark import data
from benchmarks.spark.query import PATH, PLAIN, TEXT_SUMS, Files, Query, column_sums, slowdown, spark_case, times


def _both(title: str, name: str, kind: str, sums: Sequence[str], schema: str | None = None) -> dict[str, Query]:
    """The same query of segments, and of plain files."""
    ending = name.partition(" ")[0]
    return {
        f"rolling+file, {title}": Query(name, Files(PATH, f"segments-{ending}", kind, schema), sums),
        f"file, {title}": Query(name, Files(PLAIN, f"plain-{ending}", kind, schema), sums),
    }


READS = {
    **_both("text", "txt", "text", TEXT_SUMS),
    **_both("JSON", "json", "json", data.SUMS, data.JSON_SCHEMA),
    **_both("Parquet", "parquet all", "parquet", column_sums(data.COLUMNS)),
    **_both("Parquet, 1 column", "parquet one", "parquet", column_sums(1)),
}


def prepare_reads(job: Job) -> Mapping[str, tuple[Sequence[float], int]]:
    folder = job.given["folder"]
    lines, text_bytes = data.write_lines(job, folder, "txt")
    rows, json_bytes = data.write_lines(job, folder, "json")
    columns, table_bytes = data.write_parquet(job, folder)
    return {
        "txt": (times(lines.text_sums), text_bytes),
        "json": (times(rows.sums), json_bytes),
        "parquet all": (columns, table_bytes),
        "parquet one": (columns[:1], table_bytes // data.COLUMNS),
    }


CASES = (
    spark_case(
        "S1",
        "Spark: 384 MiB read by the path; 8 segments of 6 chunks and a tail",
        READS,
        tuple(
            slowdown(f"{kind}, file / rolling+file", f"rolling+file, {kind}", f"file, {kind}", at_least=0.95)
            for kind in ("text", "JSON", "Parquet", "Parquet, 1 column")
        ),
        prepare_reads,
    ),
)
