"""Segments in Spark: a data source, a Hadoop filesystem, maintenance of thousands of segments. See docs/spark.md.

In: a Spark session or its builder, URLs, storage options. Out: settings of a session, sentences on what it lacks, rows.
`source` is the data source ``format("rolling")``, `hadoop` the filesystem for URLs like ``rolling+s3://bucket/events``,
in Java. Must not be here: code that writes a header; the operations of the library do.
"""

from rollingfs.spark.configure import configure
from rollingfs.spark.maintain import maintain
from rollingfs.spark.session import doctor, storage_options
from rollingfs.spark.text_records import read_csv, read_json, stream_csv, stream_json, to_csv, to_json

__all__ = [
    "configure",
    "doctor",
    "maintain",
    "read_csv",
    "read_json",
    "storage_options",
    "stream_csv",
    "stream_json",
    "to_csv",
    "to_json",
]
