"""A folder of segments as a log: cuts, retention, trimming.

In: the path of a folder. Out: cuts, and the trimmed or deleted segments. The memory of a stream is in a hidden segment,
``$stream``. Must not be here: the class that users hold, which is `rollingfs.fs.stream_handle.Stream`; code that writes
headers or chunk files.
"""
