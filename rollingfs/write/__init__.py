"""From data to one commit: every operation that changes one segment, or two.

In: paths, data, guards. Out: offsets and headers of what was committed.
Must not be here: file objects, and URLs; those are in `rollingfs.fs`.
"""
