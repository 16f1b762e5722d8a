"""From data to one commit: the operations that users call on one segment, or on several.

`segment_operations` has those on one segment, `concat` those on several.
In: paths, data, guards. Out: offsets and headers of what was committed.
Must not be here: file objects, and URLs; those are in `rollingfs.fs`. Nor a header that is replaced in another way than
by `rollingfs.segment.commit`.
"""
