"""From data to one commit: every operation that changes one segment (`segment_operations`), or two (`concat`).

In: paths, data, guards. Out: offsets and headers of what was committed.
Must not be here: file objects, and URLs; those are in `rollingfs.fs`. Nor a header that is replaced in another way than
by `rollingfs.commit`.
"""
