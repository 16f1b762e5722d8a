"""A folder of segments as one log: cuts, retention, trimming.

In: a folder's path. Out: cuts, and what was trimmed. A stream's memory is a hidden segment, ``$stream``.
Must not be here: the classes that users hold; those are in `rollingfs.fs`.
"""
