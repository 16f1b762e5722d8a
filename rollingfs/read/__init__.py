"""From a snapshot and segment offsets to bytes.

In: a path or a snapshot, and ranges. Out: bytes, checked where a whole chunk was read.
Must not be here: anything that writes.
"""
