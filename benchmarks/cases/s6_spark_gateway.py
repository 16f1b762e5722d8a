"""S6: Spark reads segments through `rollingfs serve` by Hadoop's own client, with no jar of ours, and plain files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Job
from benchmarks.spark import data
from benchmarks.spark.query import PATH, PLAIN, Files, Query, column_sums, slowdown, spark_case, times


@dataclass(frozen=True, slots=True)
class Through:
    """A folder of files, read through a gateway to the whole disk, with the options of `configure`."""

    files: Files

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from rollingfs.spark.configure import VECTORED, gateway_url

        files = self.files
        reader = spark.read.format(files.kind).option(VECTORED.removeprefix("spark.hadoop."), "false")
        reader = reader.schema(files.schema) if files.schema else reader
        return reader.load(f"{gateway_url('/', None)}{given['folder']}/{files.name}")


def _all(title: str, kind: str, key: str, sums: Sequence[str], schema: str | None = None) -> dict[str, Query]:
    """The same query through a gateway, by the path, and of plain files."""
    segments = Files(PATH, f"segments-{kind}", kind, schema)
    return {
        f"gateway, {title}": Query(key, Through(segments), sums),
        f"rolling+file, {title}": Query(key, segments, sums),
        f"file, {title}": Query(key, Files(PLAIN, f"plain-{kind}", kind, schema), sums),
    }


def prepare(job: Job) -> Mapping[str, tuple[Sequence[float], int]]:
    folder = job.given["folder"]
    rows, json_bytes = data.write_lines(job, folder, "json")
    columns, table_bytes = data.write_parquet(job, folder)
    return {"json": (times(rows.sums), json_bytes), "parquet": (columns, table_bytes)}


CASES = (
    spark_case(
        "S6",
        "Spark: 384 MiB read through a gateway; 8 segments of 6 chunks and a tail",
        {
            **_all("JSON", "json", "json", data.SUMS, data.JSON_SCHEMA),
            **_all("Parquet", "parquet", "parquet", column_sums(data.COLUMNS)),
        },
        tuple(
            slowdown(f"{kind}, file / gateway", f"gateway, {kind}", f"file, {kind}", at_least=0.67)
            for kind in ("JSON", "Parquet")
        ),
        prepare,
    ),
)
