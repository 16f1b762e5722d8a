"""Streaming reads: progress of a query, size of its next batch, and reports of both.

In: offsets of Spark, segments as they are. Out: ranges of whole records. Must not be here: knowledge of records, which
the formats have.
"""
