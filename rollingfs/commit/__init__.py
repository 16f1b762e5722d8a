"""The only place where a header is replaced.

In: a path, and a step that makes the next header of the one that is there. Out: what was committed, or an error that
says whether anything was written. Below it lie the caches of headers and index pages, and the chunk files.
Must not be here: what an operation means; that is in `rollingfs.write`.
"""
