"""Streaming reads: how far a query has read, how much it reads next, and what it tells of that.

In: offsets of Spark, segments as they are. Out: ranges of whole records. Must not be here: what the records are; the
formats know.
"""
