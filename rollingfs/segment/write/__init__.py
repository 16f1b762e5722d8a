"""From data to a commit.

In: paths, data, guards. Out: offsets and headers of what was committed. `ingest` uploads data, `append_to_header` makes
the next header, `group_commit` commits the appends that wait together.
Must not be here: file objects, and URLs; those are in `rollingfs.fs`. Nor a header that is replaced in another way than
by `rollingfs.segment.commit`.
"""
